"""Recovery of consume queues: what a crash, RocketMQ or a bad disk may have left in the files."""

import os
from pathlib import Path

import pytest

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.protocol.store.queue_layout import BLANK_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from tests.support.open_files import open_files_in

FILE_SIZE = 100  # five units
LOG_END = 1 << 20


def unit(offset: int) -> bytes:
    """Message n: 50 bytes at n·100 of the log."""
    return CONSUME_QUEUE_UNIT.pack(offset * 100, 50, -offset)


def units(*offsets: int) -> bytes:
    return b"".join(map(unit, offsets))


def write_queue(directory: Path, *contents: bytes, first: int = 0) -> Path:
    """Make a queue of files with these contents, each filled up with zeros."""
    queue_directory = directory / "T" / "0"
    queue_directory.mkdir(parents=True)
    for number, content in enumerate(contents, first):
        path = queue_directory / f"{number * FILE_SIZE:020d}"
        path.write_bytes(content.ljust(FILE_SIZE, b"\0"))
    return queue_directory


def recovered(
    directory: Path, commit_log_max: int = LOG_END, trusted_below: int = 0
) -> ConsumeQueue:
    queue = ConsumeQueue(directory, "T", 0, FILE_SIZE)
    queue.load()
    queue.recover(commit_log_max, trusted_below)
    return queue


def state(queue: ConsumeQueue) -> tuple[int, int, int]:
    return queue.min_offset, queue.max_offset, queue.commit_log_end


BOTH_WAYS = pytest.mark.parametrize("trusted_below", [0, LOG_END], ids=["crash", "clean"])


@BOTH_WAYS
@pytest.mark.parametrize("count", [1, 4, 5, 6, 23])
def test_all_units_are_found_again(count: int, trusted_below: int, tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "T" / "0", "T", 0, FILE_SIZE)
    for offset in range(count):
        queue.append(offset, offset * 100, 50, -offset)
    queue.close()
    again = recovered(queue.directory, trusted_below=trusted_below)
    assert state(again) == (0, count, count * 100 - 50)
    assert again.read_units(0, count) == units(*range(count))
    again.append(count, count * 100, 50, -count)
    assert again.entry(count) == (count * 100, 50, -count)


@BOTH_WAYS
def test_file_of_zeros_holds_no_phantom_and_is_deleted(trusted_below: int, tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(*range(5)), b"", b"")
    assert state(recovered(directory, trusted_below=trusted_below)) == (0, 5, 450)
    assert os.listdir(directory) == ["00000000000000000000"]


@BOTH_WAYS
def test_queue_of_nothing_but_zeros_is_empty_and_loses_its_directory(
    trusted_below: int, tmp_path: Path
) -> None:
    directory = write_queue(tmp_path, b"")
    assert state(recovered(directory, trusted_below=trusted_below)) == (0, 0, -1)
    assert not directory.exists()


@BOTH_WAYS
def test_blank_units_in_front_are_not_messages(trusted_below: int, tmp_path: Path) -> None:
    directory = write_queue(tmp_path, BLANK_CONSUME_QUEUE_UNIT * 3 + units(8), first=1)
    assert state(recovered(directory, trusted_below=trusted_below)) == (8, 9, 850)


@BOTH_WAYS
def test_blank_units_alone_say_nothing_about_the_log(trusted_below: int, tmp_path: Path) -> None:
    directory = write_queue(tmp_path, BLANK_CONSUME_QUEUE_UNIT * 3)
    assert state(recovered(directory, trusted_below=trusted_below)) == (0, 0, -1)
    assert not directory.exists()


@BOTH_WAYS
def test_blank_unit_behind_a_message_ends_the_queue(trusted_below: int, tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(0, 1) + BLANK_CONSUME_QUEUE_UNIT + units(3))
    assert state(recovered(directory, trusted_below=trusted_below)) == (0, 2, 150)


@BOTH_WAYS
@pytest.mark.parametrize("behind", [b"", units(2, 3)])
def test_size_of_a_blank_unit_is_no_size_of_a_message(
    behind: bytes, trusted_below: int, tmp_path: Path
) -> None:
    damaged = CONSUME_QUEUE_UNIT.pack(100, 0x7FFFFFFF, 0)
    directory = write_queue(tmp_path, units(0) + damaged + behind)
    assert state(recovered(directory, 1 << 40, trusted_below)) == (0, 1, 50)


