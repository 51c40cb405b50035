"""Whom a broker follows: what settings are allowed."""

import pytest

from rockhopper.broker.settings.config_file import build_config, properties_of
from rockhopper.broker.settings.setting_fields import SettingError


def test_nobody_is_followed_unless_that_is_set() -> None:
    config = build_config({})
    assert config.following.follow_master == ""
    assert properties_of(config)["haHousekeepingInterval"] == "20000"
    assert build_config({"followMaster": "a:1"}).following.follow_master == "a:1"


@pytest.mark.parametrize("key", ["followMaster", "haMasterAddress"])
@pytest.mark.parametrize("address", ["10911", "host", "host:0", ":10911"])
def test_a_master_is_host_and_port(key: str, address: str) -> None:
    with pytest.raises(SettingError, match="host:port"):
        build_config({key: address})


@pytest.mark.parametrize("other", [{"brokers": "2"}, {"role": "nameserver"}])
def test_one_broker_follows_one(other: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="only a single broker"):
        build_config({"followMaster": "a:1", **other})
