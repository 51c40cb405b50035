"""TopicTable: RocketMQ's file, creation by send and by look-up, restoring from queues."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables import topics as topics_module
from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.kernel.tables.topics import (
    QUEUE_COUNT_MAX,
    CatalogListener,
    TopicConfig,
    TopicTable,
    queue_directories,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol import fastjson
from tests.support.peers import Clock

# Printed by RocketMQ's own encoder (fastjson, pretty), with a time of ours.
ROCKETMQ_FILE = """\
{
	"dataVersion":{
		"counter":2,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"topicConfigTable":{
		"T2":{
			"attributes":{
				"message.type":"FIFO"
			},
			"order":false,
			"perm":6,
			"readQueueNums":16,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"T2",
			"topicSysFlag":0,
			"writeQueueNums":16
		},
		"TopicA":{
			"attributes":{},
			"order":false,
			"perm":6,
			"readQueueNums":16,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":16
		}
	}
}"""


def test_a_save_encodes_what_has_changed_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = table(tmp_path)
    for number in range(100):
        topics.put(TopicConfig(f"T{number}", attributes={"message.type": "FIFO"}))
    topics.save()
    encoded: list[str] = []
    to_json = TopicConfig.to_json

    def count(topic: TopicConfig) -> JsonObject:
        encoded.append(topic.name)
        return to_json(topic)

    monkeypatch.setattr(TopicConfig, "to_json", count)
    topics.delete("T7")
    topics.put(TopicConfig("new"))
    topics.save()
    assert encoded == ["new"]
    monkeypatch.undo()
    whole = {name: topic.to_json() for name, topic in topics.configs.items()}
    document = {"dataVersion": topics.version.to_json(), "topicConfigTable": whole}
    assert topics.path.read_text() == fastjson.dumps(document, pretty=True)


def table(tmp_path: Path, **settings: str) -> TopicTable:
    config = build_config(settings) if settings else BrokerConfig()
    topics = TopicTable(tmp_path / "config" / "topics.json", config, now_ms=Clock())
    topics.seed_system_topics()
    return topics


def test_the_file_is_rocketmqs_byte_for_byte(tmp_path: Path) -> None:
    topics = TopicTable(tmp_path / "topics.json", BrokerConfig(), now_ms=Clock())
    topics.put(TopicConfig("TopicA"))
    topics.put(TopicConfig("T2", attributes={"message.type": "FIFO"}))
    topics.save()
    assert (tmp_path / "topics.json").read_text().strip() == ROCKETMQ_FILE


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.put(
        TopicConfig("orders", read_queue_nums=3, perm=4, attributes={"queue.type": "BatchCQ"})
    )
    topics.save()
    again = TopicTable(topics.path, BrokerConfig())
    again.load()
    assert again.configs == topics.configs
    assert again.version == topics.version
    assert again.is_batch("orders")
    assert not again.is_batch("nothing")


def test_absent_fields_get_rocketmqs_defaults(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"topicConfigTable":{"old":{"topicName":"old","perm":2}}}')
    topics = TopicTable(path, BrokerConfig())
    topics.load()
    old = topics.get("old")
    assert old is not None
    assert (old.read_queue_nums, old.write_queue_nums, old.perm) == (16, 16, 2)
    assert (old.filter_type, old.sys_flag, old.order) == ("SINGLE_TAG", 0, False)
    assert old.is_writable
    assert not old.is_readable


def test_system_topics_are_there_and_known_as_such(tmp_path: Path) -> None:
    topics = table(tmp_path)
    schedule, default, cluster = map(
        topics.get, ("SCHEDULE_TOPIC_XXXX", "TBW102", "DefaultCluster")
    )
    assert schedule is not None
    assert schedule.read_queue_nums == 18
    assert default is not None
    assert (default.write_queue_nums, default.perm) == (8, 7)
    assert cluster is not None
    assert (cluster.write_queue_nums, cluster.perm) == (16, 7)
    assert "BenchmarkTest" not in topics
    assert all(topics.is_system(name) for name in topics.configs)
    assert topics.is_system("BenchmarkTest")
    assert topics.is_system("rmq_sys_anything")
    assert not topics.is_system("orders")
    assert "broker-a" in topics.system_topics()


def test_a_send_creates_a_topic_with_what_the_client_asks_for_up_to_the_default(
    tmp_path: Path,
) -> None:
    topics = table(tmp_path)
    orders = topics.create_on_send("orders", "TBW102", 4)
    assert orders is not None
    assert (orders.read_queue_nums, orders.write_queue_nums, orders.perm) == (4, 4, 6)
    many = topics.create_on_send("many", "TBW102", 100)
    assert many is not None
    assert many.write_queue_nums == 8
    none = topics.create_on_send("none", "TBW102", 0)
    assert none is not None
    assert none.write_queue_nums == 1
    assert topics.create_on_send("orders", "nowhere", 1) is orders


def test_a_send_creates_nothing_after_a_topic_without_the_inherit_permission(
    tmp_path: Path,
) -> None:
    topics = table(tmp_path)
    topics.put(TopicConfig("plain"))
    assert topics.create_on_send("orders", "plain", 4) is None
    assert topics.create_on_send("orders", "absent", 4) is None
    assert topics.create_on_send("or/ders", "TBW102", 4) is None
    assert "orders" not in topics


def test_creation_switched_off_makes_an_unknown_topic_an_error(tmp_path: Path) -> None:
    topics = table(tmp_path, autoCreateTopic="off")
    topics.put(TopicConfig("TBW102", perm=7))  # left over from when it was on
    assert topics.create_on_send("orders", "TBW102", 4) is None
    assert topics.create_on_lookup("orders") is None


def test_with_too_many_topics_none_is_made_on_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = table(tmp_path, autoCreateTopic="on-lookup")
    monkeypatch.setattr(topics_module, "MADE_ON_USE_MAX", len(topics.configs) + 1)
    assert topics.create_on_send("first", "TBW102", 4) is not None
    assert topics.create_on_send("second", "TBW102", 4) is None
    assert topics.create_on_lookup("third") is None
    topics.adopt("fourth", 4, 6)
    assert topics.get("fourth") is None
    topics.put(TopicConfig("an-administrators"))
    assert topics.create_on_send("first", "TBW102", 4) is not None
    topics.delete("first")
    topics.delete("an-administrators")
    assert topics.create_on_send("second", "TBW102", 4) is not None


def test_a_lookup_creates_a_topic_only_when_that_is_chosen(tmp_path: Path) -> None:
    assert table(tmp_path).create_on_lookup("orders") is None
    topics = table(tmp_path, autoCreateTopic="on-lookup")
    orders = topics.create_on_lookup("orders")
    assert orders is not None
    assert orders.write_queue_nums == 4
    assert topics.create_on_lookup("orders") is orders


@pytest.mark.parametrize(
    "name", ["%RETRY%billing", "rmq_sys_x", "TRANS_CHECK_MAX_TIME_TOPIC", "a b", ""]
)
def test_a_lookup_never_creates_what_is_not_the_users(tmp_path: Path, name: str) -> None:
    topics = table(tmp_path, autoCreateTopic="on-lookup")
    assert topics.create_on_lookup(name) is None
    assert name not in topics


def test_retry_and_dead_letter_topics_are_made_once(tmp_path: Path) -> None:
    topics = table(tmp_path)
    retry = topics.ensure_retry_topic("billing", 2)
    assert (retry.name, retry.read_queue_nums, retry.perm) == ("%RETRY%billing", 2, 6)
    assert topics.ensure_retry_topic("billing", 5) is retry
    dead = topics.ensure_dlq_topic("billing")
    assert (dead.name, dead.write_queue_nums, dead.perm) == ("%DLQ%billing", 1, 6)


class Heard(CatalogListener):
    def __init__(self) -> None:
        self.changes: list[tuple[str, bool]] = []

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        self.changes.append((name, topic is not None))


def test_listeners_hear_of_every_change_and_of_nothing_else(tmp_path: Path) -> None:
    topics = table(tmp_path)
    heard = Heard()
    topics.listeners.append(heard)
    counter = topics.version.counter
    assert topics.put(TopicConfig("orders"))
    assert not topics.put(TopicConfig("orders"))
    assert topics.delete("orders")
    assert not topics.delete("orders")
    topics.touch()
    assert heard.changes == [("orders", True), ("orders", False), ("", False)]
    assert topics.version.counter == counter + 3


def make_queue(root: Path, folder: str, topic: str, queue_id: str, *, file: bool = True) -> None:
    directory = root / folder / topic / queue_id
    directory.mkdir(parents=True)
    if file:
        (directory / "00000000000000000000").write_bytes(b"\0" * 20)


def test_queues_on_disk_bring_unknown_topics_back(tmp_path: Path) -> None:
    make_queue(tmp_path, "consumequeue", "orders", "0")
    make_queue(tmp_path, "consumequeue", "orders", "5")
    make_queue(tmp_path, "consumequeue", "orders", "notanumber")
    make_queue(tmp_path, "consumequeue", "orders", "9", file=False)
    make_queue(tmp_path, "batchconsumequeue", "batches", "1")
    make_queue(tmp_path, "consumequeue", "%LMQ%light", "0")
    make_queue(tmp_path, "consumequeue", "known", "7")
    make_queue(tmp_path, "consumequeue", "bad name", "0")
    make_queue(tmp_path, "consumequeue", "huge", str(QUEUE_COUNT_MAX))
    topics = table(tmp_path)
    topics.put(TopicConfig("known", read_queue_nums=2, write_queue_nums=2))
    restored = topics.restore_from_queue_directories(queue_directories(StoreLayout(tmp_path)))
    assert restored == ["batches", "orders"]
    orders, batches, known = map(topics.get, ("orders", "batches", "known"))
    assert orders is not None
    assert (orders.read_queue_nums, orders.write_queue_nums, orders.is_batch) == (6, 6, False)
    assert batches is not None
    assert (batches.read_queue_nums, batches.is_batch) == (2, True)
    assert known is not None
    assert known.read_queue_nums == 2


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({}, {"orders": 4, "wide": 6, "%RETRY%group": 1}),
        ({"defaultTopicQueueNums": "2"}, {"orders": 2, "wide": 6, "%RETRY%group": 1}),
        ({"autoCreateTopic": "off"}, {"orders": 1, "wide": 6, "%RETRY%group": 1}),
    ],
)
def test_a_topic_that_a_kill_let_the_table_forget_has_the_queues_that_clients_know_of(
    settings: dict[str, str], counts: dict[str, int], tmp_path: Path
) -> None:
    make_queue(tmp_path, "consumequeue", "orders", "0")
    make_queue(tmp_path, "consumequeue", "wide", "5")
    make_queue(tmp_path, "consumequeue", "%RETRY%group", "0")
    topics = table(tmp_path, **settings)
    topics.restore_from_queue_directories(queue_directories(StoreLayout(tmp_path)))
    assert {name: topics.configs[name].write_queue_nums for name in counts} == counts
    assert {name: topics.configs[name].read_queue_nums for name in counts} == counts


def test_the_queues_of_a_known_topic_are_not_looked_at(tmp_path: Path) -> None:
    make_queue(tmp_path, "consumequeue", "known", "1")
    make_queue(tmp_path, "consumequeue", "orders", "0")
    found = queue_directories(StoreLayout(tmp_path), known={"known": 1})
    assert list(found) == [("orders", 0, False)]


def test_a_store_without_queues_restores_nothing(tmp_path: Path) -> None:
    assert list(queue_directories(StoreLayout(tmp_path))) == []
