"""BatchConsumeQueue: records of several messages, found by any of their offsets."""

import os
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import QueueConflictError, QueueGapError
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.protocol.store.queue_layout import BATCH_CONSUME_QUEUE_UNIT

FILE_SIZE = 138  # three units
LOG_END = 1 << 20
# What RocketMQ wrote for batches of three and two messages and a single one.
ROCKETMQ_UNITS = bytes.fromhex(
    "0000000000000568 00000125 0000000000000000 000001a1f845ebad 0000000000000000 0003 ffffffff"
    "00000000"
    "000000000000068d 000000f1 0000000000000000 000001a1f845ebb2 0000000000000003 0002 ffffffff"
    "00000000"
    "000000000000077e 00000081 0000000000000000 000001a1f845ebb3 0000000000000005 0001 ffffffff"
    "00000000"
)


def new_queue(directory: Path) -> BatchConsumeQueue:
    return BatchConsumeQueue(directory / "T" / "0", "T", 0, FILE_SIZE)


def append(queue: BatchConsumeQueue, *numbers: int, start: int = 0) -> None:
    """Append records of two messages: the n-th at n·100 of the log, stored at n·10 ms."""
    for number in numbers:
        queue.append(start + 2 * number, number * 100, 50, -number, 2, number * 10)


def recovered(queue: BatchConsumeQueue, commit_log_max: int = LOG_END) -> BatchConsumeQueue:
    queue.close()
    again = BatchConsumeQueue(queue.directory, "T", 0, FILE_SIZE)
    again.load()
    again.recover(commit_log_max)
    return again


def state(queue: BatchConsumeQueue) -> tuple[int, int, int]:
    return queue.min_offset, queue.max_offset, queue.commit_log_end


@pytest.fixture
def queue(tmp_path: Path) -> BatchConsumeQueue:
    """Give an empty queue with three units to a file."""
    return new_queue(tmp_path)


def test_units_are_written_as_rocketmq_writes_them(queue: BatchConsumeQueue) -> None:
    queue.append(0, 0x568, 0x125, 0, 3, 0x1A1F845EBAD)
    queue.append(3, 0x68D, 0xF1, 0, 2, 0x1A1F845EBB2)
    queue.append(5, 0x77E, 0x81, 0, 1, 0x1A1F845EBB3)
    assert (queue.directory / "00000000000000000000").read_bytes() == ROCKETMQ_UNITS
    assert state(queue) == (0, 6, 0x77E + 0x81)


def test_message_is_found_by_any_offset_of_its_record(queue: BatchConsumeQueue) -> None:
    queue.append(0, 0, 50, 0, 3, 0)
    queue.append(3, 100, 50, 0, 2, 0)
    queue.append(5, 200, 50, 0, 1, 0)
    queue.append(6, 300, 50, 0, 4, 0)
    found = [(queue.entry(offset) or (-1,))[0] for offset in range(-1, 11)]
    assert found == [-1, 0, 0, 0, 100, 100, 200, 300, 300, 300, 300, -1]


def test_units_are_read_from_the_record_of_the_offset_on_and_across_files(
    queue: BatchConsumeQueue,
) -> None:
    append(queue, *range(7))
    units = list(BATCH_CONSUME_QUEUE_UNIT.iter_unpack(queue.read_units(3, 4)))
    assert [unit[0] for unit in units] == [100, 200, 300, 400]
    assert len(queue.read_units(11, 99)) == 2 * 46


def test_queue_may_start_at_any_offset(queue: BatchConsumeQueue) -> None:
    append(queue, *range(2), start=40)
    assert state(queue) == (40, 44, 150)
    assert os.listdir(queue.directory) == ["00000000000000000000"]
    assert queue.read_units(39, 1) == b""


def test_noting_a_record_again_changes_nothing(queue: BatchConsumeQueue) -> None:
    append(queue, *range(5))
    append(queue, *range(5))
    assert state(queue) == (0, 10, 450)


