"""RocketMQ's keys without effect: none of them means something here, and no promise is dropped."""

import pytest

from rockhopper.broker.settings.broker_config import AuthConfig, BrokerConfig
from rockhopper.broker.settings.config_file import load_config
from rockhopper.broker.settings.live_settings import LIVE_PARTS
from rockhopper.broker.settings.nameserver_config import NameServiceConfig
from rockhopper.broker.settings.replica_config import ReplicaConfig
from rockhopper.broker.settings.rocketmq_keys import REFUSED, WITHOUT_EFFECT
from rockhopper.broker.settings.setting_fields import SettingError, settings_of
from rockhopper.broker.settings.store_config import StoreConfig


def test_no_setting_of_ours_is_among_them() -> None:
    ours = {
        known.key
        for config in (
            AuthConfig,
            BrokerConfig,
            *LIVE_PARTS,
            NameServiceConfig,
            ReplicaConfig,
            StoreConfig,
        )
        for _, known in settings_of(config)
    }
    assert ours & WITHOUT_EFFECT.keys() == set()
    assert ours & REFUSED.keys() == set()


def test_what_promises_safety_is_refused_and_not_passed_over() -> None:
    assert {"aclEnable", "migrateAuthFromV1Enabled"} <= REFUSED.keys()
    assert REFUSED.keys() & WITHOUT_EFFECT.keys() == set()
    assert all(len(advice) > 20 for advice in REFUSED.values())


def test_keys_are_words() -> None:
    assert all(key.isidentifier() for key in WITHOUT_EFFECT)
    assert len(WITHOUT_EFFECT) > 500


@pytest.mark.parametrize(
    ("key", "about"),
    [
        ("storeType", "RocksDB"),
        ("configManagerVersion", "RocksDB"),
        ("timerRocksDBEnable", "RocksDB"),
        ("minLiteTTl", "lite topics"),
        ("dLegerGroup", "haEngine"),
        ("reviveQueueNum", "journal"),
        ("grpcServerPort", "grpcPort"),
        ("enableCompaction", "compaction"),
        ("userCacheMaxNum", "users.json"),
        ("sendMessageThreadPoolNums", "one event loop"),
    ],
)
def test_each_says_what_it_is_about(key: str, about: str) -> None:
    assert about in WITHOUT_EFFECT[key]
    assert load_config(None, {}, {key: "1"}).warnings == []


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_promise_that_is_refused_may_be_switched_off(key: str) -> None:
    load_config(None, {}, {key: "false"})
    with pytest.raises(SettingError, match=key):
        load_config(None, {}, {key: "true"})