@BOTH_WAYS
def test_units_beyond_the_log_are_cut_and_their_bytes_zeroed(
    trusted_below: int, tmp_path: Path
) -> None:
    directory = write_queue(tmp_path, units(*range(5)), units(*range(5, 10)))
    queue = recovered(directory, 750, min(trusted_below, 750))
    assert state(queue) == (0, 8, 750)
    assert (directory / "00000000000000000100").read_bytes() == units(5, 6, 7) + bytes(40)


@BOTH_WAYS
def test_record_that_ends_beyond_the_log_does_not_count(trusted_below: int, tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(*range(5)))
    assert state(recovered(directory, 449, min(trusted_below, 449))) == (0, 4, 350)


@BOTH_WAYS
def test_stale_units_behind_a_cut_are_dropped(trusted_below: int, tmp_path: Path) -> None:
    grown_again = [CONSUME_QUEUE_UNIT.pack(position, 50, 0) for position in (1000, 1100)]
    directory = write_queue(tmp_path, units(0, 1) + b"".join(grown_again) + units(4))
    assert state(recovered(directory, trusted_below=trusted_below)) == (0, 4, 1150)
    assert (directory / "00000000000000000000").read_bytes()[80:] == bytes(20)


def test_repeated_commit_log_offset_ends_the_queue(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(0, 1, 1, 3))
    assert state(recovered(directory)) == (0, 2, 150)


@pytest.mark.parametrize(
    "damage",
    [
        bytes(20),
        CONSUME_QUEUE_UNIT.pack(-700, 50, 0),
        CONSUME_QUEUE_UNIT.pack(700, 0, 0),
        CONSUME_QUEUE_UNIT.pack(700, -50, 0),
        CONSUME_QUEUE_UNIT.pack(1 << 60, 50, 0),
        CONSUME_QUEUE_UNIT.pack(10, 50, 0),
    ],
)
@pytest.mark.parametrize("place", [3, 4, 5, 9, 13])
def test_everything_behind_a_damaged_unit_is_left_to_the_log(
    place: int, damage: bytes, tmp_path: Path
) -> None:
    content = bytearray(units(*range(14)))
    content[place * 20 : place * 20 + 20] = damage
    directory = write_queue(
        tmp_path, *(bytes(content[start : start + 100]) for start in (0, 100, 200))
    )
    queue = recovered(directory)
    assert state(queue) == (0, place, place * 100 - 50)
    for offset in range(place, 14):
        queue.append(offset, offset * 100, 50, -offset)
    assert queue.read_units(0, 14) == units(*range(14))


# With this trust, units 476 to 1999 of a queue of 2,000 are looked at one by one.
TRUSTED_BELOW = 1500 * 100


def write_long_queue(directory: Path, changes: dict[int, bytes]) -> Path:
    """Make a queue of 2,000 units in 400 files, some of the units changed."""
    content = [changes.get(number, unit(number)) for number in range(2000)]
    files = [b"".join(content[start : start + 5]) for start in range(0, 2000, 5)]
    return write_queue(directory, *files)


def test_units_known_to_be_on_disk_are_not_read_one_by_one(tmp_path: Path) -> None:
    directory = write_long_queue(tmp_path, {475: bytes(20)})
    assert recovered(directory, trusted_below=TRUSTED_BELOW).max_offset == 2000
    assert recovered(directory).max_offset == 475


@pytest.mark.parametrize("damaged", [476, 1499, 1500, 1777])
def test_units_that_may_not_have_been_on_disk_are_read_one_by_one(
    damaged: int, tmp_path: Path
) -> None:
    directory = write_long_queue(tmp_path, {damaged: bytes(20)})
    assert recovered(directory, trusted_below=TRUSTED_BELOW).max_offset == damaged


def test_damage_where_reading_starts_makes_it_start_further_in_front(tmp_path: Path) -> None:
    directory = write_long_queue(tmp_path, {473: bytes(20), 476: bytes(20)})
    assert recovered(directory, trusted_below=TRUSTED_BELOW).max_offset == 473


