"""BrokerConfig and StoreConfig: RocketMQ's keys, sensible defaults, nonsense refused."""

import dataclasses
import inspect

import pytest

from rockhopper.broker.settings.advertise import AdvertiseRule
from rockhopper.broker.settings.broker_config import (
    BrokerConfig,
    FlushDiskType,
    NameServiceConfig,
    StoreConfig,
)
from rockhopper.broker.settings.config_file import build_config, properties_of
from rockhopper.broker.settings.live_settings import (
    LIVE_PARTS,
    AutoCreateTopic,
)
from rockhopper.broker.settings.setting_fields import SettingError, settings_of


def test_defaults_differ_from_rocketmq_only_where_the_design_says() -> None:
    config = BrokerConfig()
    assert (config.listen_port, config.namesrv_port, config.http_port) == (10911, 9876, 9464)
    assert config.bind_address == "127.0.0.1"
    assert not config.remote_admin
    assert config.store.flush_disk_type is FlushDiskType.ASYNC
    assert config.store.commit_log_file_size_bytes == 1 << 30
    assert config.live.auto_create_topic is AutoCreateTopic.ON_SEND


def test_every_setting_has_a_key_of_its_own_and_a_docstring() -> None:
    keys = []
    for part in (StoreConfig, NameServiceConfig, BrokerConfig, *LIVE_PARTS):
        source = inspect.getsource(part)
        for field, known in settings_of(part):
            keys.append(known.key)
            declaration = source[source.index(f"    {field.name}: ") :]
            after = declaration[: declaration.index('"""')]
            assert after.count("setting(") == 1, f"{field.name} has no docstring"
    assert len(keys) == len(set(keys))


def test_what_is_printed_builds_the_same_configuration() -> None:
    config = build_config(
        {
            "advertise": "10.0.0.0/8=broker.internal:10911,gateway=127.0.0.1:10911",
            "namesrvAddr": "a:9876;b:9876",
            "autoCreateTopic": "on-lookup",
            "flushDiskType": "SYNC_FLUSH",
            "storePathRootDir": "/var/lib/rockhopper",
            "traceOn": "false",
        }
    )
    assert build_config(properties_of(config)) == config


def test_advertise_rules_are_parsed() -> None:
    config = build_config({"advertise": "10.0.0.0/8=host:1, any=self"})
    assert config.advertise == (AdvertiseRule("10.0.0.0/8", "host:1"), AdvertiseRule("any", "self"))


def test_queue_file_sizes_are_rounded_up_to_whole_units() -> None:
    config = build_config(
        {"mappedFileSizeConsumeQueue": "21", "mapperFileSizeBatchConsumeQueue": "47"}
    )
    assert config.store.consume_queue_file_size_bytes == 40
    assert config.store.batch_consume_queue_file_size_bytes == 92


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "65536"),
        ("listenPort", "ten"),
        ("listenPort", "-1"),
        ("brokerId", "1"),
        ("brokerRole", "SLAVE"),
        ("brokerName", ""),
        ("brokerName", "a b"),
        ("brokerClusterName", "../x"),
        ("flushDiskType", "MAYBE"),
        ("flushIntervalCommitLog", "0"),
        ("deleteWhen", "24"),
        ("deleteWhen", "noon"),
        ("traceOn", "perhaps"),
        ("autoCreateTopic", "sometimes"),
        ("autoCreateTopicEnable", "sometimes"),
        ("namesrvAddr", "nowhere"),
        ("namesrvAddr", "host:0"),
        ("advertise", "10.0.0.0/8"),
        ("advertise", "10.0.0.0/8=host:70000"),
        ("advertise", "everywhere=host:1"),
        ("storePathRootDir", ""),
        ("storePathCommitLog", "/a,/b"),
        ("messageDelayLevel", "1s soon"),
        ("mappedFileSizeCommitLog", "100"),
        ("maxMessageSize", "0"),
    ],
)
def test_nonsense_is_refused_by_name_and_value(key: str, value: str) -> None:
    with pytest.raises(SettingError) as caught:
        build_config({key: value})
    assert caught.value.key == key
    assert str(caught.value).startswith(f"setting {key}=")
    assert "\n" not in str(caught.value)


def test_a_configuration_cannot_be_changed_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerConfig().listen_port = 1  # type: ignore[misc]
