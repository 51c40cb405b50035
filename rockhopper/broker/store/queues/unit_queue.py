"""UnitQueue: the common part of both kinds of consume queues: units of one size in numbered files.

Units follow each other in an address space of bytes ("position"), divided over the files of a
MappedFileQueue; zeros follow the last one. Commit log offsets grow from unit to unit, so every
"where does … begin" is a binary search. In both kinds, a unit's first two fields are the commit log
offset and the size of its record.

Everything here can be rebuilt from the commit log, so the log is right if the two disagree.

Units are written through the mapping of the last file (unit_files.py). The file of a queue is
made only when a unit is about to be written: RocketMQ may fail to start with an empty one.

Threads: everything belongs to the thread that appends, except ``flush``.
"""

import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar

import structlog

from rockhopper.broker.store.files.mapped_file import MappedFile, Mappings
from rockhopper.broker.store.queues.unit_files import MappedUnits, find_end, read_short_queue
from rockhopper.protocol.store.light_queues import is_light
from rockhopper.protocol.store.queue_layout import BLANK_UNIT_SIZE_FIELD
from rockhopper.protocol.store.record_head import topic_field

log = structlog.get_logger("broker.store")

Noted = Iterable[tuple[int, tuple[int, ...]]]

SUMMED_UNITS_MAX = 1024
_RUNS = 32


