"""Repair of index files: a kill loses nothing, a power cut only what never reached the disk."""

from pathlib import Path

import pytest

from rockhopper.broker.store.index.index_file import IndexFile
from rockhopper.broker.store.index.index_repair import repair
from tests.support.rot import overwrite

SLOTS = 16
ENTRIES = 40
ENTRIES_AT = 40 + 4 * SLOTS
T0 = 0x1A1F8404320


def create(path: Path) -> IndexFile:
    return IndexFile.create(path, SLOTS, ENTRIES, None)


def reopen(file: IndexFile) -> IndexFile:
    """Open what a kill of the process leaves of *file*."""
    file.close()
    return IndexFile.open(file.path, SLOTS, ENTRIES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "20261120091843715"


def test_a_killed_process_loses_no_entry(path: Path) -> None:
    file = create(path)
    for number in range(5):
        file.insert_key(number, number * 10, T0 + number * 1000)
    file.flush()
    for number in range(5, 20):
        file.insert_key(number % 7, number * 10, T0 + number * 1000)
    expected = {key: list(file.candidates(key, 0, T0 * 2)) for key in range(7)}
    file = reopen(file)
    assert file.next_number == 6
    assert repair(file) == 15
    assert {key: list(file.candidates(key, 0, T0 * 2)) for key in range(7)} == expected
    assert file.end_offset == 190
    assert T0 + 19_000 <= file.end_ms < T0 + 20_000
    assert reopen(file).next_number == 21


def test_a_killed_process_loses_no_entry_of_a_file_that_was_never_flushed(path: Path) -> None:
    file = create(path)
    for number in range(5):
        file.insert_key(3, number * 10, T0)
    file = reopen(file)
    assert repair(file) == 5
    assert list(file.candidates(3, 0, T0)) == [40, 30, 20, 10, 0]


def lose(path: Path, start: int, end: int) -> None:
    """Put zeros where the disk never got the bytes [start, end) of a new file."""
    overwrite(path, start, bytes(end - start))


def test_entries_behind_one_that_never_reached_the_disk_are_dropped(path: Path) -> None:
    file = create(path)
    for number in range(1, 4):
        file.insert_key(3, number, T0)
    file.flush()
    for number in range(4, 9):
        file.insert_key(3 if number < 8 else 4, number, T0)
    file.close()
    lose(path, ENTRIES_AT + 5 * 20, ENTRIES_AT + 6 * 20)
    file = reopen(file)
    assert repair(file) == 1
    # The chain went through the lost entry 5: its head is found among those that are left.
    assert list(file.candidates(3, 0, T0)) == [4, 3, 2, 1]
    assert list(file.candidates(4, 0, T0)) == []
    assert path.read_bytes()[ENTRIES_AT + 5 * 20 :] == bytes(904 - ENTRIES_AT - 5 * 20)
    file.insert_key(4, 5, T0)
    file.insert_key(3, 6, T0)
    assert list(file.candidates(3, 0, T0)) == [6, 4, 3, 2, 1]
    assert list(file.candidates(4, 0, T0)) == [5]


def test_slots_that_never_reached_the_disk_are_made_up_for(path: Path) -> None:
    file = create(path)
    file.insert_key(3, 10, T0)
    file.flush()
    slot_table = path.read_bytes()[40:ENTRIES_AT]
    for offset in (20, 30):
        file.insert_key(3, offset, T0)
        file.insert_key(5, offset, T0)
    file.close()
    overwrite(path, 40, slot_table)
    file = reopen(file)
    assert repair(file) == 4
    assert list(file.candidates(3, 0, T0)) == [30, 20, 10]
    assert list(file.candidates(5, 0, T0)) == [30, 20]


def test_a_file_whose_begin_never_reached_the_disk_is_empty(path: Path) -> None:
    file = create(path)
    file.insert_key(3, 10, T0)
    file.close()
    lose(path, 0, 40)
    file = reopen(file)
    assert repair(file) == 0
    assert file.is_empty
    assert path.read_bytes() == bytes(36) + b"\0\0\0\1" + bytes(904 - 40)
