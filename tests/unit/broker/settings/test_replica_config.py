"""The settings of a replica set: what is allowed, what is told, and what RocketMQ's keys mean."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config, load_config, properties_of
from rockhopper.broker.settings.replica_config import (
    EngineAddress,
    HaMode,
    ReplicaConfig,
    parse_engine,
    read_secret,
)
from rockhopper.broker.settings.setting_fields import SettingError

ETCD = {"haEngine": "etcd://h1:2379,h2", "haReplicaId": "1"}


def replica(**texts: str) -> ReplicaConfig:
    """The settings of a replica with an etcd."""
    return build_config({**ETCD, **texts}).replication


def test_a_broker_is_no_replica_unless_that_is_set() -> None:
    config = BrokerConfig().replication
    assert not config.is_replica
    assert config.notes() == config.warnings() == []
    assert properties_of(BrokerConfig())["haLeaseTtl"] == "4000"


@pytest.mark.parametrize(
    ("text", "scheme", "place"),
    [
        ("etcd://h1:2379,h2", "etcd", "h1:2379,h2"),
        ("ETCDS://[::1]:2379", "etcds", "[::1]:2379"),
        ("kubernetes://mq/broker-a", "kubernetes", "mq/broker-a"),
        ("static:///mnt/set", "static", "/mnt/set"),
    ],
)
def test_an_engine_has_a_scheme_and_a_place(text: str, scheme: str, place: str) -> None:
    assert parse_engine(text) == EngineAddress(scheme, place)


def test_a_set_goes_on_by_itself_after_a_power_cut_only_if_it_is_told_how_many_it_is() -> None:
    assert not replica().unclean_after_power_cut
    assert replica(uncleanAfterPowerCut="true", haReplicas="3").unclean_after_power_cut
    with pytest.raises(SettingError, match="set haReplicas"):
        replica(uncleanAfterPowerCut="true")


def test_endpoints_are_divided_by_commas() -> None:
    assert replica().engine_address.endpoints == ("h1:2379", "h2")


@pytest.mark.parametrize(
    "text",
    [
        "zookeeper://h1:2181",
        "etcd",
        "etcd://",
        "etcd://h1:0",
        "etcd://h1/key",
        "static",
        "static://directory",
        "kubernetes://lease",
        "kubernetes://A/b",
        "kubernetes://a/b/c",
    ],
)
def test_another_engine_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(SettingError, match="kubernetes://namespace/lease") as caught:
        replica(haEngine=text)
    assert caught.value.key == "haEngine"


@pytest.mark.parametrize(
    "text",
    [
        "etcd://root:s3cret@h1:2379",
        "etcd://root:s3cret@h1",
        "etcd:/root:s3cret@h1:2379",
        "etcd://h1:2379,root:s3c/s3cret@h2:2379",
    ],
)
def test_a_password_in_the_engines_address_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(SettingError, match="haEnginePasswordFile") as caught:
        replica(haEngine=text)
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "key", "remedy"),
    [
        ({"haReplicaId": "0"}, "haReplicaId", "a different number"),
        ({"haReplicaId": "4", "haReplicas": "3"}, "haReplicaId", "from 1 to 3"),
        ({"haReplicas": "3", "minInSyncReplicas": "4"}, "minInSyncReplicas", "from 1 to 3"),
        ({"haEngineCertFile": "/x"}, "haEngineCertFile", "haEngineKeyFile"),
        ({"haEngineKeyFile": "/x"}, "haEngineCertFile", "haEngineKeyFile"),
        ({"haEngineUser": "u"}, "haEngineUser", "haEnginePasswordFile"),
        ({"haAddress": "h:10912"}, "haAddress", "haListenPort"),
        ({"haMode": "maybe"}, "haMode", "sync, async"),
        ({"brokers": "2"}, "haEngine", "brokers=1"),
        ({"brokers": "0"}, "haEngine", "brokers=1"),
        ({"role": "nameserver"}, "haEngine", "set role"),
        ({"followMaster": "h:1"}, "haEngine", "rockhopper ha takeover"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(
    texts: dict[str, str], key: str, remedy: str
) -> None:
    with pytest.raises(SettingError, match=remedy) as caught:
        replica(**texts)
    assert caught.value.key == key


def test_without_an_engine_nothing_of_it_matters() -> None:
    build_config({"haReplicaId": "4", "haReplicas": "3", "brokers": "2", "haAddress": "h:1"})


@pytest.mark.parametrize(
    ("texts", "floor"),
    [
        ({}, 1),
        ({"haReplicas": "2"}, 1),
        ({"haReplicas": "3"}, 2),
        ({"haReplicas": "5"}, 2),
        ({"haReplicas": "2", "minInSyncReplicas": "2"}, 2),
        ({"haReplicas": "3", "minInSyncReplicas": "1"}, 1),
    ],
)
def test_the_floor_is_told_at_the_start(texts: dict[str, str], floor: int) -> None:
    config = replica(**texts)
    assert config.floor == floor
    [note] = config.notes()
    assert f"minInSyncReplicas={floor}" in note
    assert ("default" in note) is ("minInSyncReplicas" not in texts)


def test_the_ports_for_replicas_is_the_next_one() -> None:
    assert replica().ha_port(10911) == 10912
    assert replica().ha_port(0) == 0
    assert replica(haListenPort="7").ha_port(10911) == 7


@pytest.mark.parametrize(
    ("texts", "mode", "floor", "told"),
    [
        ({"brokerRole": "SYNC_MASTER", "haReplicas": "3"}, HaMode.SYNC, 1, "minInSyncReplicas=1"),
        ({"brokerRole": "ASYNC_MASTER"}, HaMode.ASYNC, 1, "haMode=async"),
        ({"brokerRole": "SYNC_MASTER", "minInSyncReplicas": "2"}, HaMode.SYNC, 2, "=2"),
        ({"brokerRole": "ASYNC_MASTER", "haMode": "sync"}, HaMode.SYNC, 1, ""),
        ({"totalReplicas": "3"}, HaMode.SYNC, 2, ""),
        ({"totalReplicas": "3", "haReplicas": "2"}, HaMode.SYNC, 1, ""),
    ],
)
def test_what_rocketmq_says_of_a_set_is_taken_over_and_told(
    texts: dict[str, str], mode: HaMode, floor: int, told: str
) -> None:
    loaded = load_config(flags={**ETCD, **texts})
    config = loaded.config.replication
    assert (config.mode, config.floor) == (mode, floor)
    assert any("brokerRole" in warning and told in warning for warning in loaded.warnings) is bool(
        told
    )


def test_a_role_without_an_engine_changes_nothing() -> None:
    loaded = load_config(flags={"brokerRole": "ASYNC_MASTER", "totalReplicas": "3"})
    assert loaded.config.replication == ReplicaConfig()
    assert loaded.warnings == []


def test_a_secret_is_what_its_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("word\n")
    path.chmod(0o600)
    assert read_secret("haSecretFile", path) == b"word"
    loaded = load_config(flags={**ETCD, "haSecretFile": str(path)})
    assert loaded.warnings == []
    assert len(loaded.notes) == 1


def test_a_secret_that_everybody_reads_or_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("word")
    path.chmod(0o644)
    assert any("chmod 600" in each for each in replica(haSecretFile=str(path)).warnings())
    assert any("haSecretFile is not set" in each for each in replica().warnings())


@pytest.mark.parametrize("key", ["haSecretFile", "haEngineKeyFile"])
def test_a_secret_that_cannot_be_read_stops_the_start(tmp_path: Path, key: str) -> None:
    path = tmp_path / "secret"
    flags = {**ETCD, key: str(path)} | (
        {"haEngineCertFile": "x"} if key == "haEngineKeyFile" else {}
    )
    with pytest.raises(SettingError, match="cannot be read") as caught:
        load_config(flags=flags)
    assert caught.value.key == key
    path.write_text("\n")
    with pytest.raises(SettingError, match="empty"):
        load_config(flags=flags)


def test_tls_is_spoken_where_it_is_asked_for(tmp_path: Path) -> None:
    assert replica().engine_tls() is None
    assert replica(haEngine="etcds://h").engine_tls() is not None
    file = tmp_path / "pem"
    for key in ("haEngineCaFile", "haEngineCertFile"):
        texts = {key: str(file)} | ({"haEngineKeyFile": "/k"} if "Cert" in key else {})
        for content in (None, "no certificate"):
            if content:
                file.write_text(content)
            with pytest.raises(SettingError, match="PEM") as caught:
                replica(**texts).engine_tls()
            assert caught.value.key == key
        file.unlink()
