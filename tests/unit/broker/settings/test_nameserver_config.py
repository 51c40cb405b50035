"""The settings of the name server: as Apache's are unless they are ours, and within bounds."""

from typing import Any

import pytest

from rockhopper.broker.settings.nameserver_config import NameServiceConfig
from rockhopper.broker.settings.setting_fields import SettingError, parse_fields


def test_it_answers_as_one_of_apache_does_unless_it_is_told_otherwise() -> None:
    config = NameServiceConfig()
    assert not config.order_message_enable
    assert config.all_topic_list_enable
    assert config.topic_list_enable
    assert not config.delete_topic_with_registration
    assert (config.scan_interval_ms, config.broker_expiry_ms) == (5000, 120_000)


def test_settings_have_the_names_that_they_have_there() -> None:
    given = {
        "orderMessageEnable": "true",
        "enableAllTopicList": "false",
        "enableTopicList": "false",
        "deleteTopicWithBrokerRegistration": "true",
        "scanNotActiveBrokerInterval": "100",
    }
    values = parse_fields(NameServiceConfig, given)
    assert NameServiceConfig(**values) == NameServiceConfig(
        order_message_enable=True,
        all_topic_list_enable=False,
        topic_list_enable=False,
        delete_topic_with_registration=True,
        scan_interval_ms=100,
    )


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"scan_interval_ms": 9}, "scanNotActiveBrokerInterval"),
        ({"scan_interval_ms": 3_600_001}, "scanNotActiveBrokerInterval"),
        ({"broker_expiry_ms": 99}, "brokerExpiryMillis"),
        ({"broker_expiry_ms": 86_400_001}, "brokerExpiryMillis"),
    ],
)
def test_numbers_beyond_their_bounds_are_refused(values: dict[str, Any], name: str) -> None:
    with pytest.raises(SettingError, match=name):
        NameServiceConfig(**values)
