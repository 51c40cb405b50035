"""Plain records in runs: what their queues and the index get, and which records are not plain."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest

from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store import fast_walking, walking
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from rockhopper.protocol.store.walking import TIMED_KEY
from tests.support.records import encode_message

BASE = 1 << 30
RED = 112785  # "red".hashCode() in Java
Walk = Callable[..., walking.Found]


@pytest.fixture(params=["in Python", "as it is used"])
def walk(request: pytest.FixtureRequest) -> Walk:
    return walking.walk_plain if request.param == "in Python" else fast_walking.walk_plain


class Log:
    """Records back to back."""

    def __init__(self) -> None:
        self.data = b""
        self.starts: list[int] = []

    def add(self, **fields: Any) -> "Log":
        number = len(self.starts)
        given = {
            "topic": "a",
            "queue_offset": number,
            "body": b"body",
            "store_time_ms": 1000 + number,
            "commit_log_offset": BASE + len(self.data),
            **fields,
        }
        self.starts.append(len(self.data))
        self.data += encode_message(**given)
        return self

    def walked(self, walk: Walk, position: int = 0, end: int | None = None) -> walking.Found:
        return walk(self.data, position, len(self.data) if end is None else end, BASE, True)


def test_messages_of_one_queue_are_one_run(walk: Walk) -> None:
    log = Log().add(properties={"TAGS": "red"}).add().add(queue_id=1, queue_offset=9)
    log.add(queue_offset=2)
    position, count, store_time_ms, runs, keys = log.walked(walk)
    assert (position, count, store_time_ms, keys) == (len(log.data), 4, 1003, b"")
    first, second = runs
    ends = [*log.starts[1:], len(log.data)]
    sizes = [end - start for start, end in zip(log.starts, ends, strict=True)]
    units = [
        CONSUME_QUEUE_UNIT.pack(BASE + log.starts[n], sizes[n], RED if n == 0 else 0)
        for n in (0, 1, 3)
    ]
    assert first == ("a", 0, 0, 3, b"".join(units), BASE, BASE + len(log.data), 1003)
    assert second[:4] == ("a", 1, 9, 1)
    assert second[5:] == (BASE + log.starts[2], BASE + log.starts[3], 1002)


def test_a_queue_that_leaves_offsets_out_has_several(walk: Walk) -> None:
    log = Log().add().add().add(queue_offset=5).add(queue_offset=6).add(queue_offset=6)
    assert [run[2:4] for run in log.walked(walk)[3]] == [(0, 2), (5, 2), (6, 1)]


def test_keys_come_with_their_times_in_the_order_of_the_log(walk: Walk) -> None:
    log = Log().add(properties={"KEYS": " k1  k2", "UNIQ_KEY": "U"}, topic="b")
    log.add(properties={"KEYS": "k1"})
    assert list(TIMED_KEY.iter_unpack(log.walked(walk)[4])) == [
        (index_key_hash("b", "U"), BASE, 1000),
        (index_key_hash("b", "k1"), BASE, 1000),
        (index_key_hash("b", "k2"), BASE, 1000),
        (index_key_hash("a", "k1"), BASE + log.starts[1], 1001),
    ]


def test_a_walk_begins_and_ends_where_it_is_told(walk: Walk) -> None:
    log = Log().add().add().add()
    assert log.walked(walk, log.starts[1], log.starts[2])[:3] == (log.starts[2], 1, 1001)
    assert log.walked(walk, 0, 1)[:2] == (log.starts[1], 1)
    assert log.walked(walk, 0, 0) == (0, 0, 0, [], b"")
    assert log.walked(walk, len(log.data)) == (len(log.data), 0, 0, [], b"")


@pytest.mark.parametrize(
    "fields",
    [
        {"sys_flag": 0x4},
        {"sys_flag": 0xC},
        {"sys_flag": 0x80},
        {"sys_flag": 0x10, "born_host": bytes(20)},
        {"sys_flag": 0x20, "store_host": bytes(20)},
        {"topic": "t" * 128},
        {"topic": "größe"},
        {"topic": "a/b"},
        {"topic": ".."},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "%LMQ%x"},
        {"properties": {"TAGS": "größe"}},
        {"properties": {"INNER_MULTI_DISPATCH": "%LMQ%x"}},
        {"properties": b"KEYS\x01k\0"},
        {"store_time_ms": 0},
        {"queue_id": -1},
        {"queue_offset": -1},
        {"commit_log_offset": 0},
    ],
    ids=str,
)
def test_it_stops_in_front_of_what_is_not_plain(walk: Walk, fields: dict[str, Any]) -> None:
    log = Log().add().add(**fields).add()
    assert log.walked(walk)[:3] == (log.starts[1], 1, 1000)


@pytest.mark.parametrize("flag", [0x0, 0x1, 0x8, 0x100])
def test_whatever_else_the_flags_say_is_plain(walk: Walk, flag: int) -> None:
    assert Log().add(sys_flag=flag).walked(walk)[1] == 1


def test_a_body_is_compared_with_its_crc_unless_that_is_not_wanted(walk: Walk) -> None:
    log = Log().add()
    log.data = log.data.replace(b"body", b"bodi")
    assert log.walked(walk)[1] == 0
    assert walk(log.data, 0, len(log.data), BASE, False)[1] == 1


@pytest.mark.parametrize(("change", "count"), [(0, 1), (1, 0)])
def test_a_record_is_compared_with_a_crc_of_its_own(walk: Walk, change: int, count: int) -> None:
    log = Log().add(properties="KEYS\x01k\x02__CRC32#\x010000000000\x02")
    crc = (crc32(log.data[:-20]) & 0x7FFFFFFF) + change
    log.data = log.data[:-11] + str(crc)[::-1].ljust(10, "0").encode() + b"\x02"
    assert log.walked(walk)[1] == count


def test_every_cut_ends_the_walk_in_front_of_the_record(walk: Walk) -> None:
    log = Log().add().add(properties={"KEYS": "k"})
    for size in range(log.starts[1], len(log.data)):
        found = walk(log.data[:size], 0, size, BASE, True)
        assert found[:2] == (log.starts[1], 1)


@pytest.mark.parametrize("whole_end", [walking.whole_end, fast_walking.whole_end])
def test_what_is_whole_ends_with_the_last_record_that_is(
    whole_end: Callable[[bytes, int, int], int],
) -> None:
    log = Log().add().add(topic="b")
    first, second = log.starts[1], len(log.data)
    blank = BLANK_RECORD.pack(20, MAGIC_BLANK)
    data = log.data + blank + bytes(12)
    assert whole_end(data, 0, first - 1) == 0
    assert whole_end(data, 0, first + 7) == first
    assert whole_end(data, first, second + 19) == second
    assert whole_end(data, 0, len(data)) == len(data)
    assert whole_end(data + b"no record", 0, len(data) + 9) == len(data)
