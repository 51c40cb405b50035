"""The checkpoint of the timer index: ``<store>/rockhopper/timers/checkpoint.json``.

    indexedOffset       up to this offset of rmq_sys_wheel_timer the slot files are on disk
    settledLogOffset    deliveries noted with a smaller end of the log are on disk as well
    timerCheck          CRC-32 of RocketMQ's config/timercheck as we left it, or will have left it
    slotBytes           slot -> size of its file of entries up to indexedOffset
    slotCrcs            slot -> CRC-32 of these entries
    noteBytes           slot -> size of its file of notes, which may have grown since

It is a checked table (broker/tables/checked_table.py): both copies hold the same. Another
timercheck means that RocketMQ has run on the store since: what it delivered is not in our files,
and they are made anew from its own. 0.1.0 wrote the entries alone, without slotCrcs.
"""

import os
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rockhopper.broker.later.timers.entries import ENTRY, ENTRY_SIZE_BYTES, SLOT_MS, Entry
from rockhopper.broker.later.timers.slot_files import NOTES_SUFFIX
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.disk import backup_path
from rockhopper.broker.tables.checked_table import CheckedTable
from rockhopper.broker.tables.json_table import JsonObject

_PIECE_BYTES = 1 << 20


class TimerCheckpoint(NamedTuple):
    """How far the index is known to be on disk."""

    indexed_offset: int
    settled_log_offset: int
    timer_checks: tuple[int, ...]
    slot_bytes: dict[int, int]
    slot_crcs: dict[int, int]
    note_bytes: dict[int, int]


class _CheckpointTable(CheckedTable):
    lost = "the timer checkpoint cannot be read, and all timers are made anew from the log"
    takes_bare_entries = True

    def from_json(self, document: JsonObject) -> None:
        """Take a checkpoint that makes sense. Raises ValueError."""
        super().from_json(document)
        try:
            _checkpoint_of(self.entries)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it makes no sense: {error!r}") from None


def _checkpoint_of(entries: JsonObject) -> TimerCheckpoint:
    return TimerCheckpoint(
        int(entries["indexedOffset"]),
        int(entries["settledLogOffset"]),
        tuple(int(number) for number in entries["timerCheck"]),
        {int(slot): int(size) for slot, size in entries.get("slotBytes", {}).items()},
        {int(slot): int(crc) for slot, crc in entries.get("slotCrcs", {}).items()},
        {int(slot): int(size) for slot, size in entries.get("noteBytes", {}).items()},
    )


def load_checkpoint(path: Path) -> TimerCheckpoint | None:
    """The checkpoint at *path*; None without one, or with one that makes no sense."""
    table = _CheckpointTable(path)
    return _checkpoint_of(table.entries) if table.load() else None


def save_checkpoint(path: Path, checkpoint: TimerCheckpoint) -> None:
    """Write the checkpoint. Blocks. Raises OSError; the old one is still there then."""
    table = _CheckpointTable(path)
    table.entries = {
        "indexedOffset": checkpoint.indexed_offset,
        "settledLogOffset": checkpoint.settled_log_offset,
        "timerCheck": list(checkpoint.timer_checks),
        "slotBytes": {str(slot): size for slot, size in checkpoint.slot_bytes.items()},
        "slotCrcs": {str(slot): crc for slot, crc in checkpoint.slot_crcs.items()},
        "noteBytes": {str(slot): size for slot, size in checkpoint.note_bytes.items()},
    }
    table.save()


def remove_checkpoint(path: Path) -> None:
    """Delete the checkpoint, durably: the files that it speaks of are made anew."""
    disk.remove_files([path, backup_path(path)])


def damaged_slot(directory: Path, checkpoint: TimerCheckpoint, now_ms: int) -> int | None:
    """A slot whose file in *directory* is not what *checkpoint* says; None if all are.

    The file of a minute that has passed may be gone: it is deleted when nothing waits in it.
    """
    for slot, size_bytes in checkpoint.slot_bytes.items():
        try:
            with (directory / str(slot)).open("rb") as file:
                first = file.read(ENTRY_SIZE_BYTES)
                size = os.fstat(file.fileno()).st_size
                crc = _crc_of(file, size_bytes)
        except FileNotFoundError:
            if slot * SLOT_MS > now_ms:
                return slot
            continue
        is_of_slot = len(first) < ENTRY_SIZE_BYTES or Entry(*ENTRY.unpack(first)).slot == slot
        if size < size_bytes or not is_of_slot or checkpoint.slot_crcs.get(slot, crc) != crc:
            return slot
        notes = directory / f"{slot}{NOTES_SUFFIX}"
        if checkpoint.note_bytes.get(slot) and (
            not notes.exists() or notes.stat().st_size < checkpoint.note_bytes[slot]
        ):
            return slot
    return None


def _crc_of(file: BinaryIO, size_bytes: int) -> int:
    file.seek(0)
    crc = 0
    while size_bytes > 0 and (piece := file.read(min(size_bytes, _PIECE_BYTES))):
        crc = zlib.crc32(piece, crc)
        size_bytes -= len(piece)
    return crc
