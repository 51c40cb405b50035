"""What a broker's settings make of it as a replica."""

from pathlib import Path

import pytest

from rockhopper.broker.replication.roles.joining import (
    JoinError,
    list_shared_settings,
    membership_of,
)
from rockhopper.broker.settings.config_file import build_config

SETTINGS = {"haEngine": "etcd://e:2379", "haReplicaId": "2", "haReplicas": "3"}


def test_what_others_are_told_of_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    config = build_config(SETTINGS | {"haSecretFile": str(secret), "haPriority": "5"})
    membership = membership_of(config, 10911, "b2:10911", "10.0.0.2")
    assert (membership.id, membership.min_in_sync, membership.priority) == (2, 2, 5)
    assert (membership.address, membership.ha_host, membership.ha_port) == (
        "b2:10911",
        "10.0.0.2",
        10912,
    )
    assert membership.facts.secrets == [b"s3cret"]
    secret.write_text("another\ns3cret\n")
    assert membership.facts.secrets == [b"another", b"s3cret"]


@pytest.mark.parametrize(("is_allowed", "replicas"), [("true", 3), ("false", 0)])
def test_how_many_have_to_be_there_after_a_power_cut_of_all(is_allowed: str, replicas: int) -> None:
    config = build_config(SETTINGS | {"uncleanAfterPowerCut": is_allowed})
    assert membership_of(config, 10911, "", "").replicas_after_power_cut == replicas


@pytest.mark.parametrize(
    ("settings", "host"),
    [({"brokerIP1": "10.0.0.9"}, "10.0.0.9"), ({"haAddress": "inner", "brokerIP1": "x"}, "inner")],
)
def test_where_other_replicas_reach_it(settings: dict[str, str], host: str) -> None:
    membership = membership_of(build_config(SETTINGS | settings), 10911, "b2:10911", "10.0.0.2")
    assert membership.ha_host == host
    assert membership.own_address == f"{host}:10911"


def test_a_secret_that_is_gone_is_named(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    config = build_config(SETTINGS | {"haSecretFile": str(secret)})
    secret.unlink()
    with pytest.raises(JoinError, match="haSecretFile"):
        membership_of(config, 10911, "", "")


def test_the_settings_that_others_compare_are_as_they_are_in_effect() -> None:
    settings = list_shared_settings(build_config(SETTINGS | {"messageDelayLevel": "1s 2s"}))
    assert (settings["minInSyncReplicas"], settings["messageDelayLevel"]) == ("2", "1s 2s")
    assert settings["flushDiskType"] == "ASYNC_FLUSH"
