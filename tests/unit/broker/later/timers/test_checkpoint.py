"""The checkpoint of the timers: read, copied, refused as nonsense, and held against its files."""

import zlib
from pathlib import Path

import pytest

from rockhopper.broker.later.timers.checkpoint import (
    TimerCheckpoint,
    damaged_slot,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from rockhopper.broker.later.timers.entries import ENTRY, Entry

CHECKPOINT = TimerCheckpoint(1, 2, (3, 4), {5: 40}, {5: 9}, {5: 8})


@pytest.mark.parametrize(
    "nonsense",
    [
        b'{"indexedOffset":1}',
        b'{"indexedOf',
        b"",
        b"\xff\0",
        b"null",
        b"[" * 100_000,
        b'{"indexedOffset":1,"settledLogOffset":2,"timerCheck":3}',
        b'{"indexedOffset":1,"settledLogOffset":2,"timerCheck":[3],"slotBytes":7}',
        b'{"indexedOffset":"x","settledLogOffset":2,"timerCheck":[3]}',
    ],
)
def test_checkpoint_comes_back_and_nonsense_is_none(tmp_path: Path, nonsense: bytes) -> None:
    path = tmp_path / "checkpoint.json"
    assert load_checkpoint(path) is None
    save_checkpoint(path, CHECKPOINT)
    assert load_checkpoint(path) == CHECKPOINT
    path.write_bytes(nonsense)
    assert load_checkpoint(path) == CHECKPOINT
    path.write_bytes(nonsense)
    path.with_name("checkpoint.json.bak").write_bytes(nonsense)
    assert load_checkpoint(path) is None


def test_a_checkpoint_of_0_1_0_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    path.write_bytes(
        b'{"indexedOffset":1,"settledLogOffset":2,"timerCheck":[3,4],"slotBytes":{"5":40}}'
    )
    assert load_checkpoint(path) == TimerCheckpoint(1, 2, (3, 4), {5: 40}, {}, {})


def test_a_removed_checkpoint_has_no_copy_either(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    save_checkpoint(path, CHECKPOINT)
    save_checkpoint(path, CHECKPOINT)
    remove_checkpoint(path)
    assert list(tmp_path.iterdir()) == []
    assert load_checkpoint(path) is None


class Slot:
    """The file of slot 5, with two entries, its notes, and the checkpoint that knows of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.entries = directory / "5"
        self.notes = directory / "5.records"
        data = b"".join(ENTRY.pack(*Entry(300_000 + n, n, 1, 0, n, n)) for n in range(2))
        self.entries.write_bytes(data)
        self.notes.write_bytes(b"12345678")
        self.checkpoint = TimerCheckpoint(2, 0, (), {5: 80}, {5: zlib.crc32(data)}, {5: 8})

    def damaged(self, now_ms: int = 0) -> int | None:
        return damaged_slot(self.directory, self.checkpoint, now_ms)


def test_whole_files_are_not_damaged(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    assert slot.damaged() is None
    with slot.entries.open("ab") as entries, slot.notes.open("ab") as notes:
        entries.write(b"what came later")
        notes.write(b"too")
    assert slot.damaged() is None


@pytest.mark.parametrize("at", [0, 39, 79])
def test_another_byte_is_noticed(tmp_path: Path, at: int) -> None:
    slot = Slot(tmp_path)
    data = bytearray(slot.entries.read_bytes())
    data[at] ^= 1
    slot.entries.write_bytes(data)
    assert slot.damaged() == 5


@pytest.mark.parametrize("size_bytes", [79, 40, 0])
def test_a_shorter_file_is_noticed(tmp_path: Path, size_bytes: int) -> None:
    slot = Slot(tmp_path)
    slot.entries.write_bytes(slot.entries.read_bytes()[:size_bytes])
    slot.checkpoint = slot.checkpoint._replace(slot_crcs={})
    assert slot.damaged() == 5


def test_entries_of_another_slot_are_noticed_without_a_checksum(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    slot.entries.write_bytes(ENTRY.pack(*Entry(360_000, 0, 1, 0, 0, 0)) * 2)
    slot.checkpoint = slot.checkpoint._replace(slot_crcs={})
    assert slot.damaged() == 5


@pytest.mark.parametrize("left", [b"1234567", None])
def test_missing_notes_are_noticed(tmp_path: Path, left: bytes | None) -> None:
    slot = Slot(tmp_path)
    if left is None:
        slot.notes.unlink()
    else:
        slot.notes.write_bytes(left)
    assert slot.damaged() == 5


def test_a_file_of_a_minute_that_has_passed_may_be_gone(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    slot.entries.unlink()
    slot.notes.unlink()
    assert slot.damaged(now_ms=299_999) == 5
    assert slot.damaged(now_ms=300_000) is None
    slot.checkpoint = slot.checkpoint._replace(slot_bytes={5: 80, 6: 40})
    assert slot.damaged(now_ms=300_000) == 6