@pytest.mark.parametrize("wrong", [BLANK_CONSUME_QUEUE_UNIT, unit(475), unit(474)])
def test_what_is_read_has_to_follow_what_is_not(wrong: bytes, tmp_path: Path) -> None:
    directory = write_long_queue(tmp_path, {476: wrong})
    assert recovered(directory, trusted_below=TRUSTED_BELOW).max_offset == 476


def test_files_behind_a_lost_one_are_left_to_the_log(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, *(units(*range(n, n + 5)) for n in (0, 5, 10)))
    (directory / "00000000000000000100").unlink()
    assert state(recovered(directory)) == (0, 5, 450)
    assert os.listdir(directory) == ["00000000000000000000"]


def test_queue_need_not_start_with_its_first_file(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(*range(10, 15)), units(15), first=2)
    queue = recovered(directory)
    assert state(queue) == (10, 16, 1550)
    assert queue.read_units(10, 6) == units(*range(10, 16))


def test_queue_is_dirty_after_a_crash_and_clean_after_a_clean_stop(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(0, 1))
    after_crash = recovered(directory)
    assert after_crash.is_dirty
    assert after_crash.flush()
    after_stop = recovered(directory, 150, trusted_below=150)
    assert not after_stop.is_dirty
    assert not after_stop.flush()


def test_recovery_holds_no_descriptors_beyond_its_end(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, *(units(*range(n, n + 5)) for n in (0, 5, 10)))
    queue = recovered(directory)
    queue.close()
    assert not open_files_in(tmp_path)
    assert queue.max_offset == 15


def test_last_units_can_be_compared_with_the_log(tmp_path: Path) -> None:
    queue = recovered(write_queue(tmp_path, units(*range(5)), units(5, 6)))
    assert queue.last_units(3) == [(400, 50, -4), (500, 50, -5), (600, 50, -6)]
    assert len(queue.last_units(100)) == 7


# Truncation.


def test_units_of_records_that_were_cut_from_the_log_go(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(*range(5)), units(*range(5, 9)))
    queue = recovered(directory)
    queue.truncate_to_commit_log(650)
    assert state(queue) == (0, 7, 650)
    queue.truncate_to_commit_log(649)
    assert state(queue) == (0, 6, 550)
    queue.truncate_to_commit_log(500)
    assert state(queue) == (0, 5, 450)
    assert os.listdir(directory) == ["00000000000000000000"]
    queue.append(5, 500, 60, 0)
    assert queue.entry(5) == (500, 60, 0)


def test_truncating_behind_the_end_changes_nothing(tmp_path: Path) -> None:
    queue = recovered(write_queue(tmp_path, units(0, 1)))
    queue.truncate_to_commit_log(150)
    assert state(queue) == (0, 2, 150)


def test_queue_that_loses_all_messages_goes_on_at_the_same_offset(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(*range(10, 15)), first=2)
    queue = recovered(directory)
    queue.truncate_to_commit_log(500)
    assert not directory.exists()
    assert state(queue) == (10, 10, -1)
    queue.append(10, 600, 50, 0)
    assert state(queue) == (10, 11, 650)


def test_queue_can_be_cut_at_an_offset(tmp_path: Path) -> None:
    queue = recovered(write_queue(tmp_path, units(*range(5)), units(5, 6)))
    queue.truncate_to(9)
    assert queue.max_offset == 7
    queue.truncate_to(3)
    assert state(queue) == (0, 3, 250)


def test_messages_that_expired_keep_the_next_offset_when_all_others_are_cut(tmp_path: Path) -> None:
    directory = write_queue(tmp_path, units(*range(4)))
    queue = recovered(directory)
    queue.correct_min_offset(200)
    queue.truncate_to_commit_log(200)
    assert (queue.min_offset, queue.max_offset) == (2, 2)
    again = recovered(directory)
    again.correct_min_offset(200)
    assert (again.min_offset, again.max_offset) == (2, 2)


@BOTH_WAYS
def test_recovering_a_queue_of_few_messages_maps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted_below: int
) -> None:
    directory = write_queue(tmp_path, units(0, 1, 2))
    mapped: list[object] = []
    monkeypatch.setattr(MappedFile, "map", mapped.append)
    queue = recovered(directory, trusted_below=trusted_below)
    assert state(queue) == (0, 3, 250)
    assert queue.last_units(2) == [(100, 50, -1), (200, 50, -2)]
    queue.close()
    assert mapped == []
