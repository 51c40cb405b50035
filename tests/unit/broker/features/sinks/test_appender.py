"""BatchAppender: which messages of a batch get into the log, where, and how far it has come."""

import errno
import struct
import zlib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.sinks import appender as appending
from rockhopper.broker.features.sinks.appender import BatchAppender
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import DiskFullError, StoreError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkRun, encode_sink_body
from rockhopper.protocol.message_ids import UniqueIds
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.open_stores import STORE_HOST, Stores, bodies, messages, put
from tests.support.peers import Clock

BATCH = "ab12:7"


class Appends:
    """An appender, its store and topics, and parts to append."""

    def __init__(self, stores: Stores, root: Path) -> None:
        clock = Clock()
        self.store: MessageStore = stores.open(commit_log_file_size_bytes=1 << 16)
        self.topics = TopicTable(root / "topics.json", BrokerConfig(), now_ms=clock)
        self.stats = BrokerStats(now_ms=clock)
        self.later: list[str] = []
        self.topic("TopicA")
        self.appender = BatchAppender(
            self.store,
            self.topics,
            self.stats,
            self.redirect,
            UniqueIds(b"\x7f\0\0\1", clock),
            store_host=STORE_HOST,
            suffix=b"CLUSTER\x01c\x02",
        )
        self._root = root

    def topic(self, name: str, queues: int = 3, **attributes: str) -> None:
        self.topics.put(
            TopicConfig(
                name, read_queue_nums=queues, write_queue_nums=queues, attributes=attributes
            )
        )

    def redirect(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        if "DELAY" in properties:
            self.later.append(topic)
            return "Later", 0
        return topic, queue_id

    def part(self, *sent: SinkMessage | SinkRun) -> Path:
        path = self._root / f"{len(list(self._root.glob('*.part')))}.part"
        data = encode_sink_body(list(sent))
        path.write_bytes(struct.pack(">IIII", len(data), zlib.crc32(data), 0, len(sent)) + data)
        return path

    def append(self, *parts: Path, start: int = 0) -> list[int]:
        return list(self.appender.append(BATCH, list(parts), start))


@pytest.fixture
def appends(tmp_path: Path) -> "Appends":
    stores = Stores(tmp_path)
    return Appends(stores, tmp_path)


def message(
    body: str, topic: str = "TopicA", queue_id: int = 0, properties: str = ""
) -> SinkMessage:
    return SinkMessage(topic, queue_id, 5, 1234, properties, body.encode())


def run(texts: str, topic: str = "TopicA", queue_id: int = 0, properties: str = "") -> SinkRun:
    batch = [(5, text.encode(), f"UNIQ_KEY\x01K{text}\x02{properties}".encode()) for text in texts]
    return SinkRun(topic, queue_id, 1234, encode_batch(batch))


def test_a_run_is_stored_as_its_messages_would_be(appends: Appends) -> None:
    assert appends.append(appends.part(message("x", properties="UNIQ_KEY\x01X"), run("ab"))) == [3]
    assert bodies(appends.store) == [], "they are on hold"
    appends.store.visibility.release()
    assert bodies(appends.store) == [b"x", b"a", b"b"]
    _, first, second = messages(appends.store)
    assert (first.flag, first.born_time_ms, first.queue_offset) == (5, 1234, 1)
    mark = {"CLUSTER": "c", "RH_SINK": f"{BATCH}:1+"}
    assert first.properties == {"UNIQ_KEY": "Ka"} | mark
    assert second.properties == {"UNIQ_KEY": "Kb"} | mark
    assert appends.stats.get_send_traffic("TopicA").messages == 3


def test_a_run_without_a_queue_goes_to_one(appends: Appends) -> None:
    appends.append(appends.part(message("x"), run("abc", queue_id=-1), run("de", queue_id=-1)))
    appends.store.visibility.release()
    found = [bodies(appends.store, queue_id=queue_id) for queue_id in range(3)]
    assert found == [[b"x"], [b"a", b"b", b"c", b"d", b"e"], []]


@pytest.mark.parametrize("properties", ["DELAY\x013\x02", "INNER_NUM\x011\x02"])
def test_a_run_that_is_not_plain_is_stored_message_by_message(
    appends: Appends, properties: str
) -> None:
    assert appends.append(appends.part(run("ab", properties=properties))) == [2]
    appends.store.visibility.release()
    topic = "Later" if "DELAY" in properties else "TopicA"
    marks = [each.properties["RH_SINK"] for each in messages(appends.store, topic)]
    assert marks == [f"{BATCH}:0", f"{BATCH}:1"]


def test_a_run_for_a_topic_with_attributes_is_stored_message_by_message(appends: Appends) -> None:
    appends.topic("Typed", 3, **{"message.type": "NORMAL"})
    appends.append(appends.part(run("ab", "Typed")))
    appends.store.visibility.release()
    assert bodies(appends.store, "Typed") == [b"a", b"b"]


def test_a_run_that_no_file_of_the_log_can_hold_is_stored_message_by_message(
    appends: Appends,
) -> None:
    large = [(0, bytes(20_000), f"UNIQ_KEY\x01K{number}".encode()) for number in range(4)]
    whole = SinkRun("TopicA", 0, 1234, encode_batch(large))
    assert appends.append(appends.part(whole)) == [4]
    appends.store.visibility.release()
    assert [len(body) for body in bodies(appends.store)] == [20_000] * 4


def test_a_run_that_a_full_disk_cuts_in_its_midst_is_stored_once(
    appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [(0, bytes(20_000), f"UNIQ_KEY\x01K{number}".encode()) for number in range(4)]
    part = appends.part(message("x"), SinkRun("TopicA", 0, 1234, encode_batch(large)))
    steps = appends.appender.append(BATCH, [part], 0)
    with monkeypatch.context() as full:

        def no_room(_queue: MappedFileQueue) -> None:
            raise OSError(errno.ENOSPC, "no room")

        full.setattr(MappedFileQueue, "create_next", no_room)
        assert next(steps) == 4
        assert bodies(appends.store) == [], "they are on hold"
        with pytest.raises(DiskFullError):
            next(steps)
    assert appends.append(part, start=4) == [5]
    appends.store.visibility.release()
    marks = [each.properties["RH_SINK"] for each in messages(appends.store)]
    assert marks == [f"{BATCH}:{number}" for number in range(5)]


def test_a_run_that_was_cut_off_goes_on_behind_what_the_log_has(appends: Appends) -> None:
    start = appends.store.log.written_offset
    part = appends.part(message("x"), run("abcd"), run("ef"))
    steps = appends.appender.append(BATCH, [appends.part(message("x"), run("ab"))], 0)
    assert next(steps) == 3
    assert appends.appender.count_appended(BATCH, start) == 3
    assert appends.append(part, start=3) == [7]
    appends.store.visibility.release()
    assert bodies(appends.store) == [b"x", b"a", b"b", b"c", b"d", b"e", b"f"]
    assert appends.appender.count_appended(BATCH, start) == 7


def test_a_full_disk_says_how_far_it_has_come_with_runs(
    appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "FIRST_OF_QUEUE_COUNT", 0)
    monkeypatch.setattr(appending, "SLICE_COUNT_MAX", 2)
    part = appends.part(run("ab"), run("c"), run("de"))
    steps = appends.appender.append(BATCH, [part], 0)
    assert next(steps) == 2
    appends.store.retention.space.full_reason = "the disk is full"
    assert next(steps) == 2
    with pytest.raises(DiskFullError, match="full"):
        next(steps)
    appends.store.retention.space.full_reason = None
    assert appends.append(part, start=2) == [2, 5, 5]
    appends.store.visibility.release()
    assert bodies(appends.store) == [b"a", b"b", b"c", b"d", b"e"]


def test_messages_are_marked_with_their_batch_and_number(appends: Appends) -> None:
    part = appends.part(message("a", properties="UNIQ_KEY\x01K\x02TAGS\x01t"), message("b"))
    assert appends.append(part) == [2]
    assert bodies(appends.store) == [], "they are on hold"
    appends.store.visibility.release()
    first, second = messages(appends.store)
    assert (first.flag, first.born_time_ms) == (5, 1234)
    assert first.properties == {
        "UNIQ_KEY": "K",
        "TAGS": "t",
        "CLUSTER": "c",
        "RH_SINK": f"{BATCH}:0",
    }
    assert len(second.properties["UNIQ_KEY"]) == 32
    assert second.properties["RH_SINK"] == f"{BATCH}:1"
    assert appends.stats.get_send_traffic("TopicA").messages == 2
    assert appends.stats.get_send_traffic("TopicA").bytes == first.size_bytes + second.size_bytes


def test_messages_without_a_queue_take_turns_over_all_parts(appends: Appends) -> None:
    first = appends.part(message("a", queue_id=-1), message("b", queue_id=-1))
    second = appends.part(message("c", queue_id=-1), message("d", queue_id=-1), message("e"))
    assert appends.append(first, second) == [5]
    appends.store.visibility.release()
    found = [bodies(appends.store, queue_id=queue_id) for queue_id in range(3)]
    assert found == [[b"a", b"d", b"e"], [b"b"], [b"c"]]


def test_what_the_log_has_is_counted_and_not_appended_again(appends: Appends) -> None:
    part = appends.part(*(message(text) for text in "abc"))
    start = appends.store.log.written_offset
    assert appends.appender.count_appended(BATCH, start) == 0
    assert appends.append(part, start=1) == [3]
    assert appends.appender.count_appended(BATCH, start) == 3
    assert appends.appender.count_appended("ab12:8", start) == 0
    put(appends.store, properties=f"RH_SINK\x01{BATCH}:9x\x02")
    assert appends.appender.count_appended(BATCH, start) == 3
    appends.store.visibility.release()
    assert bodies(appends.store) == [b"b", b"c", b"hello"]
    assert appends.append(part, start=3) == [3]


def test_slices_end_by_count_and_by_bytes(
    appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = appends.part(*(message(text) for text in "abcdefg"))
    monkeypatch.setattr(appending, "FIRST_OF_QUEUE_COUNT", 0)
    monkeypatch.setattr(appending, "SLICE_COUNT_MAX", 3)
    assert appends.append(part) == [3, 6, 7]
    assert appends.append(part, start=5) == [5, 6, 7]
    monkeypatch.setattr(appending, "SLICE_COUNT_MAX", 100)
    monkeypatch.setattr(appending, "SLICE_BYTES_MAX", 2)
    assert appends.append(part) == [2, 4, 6, 7]


def test_a_first_message_of_a_queue_counts_for_many(
    appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "FIRST_OF_QUEUE_COUNT", 2)
    monkeypatch.setattr(appending, "SLICE_COUNT_MAX", 3)
    part = appends.part(*(message(text, queue_id=-1) for text in "abcd"))
    assert appends.append(part) == [1, 2, 3, 4]


def test_messages_of_topics_that_are_gone_are_dropped_and_named(appends: Appends) -> None:
    appends.topic("Again")
    appends.appender.deleted.add("Again")
    part = appends.part(
        message("a", "Gone"), message("b"), message("c", "Again"), message("d", "Gone")
    )
    assert appends.appender.missing({"TopicA", "Gone", "Again", "Absent"}) == ["Absent", "Gone"]
    with capture_logs() as logs:
        assert appends.append(part) == [4]
    assert [dict(entry["topics"]) for entry in logs] == [{"Gone": 2, "Again": 1}]
    appends.store.visibility.release()
    assert bodies(appends.store) == [b"b"]
    assert bodies(appends.store, "Again") == []


def test_what_is_wanted_later_waits_where_it_is_redirected(appends: Appends) -> None:
    appends.append(appends.part(message("a", properties="DELAY\x013\x02"), message("b")))
    appends.store.visibility.release()
    assert appends.later == ["TopicA"]
    (waiting,) = messages(appends.store, "Later")
    assert (waiting.body, waiting.properties["RH_SINK"]) == (b"a", f"{BATCH}:0")
    assert waiting.properties["CLUSTER"] == "c"
    assert bodies(appends.store) == [b"b"]


def test_a_full_disk_says_how_far_it_has_come(
    appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "FIRST_OF_QUEUE_COUNT", 0)
    monkeypatch.setattr(appending, "SLICE_COUNT_MAX", 2)
    part = appends.part(*(message(text) for text in "abcde"))
    steps = appends.appender.append(BATCH, [part], 0)
    assert next(steps) == 2
    appends.store.retention.space.full_reason = "the disk is full"
    assert next(steps) == 2
    with pytest.raises(DiskFullError, match="full"):
        next(steps)
    appends.store.retention.space.full_reason = None
    assert appends.append(part, start=2) == [2, 4, 5]
    appends.store.visibility.release()
    assert bodies(appends.store) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_part_that_cannot_be_read_keeps_what_was_staged(appends: Appends, tmp_path: Path) -> None:
    steps = appends.appender.append(
        BATCH, [appends.part(message("a"), message("b")), tmp_path / "nothing.part"], 0
    )
    assert next(steps) == 2
    with pytest.raises((OSError, StoreError)):
        next(steps)
    appends.store.visibility.release()
    assert bodies(appends.store) == [b"a", b"b"]
