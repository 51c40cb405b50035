"""The broker in this process as routes show it: its topics where they are, less what it forbids."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.settings.config_file import build_config
from tests.support.peers import Clock


def embedded(root: Path, permission: int = 6, **settings: str) -> EmbeddedBroker:
    config = build_config(settings | {"storePathRootDir": str(root)})
    topics = TopicTable(root / "topics.json", config, now_ms=Clock())
    topics.seed_system_topics()
    topics.put(TopicConfig("orders", perm=6))
    return EmbeddedBroker(
        "C",
        "broker-a",
        "i",
        topics=topics,
        permission=lambda: permission,
        address_for=lambda connection: "here:1",
        may_have_group=lambda group: group == "known",
    )


def test_a_topic_is_found_once_it_exists(tmp_path: Path) -> None:
    broker = embedded(tmp_path)
    assert broker.find_topic("new") is None
    broker.table.put(TopicConfig("new"))
    found = broker.find_topic("new")
    assert found is not None
    assert found in list(broker.topics())


@pytest.mark.parametrize(("mode", "is_shown"), [("on-send", True), ("off", False)])
def test_the_pattern_of_new_topics_is_shown_where_sends_create_them(
    tmp_path: Path, mode: str, is_shown: bool
) -> None:
    broker = embedded(tmp_path, autoCreateTopic=mode)
    assert (broker.find_topic("TBW102") is not None) is is_shown


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("%RETRY%known", True),
        ("%RETRY%stranger", False),
        ("%RETRY%", False),
        ("%RETRY%no group!", False),
        ("known", False),
    ],
)
def test_a_retry_topic_is_shown_before_its_groups_first_heartbeat(
    tmp_path: Path, name: str, is_shown: bool
) -> None:
    topic = embedded(tmp_path).find_topic(name)
    assert (topic is not None) is is_shown
    if topic is not None:
        assert (topic.read_queue_nums, topic.write_queue_nums) == (1, 1)


@pytest.mark.parametrize(
    ("broker_perm", "topic_perm", "shown"), [(6, 6, 6), (4, 6, 4), (2, 6, 2), (6, 4, 4), (4, 2, 0)]
)
def test_what_the_broker_forbids_is_taken_from_its_topics(
    tmp_path: Path, broker_perm: int, topic_perm: int, shown: int
) -> None:
    broker = embedded(tmp_path, broker_perm)
    assert broker.perm_of(TopicConfig("orders", perm=topic_perm)) == shown
