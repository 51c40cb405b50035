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

A save writes the files of entries first, then the checkpoint that names their sizes. After a kill
in between, the next start trims the files to the old sizes, and indexes the rest of the queue
again. Files of finished slots are deleted last.
"""

import asyncio
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import structlog

from rockhopper.broker.kernel.scheduled.timers import java_files
from rockhopper.broker.kernel.scheduled.timers.delivery import TimerDelivery
from rockhopper.broker.kernel.scheduled.timers.entries import (
    ENTRY,
    ENTRY_SIZE_BYTES,
    SLOT_MS,
    TimerEntry,
)
from rockhopper.broker.kernel.scheduled.timers.following import TimerQueue
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.kernel.scheduled.timers.slot_files import NOTES_SUFFIX
from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.disk import backup_path
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.store.table_changes import TableChange
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.timers")

SAVE_INTERVAL_S = 5.0
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


def find_damaged_slot(directory: Path, checkpoint: TimerCheckpoint, now_ms: int) -> int | None:
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


class TimerSaver:
    """The saves of one broker's timers, one at a time. Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        index: TimerIndex,
        queue: TimerQueue,
        delivery: TimerDelivery,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._index = index
        self._queue = queue
        self._delivery = delivery
        self._now_ms = now_ms
        self._layout = store.opened.layout
        self._checkpoint = CheckpointFile(
            self._layout.own / "timers" / "checkpoint.json", self._layout.quarantine
        )
        self._saved: CheckpointChange | None = None
        self._timer_checks: tuple[int, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self.running: asyncio.Task[None] | None = None
        """The save under way."""

    def load(self) -> tuple[TimerCheckpoint | None, java_files.TimerCheck | None, bool]:
        """Return the checkpoint, RocketMQ's timercheck, and whether the latter is this broker's.

        If it is not, RocketMQ has used the store since the checkpoint. Raises OSError.
        """
        check, crc = java_files.load_timer_check(self._timer_check_path)
        checkpoint = self._checkpoint.load()
        self._timer_checks = (crc,)
        return checkpoint, check, checkpoint is not None and crc in checkpoint.timer_checks

    def remove_checkpoint(self) -> None:
        """Delete the checkpoint, so that the next start imports all timers. Raises OSError."""
        self._checkpoint.remove()

    @property
    def is_saved(self) -> bool:
        """Whether no message waits, every delivery is on disk, and the checkpoint says so."""
        saved = self._saved
        return (
            saved is not None
            and saved.indexed_offset == self._queue.offset
            and self._index.is_empty
            and not self._index.files.over
            and self._delivery.last_end <= self._store.log.flushed_offset
        )

    def save_soon(self) -> None:
        """Schedule a save, unless there is nothing to save."""
        if self._timer is None and self.running is None and not self.is_saved:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SAVE_INTERVAL_S, self._begin)

    def stop(self) -> None:
        """Start no scheduled save."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def finish(self) -> None:
        """Wait for the save under way."""
        if self.running is not None:
            await asyncio.gather(self.running, return_exceptions=True)

    async def save(self) -> None:
        """Save in a thread, unless that is under way, and wait for it."""
        if self.running is None:
            self._begin()
        if self.running is not None:
            await asyncio.shield(self.running)

    def _begin(self) -> None:
        self._timer = None
        if self._store.failure is None:
            self.running = run_in_background(self._save_in_thread(), "saving the timers")

    async def _save_in_thread(self) -> None:
        try:
            checkpoint, paths = self._next_checkpoint(), self._index.files.take_unsynced()
            try:
                over = self._index.files.over
                if paths or over or self._is_news(checkpoint):
                    await asyncio.to_thread(self._write, checkpoint, paths)
                    self._saved = checkpoint
                self._index.files.drop_notes(over)
                self._drop_finished(checkpoint)
            except OSError as error:
                self._index.files.unsynced_again(paths)
                self._index.files.changed_again(checkpoint.slots)
                log.error("the timers could not be saved", reason=str(error))
        finally:
            self.running = None

    def save_now(self) -> None:
        """Save; blocks. Raises OSError."""
        checkpoint, over = self._next_checkpoint(), self._index.files.over
        try:
            self._write(checkpoint, self._index.files.take_unsynced())
        except OSError:
            self._index.files.changed_again(checkpoint.slots)
            raise
        self._saved = checkpoint
        self._index.files.drop_notes(over)
        self._drop_finished(checkpoint)

    def leave_to_rocketmq(self) -> None:
        """Write a timercheck that lets RocketMQ read the queue from the oldest pending message.

        Blocks. Raises OSError.
        """
        low, high = self._queue.range
        if high == 0:
            return
        oldest = self._index.min_offset
        start = self._queue.offset if oldest is None else max(oldest, low)
        now_ms = self._now_ms()
        check = java_files.TimerCheck(now_ms - now_ms % 1000, 0, start, start, 0, now_ms, 1)
        data = java_files.encode_timer_check(check)
        self._timer_checks = (*self._timer_checks[-1:], java_files.crc(data))
        self.save_now()
        java_files.remove_wheel(self._layout.timer_wheel, self._layout.timer_log)
        java_files.save_timer_check(self._timer_check_path, data)
        self._timer_checks = self._timer_checks[-1:]

    @property
    def _timer_check_path(self) -> Path:
        return self._layout.config / "timercheck"

    def _is_news(self, checkpoint: CheckpointChange) -> bool:
        before = self._saved
        return bool(checkpoint.slots) or before is None or checkpoint[:3] != before[:3]

    def _next_checkpoint(self) -> CheckpointChange:
        return CheckpointChange(
            self._queue.offset,
            self._delivery.compute_settled_offset(),
            self._timer_checks,
            self._index.files.take_changed(),
        )

    def _write(self, checkpoint: CheckpointChange, paths: list[Path]) -> None:
        disk.sync_paths(paths)
        disk.sync_directory(self._index.files.directory)
        self._checkpoint.save(checkpoint)

    def _drop_finished(self, checkpoint: CheckpointChange) -> None:
        """Delete the files of slots that are no longer needed."""
        for number in self._index.list_finished(self._now_ms()):
            if self._index.end_offset(number) > checkpoint.indexed_offset:
                continue
            if self._delivery.is_settled(number):
                self._index.drop(number)
