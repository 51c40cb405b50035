"""walk: records by their sizes alone, why a walk ends, and where one begins again."""

import struct

import numpy as np
import pytest

from rockhopper.pipeline.decoder.walk import Stop, are_in_row, is_record, resync, walk
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK, MAGIC_V1
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH
from tests.support.records import encode_message

BASE = 4096


def log(*sizes: int, topic: str = "T") -> tuple[bytes, list[int]]:
    """Records with bodies of *sizes*, and where each starts."""
    data, starts = b"", []
    for size in sizes:
        starts.append(len(data))
        data += encode_message(topic=topic, body=b"b" * size, commit_log_offset=BASE + len(data))
    return data, starts


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0],
        [5, 5, 5],
        [7] * 40,
        [7] * 1000,
        [*range(60)],
        [*[3] * 12, 9, *[3] * 300, *range(40), *[5] * 9],
    ],
)
def test_every_record_is_found_whatever_sizes_follow_each_other(sizes: list[int]) -> None:
    data, starts = log(*sizes)
    found = walk(data, 0, len(data))
    assert found.offsets.tolist() == starts
    assert (found.end, found.problem, found.stop) == (len(data), None, Stop.END)


def test_many_records_in_a_row_are_known_as_well() -> None:
    records = [encode_message(topic="T", queue_offset=at, body=bytes(at)) for at in range(100)]
    found = np.cumsum([0, *map(len, records)])[:-1]
    assert are_in_row(b"".join(records), found, 0, 100)
    records[50] = encode_message(topic="T", queue_offset=49, body=bytes(50))
    assert not are_in_row(b"".join(records), found, 0, 100)
    records[50] = encode_message(
        topic="T", queue_offset=50, body=bytes(50), sys_flag=SYS_FLAG_INNER_BATCH
    )
    assert not are_in_row(b"".join(records), found, 0, 100)


def test_records_in_a_row_have_just_the_queue_offsets_of_a_range() -> None:
    data, starts = b"", []
    for queue_offset in (4, 5, 6):
        starts.append(len(data))
        data += encode_message(topic="T", queue_offset=queue_offset)
    found = np.array(starts, np.int64)
    assert are_in_row(data, found, 4, 7)
    assert not are_in_row(data, found, 3, 6)
    assert not are_in_row(data, found, 4, 8)
    assert not are_in_row(data, found[[0, 2]], 4, 6)
    assert are_in_row(b"", found[:0], 4, 4)
    batch = encode_message(topic="T", queue_offset=4, sys_flag=SYS_FLAG_INNER_BATCH)
    assert not are_in_row(batch, found[:1], 4, 5)


@pytest.mark.parametrize("sizes", [[7] * 50, [*range(50)]])
def test_a_walk_ends_behind_the_last_record_that_begins_in_front_of_its_end(
    sizes: list[int],
) -> None:
    data, starts = log(*sizes)
    for number in (1, 10, 20, 49):
        found = walk(data, 0, starts[number])
        assert found.offsets.tolist() == starts[:number]
        found = walk(data, 0, starts[number] + 1)
        assert found.offsets.tolist() == starts[: number + 1]


def test_a_magic_in_a_body_is_no_record() -> None:
    inner = encode_message(topic="T", body=b"inside", commit_log_offset=7)
    data = b"".join(
        encode_message(topic="T", body=inner * (number % 3), commit_log_offset=0)
        for number in range(60)
    )
    assert len(walk(data, 0, len(data)).offsets) == 60


@pytest.mark.parametrize(
    ("tail", "moves_on", "stop", "problem"),
    [
        (bytes(64), 0, Stop.ZEROS, None),
        (bytes(3), 0, Stop.ZEROS, None),
        (BLANK_RECORD.pack(64, MAGIC_BLANK) + bytes(56), 64, Stop.BLANK, None),
        (b"\1\2\3", 0, Stop.CUT, "3 bytes are too few"),
        (b"\0\0\0\x64garbage!" * 20, 0, Stop.BAD, "0x67617262 is not the magic"),
        (BLANK_RECORD.pack(90, MAGIC_V1) + bytes(200), 0, Stop.BAD, "cannot have 90 bytes"),
        (BLANK_RECORD.pack(500, MAGIC_V1) + bytes(200), 0, Stop.CUT, "500 bytes where 208 are"),
    ],
)
def test_a_walk_says_why_it_stopped(
    tail: bytes, moves_on: int, stop: Stop, problem: str | None
) -> None:
    data, starts = log(5, 6)
    found = walk(data + tail, 0, len(data + tail))
    assert found.offsets.tolist() == starts
    assert found.end == len(data) + moves_on
    assert found.stop is stop
    assert (found.problem is None) == (problem is None)
    assert problem is None or problem in (found.problem or "")


def test_the_next_record_behind_damage_is_found_and_an_inner_one_is_not() -> None:
    inner = encode_message(topic="T", body=b"inside", commit_log_offset=7)
    data, starts = log(5, 6, 7)
    damaged = inner + b"\xff" * (starts[2] - len(inner)) + data[starts[2] :]
    assert resync(damaged, 0, len(damaged), BASE) == starts[2]
    assert resync(damaged, 0, starts[2], BASE) == -1
    assert resync(memoryview(damaged), 0, len(damaged), BASE) == starts[2]
    assert resync(inner, 0, len(inner), BASE) == -1


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"\0\0\0\x10"),  # too small a size
        (7, b"\0"),  # no magic
        (12, b"\xff"),  # a negative queue id
        (20, b"\xff"),  # a negative queue offset
        (28, b"\1"),  # another place
        (84, b"\x7f\xff\xff\xff"),  # a body beyond the record
        (84, b"\0\0\0\0"),  # sizes that do not add up
    ],
)
def test_what_does_not_add_up_is_no_record(at: int, value: bytes) -> None:
    data, _ = log(20, topic="topic")
    assert is_record(data, 0, BASE)
    assert not is_record(data[:at] + value + data[at + len(value) :], 0, BASE)


def test_of_a_record_beyond_the_buffer_the_head_decides() -> None:
    data, _ = log(200)
    assert is_record(data[:120], 0, BASE)
    assert not is_record(data[:80], 0, BASE)
    assert not is_record(data[:28] + struct.pack(">q", 5) + data[36:120], 0, BASE)
