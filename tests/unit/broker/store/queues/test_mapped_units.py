"""Units of a queue are in its files before they count, and are flushed, whatever happens."""

import errno
import os
from collections import deque
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import (
    CorruptFileError,
    DiskFullError,
    StoreFailedError,
)
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.unit_files import MappedUnits
from tests.support.open_files import open_files_in

FILE_SIZE = 100  # five units


def append(queue: ConsumeQueue, *offsets: int) -> None:
    """Append messages of 50 bytes, message n at n·100 of the log with tags code −n."""
    for offset in offsets:
        queue.append(offset, offset * 100, 50, -offset)


def files_of(queue: ConsumeQueue) -> list[str]:
    return sorted(os.listdir(queue.directory))


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    """Give an empty queue with five units to a file."""
    return ConsumeQueue(tmp_path / "T" / "0", "T", 0, FILE_SIZE)


def test_full_disk_changes_nothing_and_the_message_can_be_noted_later(
    queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(queue, *range(5))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "preallocate", full)
        for _ in range(2):
            with pytest.raises(DiskFullError, match="no room for a file of 100 bytes"):
                append(queue, 5)
    assert (queue.max_offset, queue.commit_log_end) == (5, 450)
    assert files_of(queue) == ["00000000000000000000"]
    append(queue, 5)
    assert queue.entry(5) == (500, 50, -5)


def test_a_file_has_room_step_by_step_and_a_full_disk_is_noticed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ConsumeQueue(tmp_path / "T" / "0", "T", 0, 20 * 300_000)
    append(queue, 0)
    (path,) = queue.directory.iterdir()
    assert path.stat().st_size == 20 * 300_000
    assert path.stat().st_blocks * 512 <= 1 << 16

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "reserve", full)
        with pytest.raises(DiskFullError, match=r"no room for more units in .*: free space"):
            append(queue, *range(1, 2000))
    reached = queue.max_offset
    assert 0 < reached * 20 <= path.stat().st_blocks * 512
    append(queue, *range(reached, 2000))
    assert queue.max_offset == 2000
    assert queue.entry(1999) == (199_900, 50, -1999)


def test_many_units_ask_for_room_as_often_as_the_queue_doubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    reserve = disk.reserve

    def counted(descriptor: int, start: int, end: int) -> None:
        asked.append(end)
        reserve(descriptor, start, end)

    monkeypatch.setattr(disk, "reserve", counted)
    one_by_one = ConsumeQueue(tmp_path / "a" / "0", "T", 0, 20 * 300_000)
    append(one_by_one, *range(5000))
    assert asked == [16_384, 32_768, 65_536, 131_072]
    asked.clear()
    at_once = ConsumeQueue(tmp_path / "b" / "0", "T", 0, 20 * 300_000)
    at_once.append_many(0, one_by_one.read_units(0, 5000), 5000, 499_950)
    assert asked == [16_384, 32_768, 65_536, 131_072]
    assert at_once.read_units(0, 5000) == one_by_one.read_units(0, 5000)
    assert (at_once.max_offset, at_once.commit_log_end) == (5000, 499_950)


def test_units_in_front_of_one_without_room_are_in_the_queue(
    queue: ConsumeQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(queue, *range(9))
    units = queue.read_units(0, 9)
    other = ConsumeQueue(tmp_path / "U" / "0", "U", 0, FILE_SIZE)
    append(other, 0)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "preallocate", full)
        with pytest.raises(DiskFullError):
            other.append_many(1, units[20:], 8, 850)
    assert (other.max_offset, other.commit_log_end) == (5, 450)
    other.append_many(5, units[100:], 4, 850)
    assert other.read_units(0, 9) == units
    assert (other.max_offset, other.commit_log_end) == (9, 850)


def test_file_that_cannot_be_mapped_is_not_left_empty(
    queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(queue, *range(5))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr("mmap.mmap", fail)
        with pytest.raises(OSError, match="Cannot allocate"):
            append(queue, 5)
    assert files_of(queue) == ["00000000000000000000"]
    append(queue, 5)
    assert queue.max_offset == 6


def test_file_cut_short_by_others_is_an_error_and_not_the_end_of_the_process(
    queue: ConsumeQueue,
) -> None:
    append(queue, *range(7))
    queue.flush()
    queue.release_if_idle()
    assert queue.release_if_idle()
    os.truncate(queue.directory / "00000000000000000000", 20)
    with pytest.raises(CorruptFileError, match="20 bytes long, not 100"):
        queue.read_units(0, 7)


def test_small_changes_wait_for_a_thorough_flush(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "T" / "0", "T", 0, 20 * 1024)
    append(queue, *range(300))
    assert not queue.flush(least_pages=2)
    assert queue.is_dirty
    append(queue, *range(300, 420))
    assert queue.flush(least_pages=2)
    assert not queue.is_dirty
    append(queue, 420)
    assert not queue.flush(least_pages=2)
    assert queue.flush()
    assert not queue.flush()


def test_full_file_is_flushed_however_small(queue: ConsumeQueue) -> None:
    append(queue, *range(5))
    assert queue.flush(least_pages=2)


def test_queue_reports_that_it_is_dirty_once_between_flushes(tmp_path: Path) -> None:
    reported: deque[MappedUnits] = deque()
    queue = ConsumeQueue(tmp_path / "T" / "0", "T", 0, FILE_SIZE, reported)
    append(queue, *range(12))
    assert list(reported) == [queue]
    queue.flush()
    append(queue, 12)
    assert list(reported) == [queue, queue]


def test_message_that_arrives_during_a_flush_keeps_the_queue_dirty(
    queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(queue, 0)
    sync_file = disk.sync_file

    def append_meanwhile(descriptor: int) -> None:
        sync_file(descriptor)
        append(queue, 1)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_file", append_meanwhile)
        queue.flush()
    assert queue.is_dirty
    assert queue.flush()


class BusyQueue(ConsumeQueue):
    """A queue to which the other thread appends just when the flush has looked at its end."""

    __slots__ = ("looks",)

    def _end_position(self) -> int:
        end = super()._end_position()
        self.looks = getattr(self, "looks", 0) + 1
        if self.looks == 2:
            append(self, self.max_offset)
        return end


def test_message_that_arrives_when_the_flush_begins_keeps_the_queue_dirty(tmp_path: Path) -> None:
    queue = BusyQueue(tmp_path / "T" / "0", "T", 0, FILE_SIZE)
    append(queue, 0)
    queue.flush()
    assert queue.max_offset == 2
    assert queue.is_dirty


def test_units_written_over_truncated_ones_are_flushed(queue: ConsumeQueue) -> None:
    append(queue, *range(7))
    queue.flush()
    queue.truncate_to(3)
    assert not queue.flush()
    append(queue, 3)
    assert queue.flush()


def test_failed_flush_is_final(queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    append(queue, 0)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_file", fail)
        with pytest.raises(StoreFailedError, match="Input/output error"):
            queue.flush()
    append(queue, 1)
    with pytest.raises(StoreFailedError):
        queue.flush()


def test_idle_queue_holds_no_descriptors_and_wakes_when_used(
    queue: ConsumeQueue, tmp_path: Path
) -> None:
    append(queue, *range(7))
    assert not queue.release_if_idle()
    assert open_files_in(tmp_path)
    queue.flush()
    assert queue.release_if_idle()
    assert not open_files_in(tmp_path)
    assert queue.entry(6) == (600, 50, -6)
    append(queue, 7)
    assert queue.entry(7) == (700, 50, -7)
    assert queue.entry(1) == (100, 50, -1)