class UnitQueue(MappedUnits):
    """One queue of one topic.

    ``min_offset`` and ``max_offset`` are queue offsets: that of the first message, and the one
    after the last. ``commit_log_end`` is where the last record ends, −1 without messages.
    """

    __slots__ = (
        "commit_log_end",
        "is_held",
        "is_light",
        "is_restored",
        "is_short",
        "min_offset",
        "queue_id",
        "topic",
        "topic_field",
        "was_resized",
    )
    IS_BATCH: ClassVar[bool]
    """Whether one record may hold several messages."""
    MESSAGES_PER_UNIT_MAX: ClassVar[int]

    def __init__(
        self,
        directory: Path | str,
        topic: str,
        queue_id: int,
        file_size_bytes: int,
        dirty: deque[MappedUnits] | None = None,
        mappings: Mappings | None = None,
    ) -> None:
        """Wrap the queue in *directory*; ``load`` and ``recover`` read its files.

        *file_size_bytes* is for the first file of a new queue. The queue appends itself to *dirty*
        when it gets something to flush and had nothing before. *mappings* limits the mapped files
        of everything that shares it.
        """
        self.topic = topic
        self.topic_field = topic_field(topic)
        # Records in a light queue belong to other queues, and name those.
        self.is_light = is_light(topic)
        self.is_held = False
        self.queue_id = queue_id
        # Whether ``load`` has read all units, and ``recover`` has nothing to do.
        self.is_short = False
        # Whether its state was taken over from the last stop.
        self.is_restored = False
        # Whether units may be missing anywhere, because a file did not have its size.
        self.was_resized = False
        super().__init__(
            directory,
            file_size_bytes,
            deque(maxlen=0) if dirty is None else dirty,
            mappings or Mappings(),
        )
        self._set_empty(0)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}/{self.queue_id} "
            f"[{self.min_offset}, {self.max_offset})>"
        )

    @property
    def has_files(self) -> bool:
        """Whether the queue has files on disk."""
        return bool(self._files.files)

    @property
    def first_position(self) -> int:
        """Where the first file begins."""
        return self._files.min_offset

    def load(self, log_end: int = -1) -> None:
        """Find the files; ``recover`` then reads their content.

        If the log is known to end at *log_end*, a queue of at most a page of sound units is
        recovered at once: of tens of thousands of queues, most are short.

        Raises:
            CorruptFileError: RocketMQ would not accept the files either.
        """
        if log_end > 0 and not self.IS_BATCH:
            short = read_short_queue(self._files.path, log_end)
            if short is not None and short[0] % self.UNIT_SIZE_BYTES == 0:
                self._files.load_first(*short)
                self._set_range(0, len(short[2]))
                self.is_short = True
                return
        self._files.load()

    def short_state(self) -> tuple[int, int, int] | None:
        """Return the offsets of a queue that has only its first file, for ``restore``, else None.

        They are those of its first message and of the next one, and where the log holds its last.
        """
        return None

    def restore(self, min_offset: int, next_offset: int, commit_log_end: int) -> None:
        """Take over the state of a queue that is on disk; ``recover`` is not needed."""
        raise NotImplementedError

    def begins_behind(self, commit_log_offset: int) -> bool:
        """Return whether the first file begins with a record at *commit_log_offset* or after it.

        Returns False for a file that was made after expired messages: it begins with blank units.
        """
        offset, size_bytes = self._files.unit_at(self.first_position)[:2]
        return size_bytes != BLANK_UNIT_SIZE_FIELD and not 0 <= offset < commit_log_offset

    def newest_units(self) -> Iterator[tuple[int, int]]:
        """Yield commit log offset and size of the units in files that are not recovered yet."""
        if self.is_short:
            return ((unit[0], unit[1]) for unit in reversed(self.last_units(sys.maxsize)))
        return self._files.newest_first()

    def reaches_beyond(self, commit_log_offset: int) -> bool:
        """Return whether the newest unrecovered unit's record ends after *commit_log_offset*."""
        return any(sum(unit) > commit_log_offset for unit in islice(self.newest_units(), 1))

    # The methods that differ between the kinds of queue.

    @abstractmethod
    def append(
        self,
        queue_offset: int,
        commit_log_offset: int,
        size_bytes: int,
        tags_code: int,
        count: int = 1,
        store_time_ms: int = 0,
    ) -> None:
        """Append a unit: a record of *size_bytes* holds *count* messages from *queue_offset* on.

        Appending it again changes nothing. The first message of an empty queue may have any offset.
        After an error, the queue is unchanged.

        Raises:
            QueueGapError: messages before it are missing.
            QueueConflictError: another record has that offset.
            DiskFullError, OSError: there is no space for a new file, or it cannot be made.
        """

    @abstractmethod
    def append_many(
        self,
        first_queue_offset: int,
        units: bytes,
        count: int,
        commit_log_end: int,
        count_per_unit: int = 1,
        store_time_ms: int = 0,
    ) -> None:
        """Append *count* messages by packed CONSUME_QUEUE_UNITs, *count_per_unit* each.

        The last of their records ends at *commit_log_end*. Raises as ``append``; the units before
        the failed one are then in the queue.
        """

    @abstractmethod
    def read_units(self, queue_offset: int, count: int) -> bytes:
        """Return the packed units of up to *count* records, from the one with *queue_offset* on.

        Empty if the queue does not hold that message.
        """

    @abstractmethod
    def entry(self, queue_offset: int) -> tuple[int, ...] | None:
        """Return the fields of the unit of the record that holds *queue_offset*, or None."""

    def find_unit(self, commit_log_offset: int) -> tuple[int, tuple[int, int]] | None:
        """Return the first unit not before *commit_log_offset*.

        That is its queue offset, and the log offset and size of its record.
        """
        low, high = self.min_offset, self.max_offset
        found = None
        while low < high:
            middle = (low + high) // 2
            unit = self.entry(middle)
            if unit is None:
                return None
            if unit[0] >= commit_log_offset:
                high = middle
                found = middle, (unit[0], unit[1])
            else:
                low = middle + 1
        return found

    @abstractmethod
    def offset_by_time(
        self, time_ms: int, upper: bool, store_time_of: Callable[[int, int], int]
    ) -> int:
        """Return the first message stored at *time_ms* or later; with *upper*, the last until then.

        *store_time_of* returns a record's store time by its commit log offset and size, −1 if it
        cannot be read. Without such a message, returns the nearest end of the queue.
        """

    @abstractmethod
    def truncate_to(self, queue_offset: int) -> None:
        """Drop the messages from *queue_offset* on, because the log has others there."""

    def hides(self, queue_offset: int) -> bool:
        """Return whether the message exists, but is not visible yet."""
        return False

    @abstractmethod
    def _start_position(self) -> int:
        """Return the position of the first live unit."""

    @abstractmethod
    def _set_range(self, start: int, end: int) -> None:
        """Set the offsets from the units in [start, end): at least one, or none without files."""

    @abstractmethod
    def _set_start(self, position: int) -> None:
        """Set ``min_offset``: the log no longer holds the records before *position*."""

    @staticmethod
    @abstractmethod
    def is_plausible(unit: tuple[int, ...], commit_log_max: int) -> bool:
        """Return whether *unit* may belong to a record of a log that ends at *commit_log_max*."""

    @staticmethod
    @abstractmethod
    def count_valid(units: bytes, previous: tuple[int, ...] | None, commit_log_max: int) -> int:
        """Return how many of *units*, which follow the unit *previous*, are valid one by one."""

    @abstractmethod
    def read_noted(self, queue_offset: int) -> tuple[int, ...] | None:
        """Return the unit of a message, even if it is not visible: an expired or held one."""

    @abstractmethod
    def read_stored(self, queue_offset: int, commit_log_offset: int) -> tuple[int, ...] | None:
        """Return the stored unit of a record, which may be wrong."""

    @abstractmethod
    def around(self, queue_offset: int, count: int) -> tuple[Noted, Noted]:
        """Return queue offset and unit of *count* records before one, nearest first; and after."""

    @abstractmethod
    def repair(self, queue_offset: int, unit: tuple[int, ...]) -> None:
        """Rewrite the unit of a message, as ``ExpectedUnit.fields`` returned it.

        Raises:
            OSError: its file cannot be mapped.
        """

    def _write_at(self, position: int, unit: tuple[int, ...]) -> None:
        file = self._files.file_at(position)
        if file is None:
            return
        self._reserve(file, position)
        self.UNIT.pack_into(file.mapping, position - file.base_offset, *unit)
        self._flushed = min(self._flushed, position)
        self._note_change()

    def last_units(self, count: int) -> list[tuple[int, ...]]:
        """Return up to *count* units from the end, oldest first, for recovery to compare."""
        end = self._end_position()
        start = max(self._start_position(), end - count * self.UNIT_SIZE_BYTES)
        return list(self.UNIT.iter_unpack(self._files.read(start, end))) if self.has_files else []

    def records_bytes(self) -> int:
        """Return the bytes of the queue's records in the log.

        Above SUMMED_UNITS_MAX units it is estimated from that many, in runs spread evenly from the
        first to the last, and limited to the bytes of the log between those.
        """
        start, end, unit = self._start_position(), self._end_position(), self.UNIT_SIZE_BYTES
        count, run = (end - start) // unit, SUMMED_UNITS_MAX // _RUNS
        if count <= SUMMED_UNITS_MAX:
            read = self._files.read(start, end)
        else:
            places = (start + n * (count - run) // (_RUNS - 1) * unit for n in range(_RUNS))
            read = b"".join(self._files.read(at, at + run * unit) for at in places)
        units = list(self.UNIT.iter_unpack(read))
        if not units:
            return 0
        estimate: int = sum(each[1] for each in units) * count // len(units)
        between: int = units[-1][0] + units[-1][1] - units[0][0]
        return min(estimate, between)

    # Recovery.

    def recover(self, commit_log_max: int, trusted_below: int = 0) -> None:
        """Find where the units end, cut invalid ones, and set the offsets.

        Units that point beyond *commit_log_max* are cut, and so is everything after a damaged or
        missing unit: the log restores it. Units that point below *trusted_below* were known to be
        on disk and are not read; after a clean stop that is *commit_log_max*. Pages and mappings
        are kept until ``close``, because recovery reads more of them.
        """
        if self.is_short and self.commit_log_end <= commit_log_max:
            verified_from = 0
        else:
            self._forget_mapping()
            self.glance()
            verified_from, end = find_end(self._files, self, commit_log_max, trusted_below)
            self._cut(end)
        self.is_short = False
        if trusted_below >= commit_log_max:
            self._flushed = self._end_position()
        elif self.has_files:
            self._flushed = min(self._flushed, verified_from)
            self._note_change()

    def _cut(self, end: int) -> None:
        """Drop the units from position *end* on, and set the offsets by the rest."""
        files = self._files
        self._forget_mapping()
        self._flushed = min(self._flushed, end)
        start = self._first_counted(files.min_offset, end)
        if start < end:
            files.truncate_to(end)
            self._set_range(start, end)
            return
        self._mappings.drafts.difference_update(files.files)
        files.destroy()
        self._set_empty(self.min_offset)

    def _set_empty(self, next_offset: int) -> None:
        """Mark the queue as empty and without files; the next message is *next_offset*."""
        self.min_offset = self.max_offset = next_offset
        self.commit_log_end = -1
        self._flushed = 0

    def _first_counted(self, start: int, end: int) -> int:
        """Return the position of the first unit that belongs to a message."""
        return start if self._files.files else end

    def truncate_to_commit_log(self, commit_log_end: int) -> None:
        """Drop the units of records that end beyond *commit_log_end*.

        Without any message left the files are deleted too; the next message is still
        ``max_offset``.
        """
        if self.commit_log_end <= commit_log_end or not self.has_files:
            return
        start = self._start_position()
        end = self._end_position()
        keep = self._files.first(start, end, lambda unit: unit[0] + unit[1] > commit_log_end)
        self._truncate_to_position(keep)

    def _truncate_to_position(self, position: int) -> None:
        # Units of expired messages stay before the cut: they preserve the next offset.
        start = self._start_position()
        self._cut(position)
        if self.has_files:
            self._set_start(min(start, position))

    # Retention.

    def correct_min_offset(self, commit_log_min: int) -> None:
        """Move ``min_offset`` to the first message in the log, which starts at *commit_log_min*."""
        if not self.has_files:
            return
        start, end = self._start_position(), self._end_position()
        if self.commit_log_end <= commit_log_min:
            start = end
        if start < end and self._files.unit_at(start)[0] >= commit_log_min:
            self._release_unless_in_use()
            return
        self._set_start(self._files.first(start, end, lambda unit: unit[0] >= commit_log_min))
        self._release_unless_in_use()

    def delete_expired(self, commit_log_min: int) -> int:
        """Delete the files, never the last, whose messages are gone; return how many.

        ``min_offset`` is corrected as well.
        """
        self.correct_min_offset(commit_log_min)
        return self._files.delete_files_before(self._start_position()) if self.has_files else 0

    def detach(self) -> list[MappedFile]:
        """Detach and return the queue's files, marked as deleted; offsets restart at 0.

        The caller must wait for their writers, and delete them.
        """
        self._forget_mapping()
        files = self._files.detach_first(len(self._files.files))
        for file in files:
            file.mark_deleted()
        self._mappings.drafts.difference_update(files)
        self._set_empty(0)
        return files

    def destroy(self) -> None:
        """Delete the queue's files and directory; offsets restart at 0."""
        self._forget_mapping()
        self._mappings.drafts.difference_update(self._files.files)
        self._files.destroy()
        self._set_empty(0)

    def close(self) -> None:
        """Release mappings and descriptors. Flushes nothing."""
        self._forget_mapping()
        self._files.close()
