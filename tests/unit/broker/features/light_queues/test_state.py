"""LightQueueState: topics and groups that exist without being created."""

from pathlib import Path

import pytest

from rockhopper.broker.features.light_queues.state import LightQueueState
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.settings.config_file import build_config
from tests.support.peers import Clock

LONG = "%LMQ%" + "a" * 200


def tables(tmp_path: Path, **settings: str) -> tuple[TopicTable, SubscriptionGroupTable]:
    config = build_config(settings)
    topics = TopicTable(tmp_path / "topics.json", config, now_ms=Clock())
    groups = SubscriptionGroupTable(tmp_path / "groups.json", config, now_ms=Clock())
    LightQueueState().attach(topics, groups)
    return topics, groups


def test_a_light_queue_is_a_topic_with_one_queue_that_is_not_stored(tmp_path: Path) -> None:
    topics, groups = tables(tmp_path, enableLmq="true")
    topic, group = topics.get("%LMQ%a"), groups.get("%LMQ%a")
    assert topic == TopicConfig("%LMQ%a", read_queue_nums=1, write_queue_nums=1)
    assert group == SubscriptionGroup("%LMQ%a")
    assert topics.get("%LMQ%a") is topic
    assert (topics.get("%LMQ%a/b"), groups.get("%LMQ%")) == (None, None)
    assert not topics.put(TopicConfig("%LMQ%a"))
    assert not groups.put(SubscriptionGroup("%LMQ%a"))
    assert (topics.configs, groups.groups) == ({}, {})
    assert topics.put(TopicConfig("orders"))
    assert groups.put(SubscriptionGroup("readers"))
    assert topics.get("orders") is topics.configs["orders"]
    assert groups.get("readers") is groups.groups["readers"]


def test_without_the_setting_there_is_none(tmp_path: Path) -> None:
    topics, groups = tables(tmp_path)
    assert (topics.get("%LMQ%a"), groups.get("%LMQ%a")) == (None, None)
    assert topics.put(TopicConfig("%LMQ%a"))
    assert groups.put(SubscriptionGroup("%LMQ%a"))


@pytest.mark.parametrize(("setting", "is_sent"), [("true", True), ("false", False)])
def test_longer_names_are_for_queues_into_which_messages_are_dispatched(
    tmp_path: Path, setting: str, is_sent: bool
) -> None:
    topics, _ = tables(tmp_path, enableLmq="true", enableMultiDispatch=setting)
    assert (topics.send_error(LONG) is None) is is_sent
    assert topics.send_error("orders") is None
    assert topics.send_error("a/b") is not None
