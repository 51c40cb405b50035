"""The compiled walk over plain records finds what the Python one finds, in any bytes."""

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rockhopper.protocol.store import walking
from tests.support.records import encode_message

compiled = pytest.importorskip(
    "rockhopper.protocol.store._walking", reason="installed without a compiler"
)

V6_HOST = b"\0" * 15 + b"\1\0\0\x2a\x9f"
PROPERTIES = [
    b"",
    b"UNIQ_KEY\x01AB12\x02KEYS\x01k1  k2 \x02TAGS\x01red\x02",
    b"KEYS\x01k1\x02KEYS\x01k2",
    b"TAGS\x01\x02KEYS\x01a\x01b\x02\x02UNIQ_KEY",
    b"XKEYS\x01k\x02TAGS\x01" + b"long" * 40 + b"\x02",
    "TAGS\x01größe\x02".encode(),
    b"INNER_MULTI_DISPATCH\x01%LMQ%x\x02INNER_MULTI_QUEUE_OFFSET\x013\x02",
    b"a\x01INNER_MULTI_DISPATCH\x01",
    b"KEYS\x01k\x02\0",
    b"__CRC32#\x010123456789\x02",
    b"KEYS\x01k\x02__CRC32#\x010123456789\x02",
]
TOPICS = [
    "a",
    "b",
    "t" * 127,
    "t" * 128,
    "größe",
    "..",
    "a/b",
    "a\0",
    "%LMQ%x",
    "SCHEDULE_TOPIC_XXXX",
]
FLAGS = [0, 0, 0, 0x1, 0x8, 0x4, 0xC, 0x80, 0x10]


def record(at: int, topic: str, flag: int, **fields: Any) -> bytes:
    host = V6_HOST if flag & 0x10 else bytes(8)
    given: dict[str, Any] = {
        "topic": topic,
        "sys_flag": flag,
        "born_host": host,
        "commit_log_offset": at,
    }
    return encode_message(**given, **fields)


RECORDS = st.fixed_dictionaries(
    {
        "topic": st.one_of(st.sampled_from(TOPICS[:2]), st.sampled_from(TOPICS)),
        "flag": st.sampled_from(FLAGS),
        "body": st.binary(max_size=80),
        "properties": st.one_of(st.sampled_from(PROPERTIES[:5]), st.sampled_from(PROPERTIES)),
        "queue_id": st.sampled_from([0, 0, 1, 2**31 - 1, -1]),
        "queue_offset": st.sampled_from([0, 1, 2, 3, 7, 2**62, -1]),
        "store_time_ms": st.sampled_from([1, 1_760_000_000_000, 2**63 - 1, 0]),
    }
)


def same(log: bytes, position: int, end: int, base_offset: int, check_crc: bool) -> walking.Found:
    found: walking.Found = compiled.walk_plain(log, position, end, base_offset, check_crc)
    assert found == walking.walk_plain(log, position, end, base_offset, check_crc)
    return found


@given(
    records=st.lists(RECORDS, max_size=8),
    base_offset=st.sampled_from([0, 4096, 2**60]),
    flips=st.lists(st.integers(0, 2**14), max_size=2),
    end=st.integers(0, 2000),
    check_crc=st.booleans(),
)
def test_any_log_is_walked_alike(
    records: list[dict[str, Any]],
    base_offset: int,
    flips: list[int],
    end: int,
    check_crc: bool,
) -> None:
    log = bytearray()
    for fields in records:
        log += record(base_offset + len(log), **fields)
    for flip in flips:
        if log:
            log[(flip >> 3) % len(log)] ^= 1 << (flip & 7)
    same(bytes(log), 0, end, base_offset, check_crc)
    same(bytes(log[:end]), 0, end, base_offset, check_crc)


@given(
    sizes=st.lists(st.sampled_from([8, 91, 92, 300]), max_size=8),
    magics=st.lists(st.sampled_from([0xDAA320A7, 0xDAA320AB, 0xCBD43194, 0]), min_size=8),
    cut=st.integers(0, 400),
    position=st.sampled_from([0, 0, 91]),
)
def test_the_end_of_what_is_whole_is_the_same(
    sizes: list[int], magics: list[int], cut: int, position: int
) -> None:
    log = b"".join(
        struct.pack(">II", size, magic).ljust(size, b"x")
        for size, magic in zip(sizes, magics, strict=False)
    )
    end = max(0, len(log) - cut)
    for data in (log, log[:end]):
        found = compiled.whole_end(data, position, end)
        assert found == walking.whole_end(data, position, end)
        assert found <= max(position, end)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=60))
@example([(number, 0) for number in range(400)] * 2)
def test_many_queues_are_told_apart(places: list[tuple[int, int]]) -> None:
    log = b""
    next_offsets: dict[tuple[int, int], int] = {}
    for topic, queue_id in places:
        offset = next_offsets.get((topic, queue_id), 0)
        next_offsets[topic, queue_id] = offset + 1
        fields: dict[str, Any] = {"queue_id": queue_id, "queue_offset": offset, "store_time_ms": 5}
        log += record(len(log), f"topic-{topic}", 0, **fields)
    found = same(log, 0, len(log), 0, True)
    assert found[:2] == (len(log), len(places))
    assert {(run[0], run[1]): run[3] for run in found[3]} == {
        (f"topic-{topic}", queue_id): count for (topic, queue_id), count in next_offsets.items()
    }


@pytest.mark.parametrize("base_offset", [-1, 2**63])
def test_offsets_that_no_log_has_are_refused(base_offset: int) -> None:
    with pytest.raises(OverflowError):
        compiled.walk_plain(b"", 0, 0, base_offset, True)


def test_positions_that_no_log_has_are_refused() -> None:
    with pytest.raises(OverflowError):
        compiled.whole_end(b"", -1, 0)
