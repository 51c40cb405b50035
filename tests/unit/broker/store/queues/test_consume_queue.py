"""ConsumeQueue: units are where their offset says, and nowhere else, whatever happens."""

import os
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import (
    QueueConflictError,
    QueueGapError,
)
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue

FILE_SIZE = 100  # five units
# What RocketMQ wrote for the first three messages of a queue, all tagged TagA.
ROCKETMQ_UNITS = bytes.fromhex(
    "0000000000000000 000000f0 000000000027a807"
    "00000000000001e1 000000f2 000000000027a807"
    "00000000000003c6 000000f4 000000000027a807"
)
ROCKETMQ_ENTRIES = [(0, 0xF0, 0x27A807), (0x1E1, 0xF2, 0x27A807), (0x3C6, 0xF4, 0x27A807)]
ROCKETMQ_BLANK_UNIT = bytes.fromhex("0000000000000000 7fffffff 0000000000000000")


def new_queue(directory: Path, file_size_bytes: int = FILE_SIZE) -> ConsumeQueue:
    return ConsumeQueue(directory / "T" / "0", "T", 0, file_size_bytes)


def append(queue: ConsumeQueue, *offsets: int) -> None:
    """Append messages of 50 bytes, message n at n·100 of the log with tags code −n."""
    for offset in offsets:
        queue.append(offset, offset * 100, 50, -offset)


def files_of(queue: ConsumeQueue) -> list[str]:
    return sorted(os.listdir(queue.directory)) if queue.directory.exists() else []


def first_bytes(queue: ConsumeQueue, count: int) -> bytes:
    return (queue.directory / files_of(queue)[0]).read_bytes()[:count]


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    """Give an empty queue with five units to a file."""
    return new_queue(tmp_path)


def test_units_are_written_as_rocketmq_writes_them(queue: ConsumeQueue) -> None:
    for offset, entry in enumerate(ROCKETMQ_ENTRIES):
        queue.append(offset, *entry)
    assert first_bytes(queue, 100) == ROCKETMQ_UNITS + bytes(40)
    assert queue.read_units(0, 3) == ROCKETMQ_UNITS


def test_delivery_time_is_kept_as_tags_code(queue: ConsumeQueue) -> None:
    queue.append(0, 0x2C0, 0xAD, 0x1A1F84612AB)
    assert first_bytes(queue, 20) == bytes.fromhex("00000000000002c0 000000ad 000001a1f84612ab")


def test_queue_that_starts_later_is_filled_up_with_rocketmqs_blank_units(
    queue: ConsumeQueue,
) -> None:
    append(queue, 8)
    assert files_of(queue) == ["00000000000000000100"]
    assert first_bytes(queue, 60) == ROCKETMQ_BLANK_UNIT * 3
    assert (queue.min_offset, queue.max_offset) == (8, 9)
    assert queue.entry(8) == (800, 50, -8)
    assert queue.read_units(7, 1) == b""


def test_queue_without_messages_has_no_files(queue: ConsumeQueue) -> None:
    assert queue.read_units(0, 10) == b""
    assert queue.entry(0) is None
    assert not queue.flush()
    queue.correct_min_offset(1000)
    assert queue.delete_expired(1000) == 0
    queue.truncate_to_commit_log(0)
    assert not queue.directory.exists()
    assert (queue.min_offset, queue.max_offset, queue.commit_log_end) == (0, 0, -1)


def test_a_file_is_made_only_for_the_unit_that_needs_it(queue: ConsumeQueue) -> None:
    append(queue, *range(5))
    assert files_of(queue) == ["00000000000000000000"]
    append(queue, 5)
    assert files_of(queue) == ["00000000000000000000", "00000000000000000100"]
    assert (queue.min_offset, queue.max_offset, queue.commit_log_end) == (0, 6, 550)


def test_units_are_read_across_files(queue: ConsumeQueue) -> None:
    append(queue, *range(13))
    units = queue.read_units(3, 9)
    assert units == b"".join(queue.read_units(number, 1) for number in range(3, 12))
    assert len(units) == 9 * 20


