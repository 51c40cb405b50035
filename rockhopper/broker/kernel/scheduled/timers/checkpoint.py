"""The checkpoint of the timer index: ``<store>/rockhopper/timers/checkpoint.json``.

    indexedOffset       up to this offset of rmq_sys_wheel_timer the slot files are on disk
    settledLogOffset    deliveries recorded with a smaller end of the log are on disk as well
    timerCheck          CRC-32 of RocketMQ's config/timercheck as it was last written, or will be
    slotBytes           slot -> size of its file of entries up to indexedOffset
    slotCrcs            slot -> CRC-32 of these entries
    noteBytes           slot -> size of its delivery journal, which may have grown since

Timers spread over a year occupy some hundred thousand slots. So later changes are appended to a
journal beside the file (kernel/tables/table_journal.py): changes of the first three fields, and of
``slots``, which maps a slot to [slotBytes, slotCrcs, noteBytes], 0 for none.

It is a checked table (broker/kernel/tables/checked_table.py): both copies are equal. A different
timercheck means that RocketMQ has used the store since. Its deliveries are not in our files, so
these are rebuilt from RocketMQ's. Builds before 0.2.0 wrote only the entries, without slotCrcs.
"""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rockhopper.broker.kernel.scheduled.timers.entries import (
    ENTRY,
    ENTRY_SIZE_BYTES,
    SLOT_MS,
    TimerEntry,
)
from rockhopper.broker.kernel.scheduled.timers.slot_files import NOTES_SUFFIX
from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.disk import backup_path
from rockhopper.protocol.store.table_changes import TableChange

_PIECE_BYTES = 1 << 20
_SLOTS = "slots"
_SLOT_FIELDS = "slotBytes", "slotCrcs", "noteBytes"


class TimerCheckpoint(NamedTuple):
    """The state of the index that is known to be on disk."""

    indexed_offset: int
    settled_log_offset: int
    timer_checks: tuple[int, ...]
    slot_bytes: dict[int, int]
    slot_crcs: dict[int, int]
    note_bytes: dict[int, int]


class CheckpointChange(NamedTuple):
    """The differences to the previous checkpoint."""

    indexed_offset: int
    settled_log_offset: int
    timer_checks: tuple[int, ...]
    slots: Mapping[int, tuple[int, int, int]]
    """The changed slots: bytes, their CRC-32, and bytes of the delivery journal."""


class _CheckpointTable(CheckedTable):
    lost = "the timer checkpoint cannot be read: rebuilding all timers from the log"
    takes_bare_entries = True

    def from_json(self, document: JsonObject) -> None:
        """Load a checkpoint. Raises ValueError if it is invalid."""
        super().from_json(document)
        try:
            _checkpoint_of(self.entries)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is invalid: {error!r}") from None

    def _replay(self, name: str, value: Any) -> None:
        if name != _SLOTS:
            super()._replay(name, value)
            return
        for slot, values in value.items():
            for field, number in zip(_SLOT_FIELDS, values, strict=True):
                numbers = self.entries.setdefault(field, {})
                if number or (field == "slotCrcs" and values[0]):
                    numbers[slot] = number
                else:
                    numbers.pop(slot, None)

    def forget_all(self) -> None:
        """Clear the table, and write the whole file with the next changes."""
        self.entries = {}
        self._is_to_be_written = True

    def save_changes(self, changes: list[TableChange]) -> None:
        """Apply changes and write them to disk.

        Blocks. Raises OSError: the next save is then a whole one.
        """
        for change in changes:
            self._replay(change.name, change.value)
        if self._may_append_to_file and not self._is_to_be_written:
            try:
                self._append(changes)
            except OSError:
                self._is_to_be_written = True
                raise
            return
        self._is_to_be_written = True
        self.save()


class CheckpointFile:
    """The checkpoint on disk. Usable from any thread, one at a time."""

    def __init__(self, path: Path, quarantine: Path) -> None:
        self._path = path
        self._quarantine = quarantine
        self._table = self._make_table()

    def _make_table(self) -> _CheckpointTable:
        table = _CheckpointTable(self._path)
        directory = self._path.with_name("checkpoint-changes")
        table.changes_journal = TableJournal(directory, self._quarantine)
        return table

    def load(self) -> TimerCheckpoint | None:
        """Return the checkpoint; None if it is missing or invalid. Raises OSError."""
        self._table = self._make_table()
        found = _checkpoint_of(self._table.entries) if self._table.load() else None
        # The files that it names may be gone, so the first save writes everything.
        self._table.forget_all()
        return found

    def save(self, change: CheckpointChange) -> None:
        """Change the checkpoint. Blocks. Raises OSError; the old one then still exists."""
        slots = {str(slot): list(values) for slot, values in change.slots.items()}
        values = {
            "indexedOffset": change.indexed_offset,
            "settledLogOffset": change.settled_log_offset,
            "timerCheck": list(change.timer_checks),
            _SLOTS: slots,
        }
        self._table.save_changes([TableChange(name, value, None) for name, value in values.items()])

    def remove(self) -> None:
        """Delete the checkpoint durably, so that its files are rebuilt. Raises OSError."""
        disk.remove_files([self._path, backup_path(self._path)])
        if self._table.changes_journal is not None:
            self._table.changes_journal.drop()
        self._table = self._make_table()


def _checkpoint_of(entries: JsonObject) -> TimerCheckpoint:
    return TimerCheckpoint(
        int(entries["indexedOffset"]),
        int(entries["settledLogOffset"]),
        tuple(int(number) for number in entries["timerCheck"]),
        {int(slot): int(size) for slot, size in entries.get("slotBytes", {}).items()},
        {int(slot): int(crc) for slot, crc in entries.get("slotCrcs", {}).items()},
        {int(slot): int(size) for slot, size in entries.get("noteBytes", {}).items()},
    )


def damaged_slot(directory: Path, checkpoint: TimerCheckpoint, now_ms: int) -> int | None:
    """Return a slot whose file in *directory* contradicts *checkpoint*; None if all match.

    The file of a past minute may be missing: it is deleted once no message waits in it.
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
        is_of_slot = len(first) < ENTRY_SIZE_BYTES or TimerEntry(*ENTRY.unpack(first)).slot == slot
        if size < size_bytes or not is_of_slot or checkpoint.slot_crcs.get(slot, crc) != crc:
            return slot
        if _lacks_notes(directory / f"{slot}{NOTES_SUFFIX}", checkpoint.note_bytes.get(slot, 0)):
            return slot
    return None


def _lacks_notes(path: Path, size_bytes: int) -> bool:
    return size_bytes > 0 and (not path.exists() or path.stat().st_size < size_bytes)


def _crc_of(file: BinaryIO, size_bytes: int) -> int:
    file.seek(0)
    crc = 0
    while size_bytes > 0 and (piece := file.read(min(size_bytes, _PIECE_BYTES))):
        crc = zlib.crc32(piece, crc)
        size_bytes -= len(piece)
    return crc
