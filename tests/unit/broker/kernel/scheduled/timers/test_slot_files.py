"""Slot files: appended as a whole or not at all, noted, taken back, repaired, and few are open."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.scheduled.timers.entries import ENTRY, KIND_WITHDRAWAL, TimerEntry
from rockhopper.broker.kernel.scheduled.timers.slot_files import OPEN_FILES_MAX, SlotFiles
from tests.support.rot import overwrite


def entry(queue_offset: int, kind: int = 0, mark: int = 5) -> bytes:
    return ENTRY.pack(*TimerEntry(60_000, 100 * queue_offset, 3, kind, queue_offset, mark))


def opened(tmp_path: Path) -> SlotFiles:
    files = SlotFiles(tmp_path / "slots", tmp_path / "quarantine")
    files.load()
    return files


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SlotFiles]:
    made = opened(tmp_path)
    yield made
    made.close()


def bytes_of(files: SlotFiles) -> dict[int, int]:
    """The sizes of slots that have changed."""
    return {slot: size for slot, (size, _, _) in files.take_changed().items()}


def crcs_of(files: SlotFiles) -> dict[int, int]:
    """The checksums of slots that have changed."""
    return {slot: crc for slot, (_, crc, _) in files.take_changed().items()}


def test_only_files_of_slots_are_loaded(tmp_path: Path) -> None:
    directory = tmp_path / "slots"
    directory.mkdir()
    for name in ("20", "3", "7.records", "9.done", "checkpoint.json", "x", "8.tmp"):
        (directory / name).write_bytes(b"")
    assert SlotFiles(directory, tmp_path).load() == [3, 7, 9, 20]


def test_entries_come_back_in_whole_pieces(files: SlotFiles) -> None:
    data = b"".join(entry(number) for number in range(2000))
    files.append([(1, data[:40]), (1, data[40:]), (2, entry(1))])
    assert b"".join(files.pieces(1)) == data
    assert all(len(piece) % 40 == 0 for piece in files.pieces(1))
    assert len(list(files.pieces(1))) == 2
    assert files.read_entries(1, 80, 40) == entry(2)
    assert files.read_entries(1, len(data) - 40, 400) == entry(1999)
    assert files.read_entries(1, len(data), 40) == b""
    assert bytes_of(files) == {1: 80_000, 2: 40}
    assert files.take_changed() == {}
    assert files.entries_size(3) == 0


def test_withdrawals_are_counted_and_named(files: SlotFiles) -> None:
    files.append([(1, entry(0) + entry(1, KIND_WITHDRAWAL, 0) + entry(2))])
    files.append([(1, entry(3, KIND_WITHDRAWAL, 2))])
    assert files.count_withdrawals(1) == 2
    assert files.withdrawn(1) == {0, 2}
    assert files.withdrawn(9) == set()


def test_an_append_that_fails_leaves_every_slot_as_it_was(
    files: SlotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append([(1, entry(0)), (2, entry(1))])
    before = files.take_changed()
    writes = 0

    def fail(descriptor: int, position: int, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise OSError(28, "no space")
        os.pwrite(descriptor, data, position)

    monkeypatch.setattr("rockhopper.broker.store.files.disk.write_fully", fail)
    with pytest.raises(OSError, match="no space"):
        files.append([(1, entry(2)), (2, entry(3)), (3, entry(4))])
    changed = files.take_changed()
    assert {slot: changed[slot] for slot in before} == before
    assert [(files.directory / name).stat().st_size for name in ("1", "2")] == [40, 40]


def test_checksums_are_of_all_entries_however_they_were_made(files: SlotFiles) -> None:
    files.append([(1, entry(0))])
    assert crcs_of(files) == {1: zlib.crc32(entry(0))}
    files.append([(1, entry(1))])
    assert crcs_of(files) == {1: zlib.crc32(entry(0) + entry(1))}
    files.trim(1, 40, 10)
    assert crcs_of(files) == {1: zlib.crc32(entry(0))}


def test_notes_come_back_with_the_end_of_the_log(tmp_path: Path, files: SlotFiles) -> None:
    files.note({1: [10, 11], 2: [12]}, 700)
    files.note({1: [13]}, 800)
    expected = [(10, 700), (11, 700), (13, 800)]
    assert files.notes(1) == (expected, True)
    again = opened(tmp_path)
    assert again.notes(1) == (expected, True)
    assert again.notes(2) == ([(12, 700)], True)
    assert again.notes(3) == ([], True)
    assert again.take_changed() == files.take_changed()
    again.close()


def test_only_the_last_note_is_taken_back_and_only_once(files: SlotFiles) -> None:
    files.note({1: [10]}, 700)
    files.note({1: [11], 2: [12]}, 800)
    files.take_back_note()
    files.take_back_note()
    assert files.notes(1) == ([(10, 700)], True)
    assert files.notes(2) == ([], True)


def test_a_damaged_note_is_set_aside_and_said_to_be_lossy(tmp_path: Path, files: SlotFiles) -> None:
    for number in range(3):
        files.note({1: [number]}, 100 * number)
    files.close()
    path = files.directory / "1.records"
    overwrite(path, path.stat().st_size // 2 - 4, b"\xa5" * 8)
    again = opened(tmp_path)
    notes, is_whole = again.notes(1)
    assert notes == [(0, 0), (2, 200)]
    assert not is_whole
    assert again.notes(1) == (notes, True)
    assert list((tmp_path / "quarantine").iterdir()) != []
    again.close()


def test_notes_of_early_builds_are_read_and_become_records(tmp_path: Path) -> None:
    directory = tmp_path / "slots"
    directory.mkdir()
    bare = b"".join(number.to_bytes(8, "big") for number in (10, 700, 11, 800))
    (directory / "1.done").write_bytes(bare + b"torn")
    files = opened(tmp_path)
    assert files.has_bare_notes(1)
    notes, is_whole = files.notes(1)
    assert (notes, is_whole) == ([(10, 700), (11, 800)], True)
    files.rewrite_notes(1, notes)
    assert not files.has_bare_notes(1)
    assert not (directory / "1.done").exists()
    assert files.notes(1) == (notes, True)
    files.note({1: [12]}, 900)
    assert files.notes(1)[0] == [*notes, (12, 900)]
    files.close()


@pytest.mark.parametrize(
    ("size_bytes", "end_offset", "kept"),
    [(400, 10, 5), (79, 10, 1), (80, 10, 2), (400, 3, 3), (400, 0, 0), (0, 10, 0)],
)
def test_trimming_cuts_what_is_behind_a_size_or_an_offset(
    files: SlotFiles, size_bytes: int, end_offset: int, kept: int
) -> None:
    files.append([(1, b"".join(entry(number) for number in range(5)))])
    files.trim(1, size_bytes, end_offset)
    assert files.entries_size(1) == kept * 40
    assert b"".join(files.pieces(1)) == b"".join(entry(number) for number in range(kept))


def test_trimming_looks_through_many_entries(files: SlotFiles) -> None:
    files.append([(1, b"".join(entry(number) for number in range(3000)))])
    files.trim(1, 120_000, 1)
    assert b"".join(files.pieces(1)) == entry(0)


def test_zeros_that_a_power_cut_left_are_cut_off(files: SlotFiles) -> None:
    files.append([(1, entry(0) + bytes(80))])
    files.trim(1, 120, 10)
    assert b"".join(files.pieces(1)) == entry(0)


def test_few_files_are_open_at_once(files: SlotFiles) -> None:
    before = len(os.listdir("/proc/self/fd"))
    files.append([(slot, entry(slot)) for slot in range(3 * OPEN_FILES_MAX)])
    assert len(os.listdir("/proc/self/fd")) - before <= OPEN_FILES_MAX
    for slot in range(3 * OPEN_FILES_MAX):
        assert files.read_entries(slot, 0, 40) == entry(slot)


def test_what_changed_is_taken_for_a_sync_once_and_given_back(files: SlotFiles) -> None:
    files.append([(1, entry(0))])
    assert not files.has_unsynced_notes
    files.note({1: [10], 2: [11]}, 700)
    assert files.has_unsynced_notes
    notes = files.take_unsynced_notes()
    assert [path.name for path in notes] == ["1.records", "2.records"]
    assert not files.has_unsynced_notes
    assert [path.name for path in files.take_unsynced()] == ["1"]
    assert files.take_unsynced() == []
    files.unsynced_again([*notes, files.directory / "gone"])
    assert files.take_unsynced() == notes


def test_notes_stay_until_the_deletion_of_the_entries_is_on_disk(files: SlotFiles) -> None:
    files.append([(1, entry(0)), (2, entry(1))])
    files.note({1: [0], 2: [1]}, 700)
    for slot in (1, 2):
        files.drop_entries(slot)
    assert files.over == {1, 2}
    assert [path.name for path in sorted(files.directory.iterdir())] == ["1.records", "2.records"]
    files.append([(2, entry(5))])
    files.drop_notes(files.over)
    assert files.over == frozenset()
    assert [path.name for path in sorted(files.directory.iterdir())] == ["2", "2.records"]
    assert files.notes(2) == ([(1, 700)], True)


def test_a_deleted_file_is_not_synced(files: SlotFiles) -> None:
    files.append([(1, entry(0))])
    taken = files.take_unsynced()
    files.append([(1, entry(1))])
    files.drop_entries(1)
    files.unsynced_again(taken)
    assert files.take_unsynced() == []


def test_wiping_leaves_nothing(files: SlotFiles) -> None:
    files.append([(1, entry(0)), (2, entry(1))])
    files.note({1: [0]}, 700)
    files.drop_entries(2)
    files.wipe()
    assert list(files.directory.iterdir()) == []
    assert files.take_changed() == {1: (0, 0, 0), 2: (0, 0, 0)}
    assert files.over == frozenset()
    assert files.take_unsynced() == []
    files.append([(1, entry(7))])
    assert b"".join(files.pieces(1)) == entry(7)


def test_what_could_not_be_saved_has_changed_still(files: SlotFiles) -> None:
    files.append([(1, entry(0)), (2, entry(1))])
    changed = files.take_changed()
    files.append([(1, entry(2))])
    files.changed_again(changed)
    assert bytes_of(files) == {1: 80, 2: 40}