def test_reading_ends_with_the_queue(queue: ConsumeQueue) -> None:
    append(queue, *range(13))
    assert len(queue.read_units(11, 100)) == 2 * 20
    assert queue.read_units(13, 1) == b""
    assert queue.read_units(-1, 1) == b""


def test_noting_a_message_again_changes_nothing(queue: ConsumeQueue) -> None:
    append(queue, *range(7))
    queue.flush()
    before = queue.read_units(0, 7)
    append(queue, *range(7))
    assert not queue.is_dirty
    assert queue.read_units(0, 7) == before
    assert (queue.max_offset, queue.commit_log_end) == (7, 650)


def test_gap_is_refused_and_changes_nothing(queue: ConsumeQueue) -> None:
    append(queue, 0, 1)
    with pytest.raises(
        QueueGapError, match="ends at offset 2, but the next entry has offset 4"
    ) as caught:
        append(queue, 4)
    assert (caught.value.expected_offset, caught.value.given_offset) == (2, 4)
    assert (queue.max_offset, queue.commit_log_end) == (2, 150)
    append(queue, 2)


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**62])
def test_impossible_offset_is_refused(offset: int, queue: ConsumeQueue) -> None:
    with pytest.raises(QueueGapError):
        queue.append(offset, 0, 50, 0)
    assert files_of(queue) == []


def test_another_message_at_the_same_offset_is_refused(queue: ConsumeQueue) -> None:
    append(queue, 0, 1, 2)
    with pytest.raises(QueueConflictError, match=r"offset 1 .* at 100 .* not the one at 777"):
        queue.append(1, 777, 50, 0)
    assert queue.entry(1) == (100, 50, -1)


@pytest.mark.parametrize("damage", [bytes(20), bytes(8) + b"\xff" * 12, b"\xff" * 20])
def test_lost_or_damaged_unit_is_mended_when_noted_again(
    damage: bytes, queue: ConsumeQueue
) -> None:
    append(queue, *range(7))
    path = queue.directory / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[40:60] = damage
    path.write_bytes(content)
    queue.flush()
    append(queue, 2)
    assert queue.entry(2) == (200, 50, -2)
    assert queue.is_dirty
    assert queue.flush()


def test_packed_units_are_appended_at_once(queue: ConsumeQueue) -> None:
    queue.append_many(0, ROCKETMQ_UNITS, 3, 0x3C6 + 0xF4)
    assert queue.read_units(0, 3) == ROCKETMQ_UNITS
    assert (queue.max_offset, queue.commit_log_end) == (3, 0x3C6 + 0xF4)
    assert queue.is_dirty


def test_packed_units_may_cross_files_and_repeat_what_is_there(tmp_path: Path) -> None:
    one_by_one = new_queue(tmp_path / "a")
    append(one_by_one, *range(13))
    at_once = new_queue(tmp_path / "b")
    append(at_once, *range(4))
    at_once.append_many(2, one_by_one.read_units(2, 11), 11, 1250)
    assert at_once.read_units(0, 13) == one_by_one.read_units(0, 13)
    assert (at_once.max_offset, at_once.commit_log_end) == (13, 1250)


def test_packed_units_fill_the_mapped_file_exactly(queue: ConsumeQueue) -> None:
    append(queue, 0)
    other = ROCKETMQ_UNITS[20:] * 2
    queue.append_many(1, other, 4, 0x3C6 + 0xF4)
    assert queue.read_units(1, 4) == other
    assert files_of(queue) == ["00000000000000000000"]


# Looking up by time; message n was stored at the n-th of these times.

TIMES = [10, 20, 20, 20, 30, 40, 40, 50]