def test_gap_and_conflict_are_refused(queue: BatchConsumeQueue) -> None:
    append(queue, *range(3))
    with pytest.raises(QueueGapError, match="ends at offset 6, but the next entry has offset 8"):
        append(queue, 4)
    with pytest.raises(QueueConflictError, match="offset 2"):
        queue.append(2, 777, 50, 0, 2, 0)
    assert state(queue) == (0, 6, 250)


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_all_units_are_found_again(count: int, queue: BatchConsumeQueue) -> None:
    append(queue, *range(count), start=7)
    again = recovered(queue)
    assert state(again) == (7, 7 + 2 * count, count * 100 - 50)
    append(again, count, start=7)
    assert again.max_offset == 9 + 2 * count
    entry = again.entry(8 + 2 * count)
    assert entry is not None
    assert entry[0] == count * 100


@pytest.mark.parametrize(
    "damage",
    [
        bytes(46),
        BATCH_CONSUME_QUEUE_UNIT.pack(200, 50, 0, 0, 4, 0, -1, 0),
        BATCH_CONSUME_QUEUE_UNIT.pack(200, 50, 0, 0, -4, 2, -1, 0),
        BATCH_CONSUME_QUEUE_UNIT.pack(200, 50, 0, 0, 3, 2, -1, 0),
        BATCH_CONSUME_QUEUE_UNIT.pack(100, 50, 0, 0, 4, 2, -1, 0),
        BATCH_CONSUME_QUEUE_UNIT.pack(200, 0x7FFFFFFF, 0, 0, 4, 2, -1, 0),
    ],
)
def test_everything_behind_a_damaged_unit_is_left_to_the_log(
    damage: bytes, queue: BatchConsumeQueue
) -> None:
    append(queue, *range(5))
    queue.close()
    path = queue.directory / "00000000000000000000"
    path.write_bytes(path.read_bytes()[:92] + damage)
    again = recovered(queue, 1 << 40)
    assert state(again) == (0, 4, 150)
    append(again, *range(2, 5))
    assert state(again) == (0, 10, 450)


def test_units_of_records_that_were_cut_from_the_log_go(queue: BatchConsumeQueue) -> None:
    append(queue, *range(5))
    assert state(recovered(queue, 350)) == (0, 8, 350)
    again = recovered(queue)
    again.truncate_to_commit_log(150)
    assert state(again) == (0, 4, 150)
    again.truncate_to(3)
    assert state(again) == (0, 2, 50)
    again.truncate_to_commit_log(0)
    assert state(again) == (0, 0, -1)
    assert not queue.directory.exists()


def test_min_offset_follows_the_log_and_files_go(queue: BatchConsumeQueue) -> None:
    append(queue, *range(7))
    queue.correct_min_offset(101)
    assert queue.min_offset == 4
    assert queue.delete_expired(401) == 1
    assert queue.min_offset == 10
    assert queue.delete_expired(9999) == 1
    assert (queue.min_offset, queue.max_offset) == (14, 14)
    assert os.listdir(queue.directory) == ["00000000000000000276"]
    append(queue, 7)
    assert (queue.min_offset, queue.max_offset) == (14, 16)
    assert state(recovered(queue)) == (12, 16, 750)


def test_destroyed_queue_leaves_nothing_and_starts_anew(queue: BatchConsumeQueue) -> None:
    append(queue, *range(5))
    queue.correct_min_offset(300)
    queue.destroy()
    assert not queue.directory.exists()
    append(queue, *range(2), start=3)
    assert state(queue) == (3, 7, 150)
    assert len(queue.read_units(3, 99)) == 2 * 46


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"), [(-1, 0, 0), (0, 0, 0), (15, 4, 2), (40, 8, 8), (41, 10, 8)]
)
def test_lookup_by_time(time_ms: int, lower: int, upper: int, queue: BatchConsumeQueue) -> None:
    append(queue, *range(5))
    assert queue.offset_by_time(time_ms, upper=False) == lower
    assert queue.offset_by_time(time_ms, upper=True) == upper


def test_lookup_by_time_in_an_empty_queue_gives_its_start(queue: BatchConsumeQueue) -> None:
    assert queue.offset_by_time(5, upper=False) == 0
    assert queue.offset_by_time(5, upper=True) == 0