def offset_at(
    queue: ConsumeQueue, time_ms: int, upper: bool, times: list[int] | None = None
) -> int:
    known = TIMES if times is None else times
    return queue.offset_by_time(time_ms, upper, lambda position, size: known[position // 100])


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [
        (5, 0, 0),
        (10, 0, 0),
        (15, 1, 0),
        (20, 1, 3),
        (25, 4, 3),
        (40, 5, 6),
        (45, 7, 6),
        (50, 7, 7),
        (55, 8, 7),
    ],
)
def test_lookup_by_time(time_ms: int, lower: int, upper: int, queue: ConsumeQueue) -> None:
    append(queue, *range(8))
    assert offset_at(queue, time_ms, upper=False) == lower
    assert offset_at(queue, time_ms, upper=True) == upper


def test_lookup_by_time_in_an_empty_queue_gives_its_start(queue: ConsumeQueue) -> None:
    assert offset_at(queue, 5, upper=False) == 0
    assert offset_at(queue, 5, upper=True) == 0


def test_lookup_by_time_stays_within_what_the_log_has(queue: ConsumeQueue) -> None:
    append(queue, *range(8))
    queue.correct_min_offset(300)
    assert offset_at(queue, 5, upper=False) == 3
    assert offset_at(queue, 5, upper=True) == 3


@pytest.mark.parametrize("broken", range(8))
def test_lookup_by_time_steps_over_a_record_that_cannot_be_read(
    broken: int, queue: ConsumeQueue
) -> None:
    append(queue, *range(8))
    times = [-1 if number == broken else time_ms for number, time_ms in enumerate(TIMES)]
    for time_ms in range(5, 61, 5):
        readable = [number for number in range(8) if times[number] >= time_ms]
        # Of an unreadable last message nobody knows: it may be what was asked for.
        end = 7 if broken == 7 else 8
        assert offset_at(queue, time_ms, upper=False, times=times) == min(readable, default=end)


def test_messages_that_the_log_has_just_deleted_are_passed_over(queue: ConsumeQueue) -> None:
    append(queue, *range(8))
    times = [-1, -1, -1, -1, *TIMES[4:]]
    assert offset_at(queue, 5, upper=False, times=times) == 4
    assert offset_at(queue, 99, upper=False, times=times) == 8


def test_a_mended_unit_says_where_the_queue_ends_if_it_is_the_last(queue: ConsumeQueue) -> None:
    append(queue, 0, 1, 2)
    queue.repair(1, (110, 40, 7))
    assert queue.commit_log_end == 250
    queue.repair(2, (210, 60, 8))
    assert queue.commit_log_end == 270
    queue.repair(3, (300, 60, 8))
    queue.repair(-1, (0, 60, 8))
    assert [queue.entry(offset) for offset in (0, 1, 2)] == [(0, 50, 0), (110, 40, 7), (210, 60, 8)]
    assert queue.max_offset == 3


# What is gone from the log.


def test_min_offset_follows_the_log(queue: ConsumeQueue) -> None:
    append(queue, *range(13))
    for commit_log_min, expected in [(0, 0), (1, 1), (100, 1), (650, 7), (600, 7), (1200, 12)]:
        queue.correct_min_offset(commit_log_min)
        assert queue.min_offset == expected


def test_queue_whose_messages_are_all_gone_is_empty_at_its_end(queue: ConsumeQueue) -> None:
    append(queue, *range(13))
    queue.correct_min_offset(5000)
    assert (queue.min_offset, queue.max_offset) == (13, 13)
    queue.append(13, 6000, 50, 0)
    assert (queue.min_offset, queue.max_offset) == (13, 14)


def test_files_go_when_all_their_messages_are_gone_but_never_the_last(queue: ConsumeQueue) -> None:
    append(queue, *range(13))
    assert queue.delete_expired(400) == 0
    assert queue.min_offset == 4
    assert queue.delete_expired(401) == 1
    assert queue.min_offset == 5
    assert queue.delete_expired(9999) == 1
    assert files_of(queue) == ["00000000000000000200"]
    assert (queue.min_offset, queue.max_offset) == (13, 13)


def test_next_file_begins_at_a_multiple_of_its_units(queue: ConsumeQueue) -> None:
    assert [queue.next_file_offset(offset) for offset in (0, 4, 5, 12)] == [5, 5, 10, 15]


def test_destroyed_queue_leaves_nothing_and_starts_anew(queue: ConsumeQueue) -> None:
    append(queue, *range(13))
    queue.destroy()
    assert not queue.directory.exists()
    assert (queue.min_offset, queue.max_offset, queue.commit_log_end) == (0, 0, -1)
    append(queue, 3)
    assert (queue.min_offset, queue.max_offset) == (3, 4)
