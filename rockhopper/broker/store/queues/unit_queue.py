"""UnitQueue: what consume queues of both kinds share: units of one size in numbered files.

Units stand one behind the other in an address space of bytes ("position"), divided over the files
of a MappedFileQueue; zeros follow the last one. Commit log offsets grow from unit to unit, so
every question of the kind "where does … begin" is a binary search. A unit's first two fields are
the commit log offset and the size of its record, whichever kind it is.

Everything here can be rebuilt from the commit log, which is therefore right whenever the two
disagree.

Writing goes through the mapping of the last file (mapped_units.py). The file of a queue is made
only when a unit is about to be written: RocketMQ may not start over an empty one.

Threads: all of it belongs to the thread that appends, except ``flush``.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import structlog

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mappings import Mappings
from rockhopper.broker.store.log.checking import topic_field
from rockhopper.broker.store.queues.mapped_units import MappedUnits
from rockhopper.broker.store.queues.unit_files import find_end
from rockhopper.protocol.store.light_queues import is_light
from rockhopper.protocol.store.message_codec import RecordCheck
from rockhopper.protocol.store.queue_layout import BLANK_UNIT_SIZE_FIELD

log = structlog.get_logger("broker.store")

Noted = Iterable[tuple[int, tuple[int, ...]]]

SUMMED_UNITS_MAX = 1024
_RUNS = 32


def ignore(_: object) -> None:
    """Be the ``mark_dirty`` of a queue that belongs to no table."""


class UnitQueue(MappedUnits):
    """One queue of one topic.

    ``min_offset`` and ``max_offset`` are queue offsets: the first message there is, and the one
    behind the last. ``commit_log_end`` is where the last one's record ends, −1 without messages.
    """

    __slots__ = (
        "commit_log_end",
        "is_held",
        "is_light",
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
        mark_dirty: Callable[[Any], None] = ignore,
        mappings: Mappings | None = None,
    ) -> None:
        """Stand for the queue in *directory*; ``load`` and ``recover`` look at what is there.

        *file_size_bytes* is for the first file of a new queue. *mark_dirty* is called with the
        queue when it has something to flush and had nothing before; *mappings* are those that it
        shares descriptors with.
        """
        self.topic = topic
        self.topic_field = topic_field(topic)
        # Its records are those of other queues, and name those.
        self.is_light = is_light(topic)
        self.is_held = False
        self.queue_id = queue_id
        # Whether units may be missing anywhere, because a file did not have its size.
        self.was_resized = False
        super().__init__(directory, file_size_bytes, mark_dirty, mappings or Mappings())
        self._set_empty(0)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}/{self.queue_id} "
            f"[{self.min_offset}, {self.max_offset})>"
        )

    @property
    def has_files(self) -> bool:
        """Whether there is anything on disk."""
        return bool(self._files.files)

    @property
    def first_position(self) -> int:
        """Where the first file begins."""
        return self._files.min_offset

    def load(self) -> None:
        """Find the files; ``recover`` then finds out what is in them.

        Raises:
            CorruptFileError: the files are not what RocketMQ would accept either.
        """
        self._files.load()

    def begins_behind(self, commit_log_offset: int) -> bool:
        """Whether the first file begins with the unit of no older record than that at an offset.

        A file that was made behind expired messages begins with blank units, and does not.
        """
        offset, size_bytes = self._files.unit_at(self.first_position)[:2]
        return size_bytes != BLANK_UNIT_SIZE_FIELD and not 0 <= offset < commit_log_offset

    def newest_units(self) -> Iterator[tuple[int, int]]:
        """Commit log offset and size of the units in files that are not recovered yet."""
        return self._files.newest_first()

    def reaches_beyond(self, commit_log_offset: int) -> bool:
        """Whether the newest of these is of a record that ends behind an offset."""
        return any(sum(unit) > commit_log_offset for unit in islice(self.newest_units(), 1))

    # What differs between the kinds of queue.

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
        """Note that a record of *size_bytes* holds *count* messages from *queue_offset* on.

        Noting it again changes nothing. The first message of an empty queue may have any offset.

        Raises:
            QueueGapError: messages in front of it were not noted.
            QueueConflictError: another record has that offset.
            DiskFullError, OSError: there is no room for a new file, or it cannot be made.

        Whatever is raised, the queue is as it was.
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

        The last of their records ends at *commit_log_end*. Raises as ``append``; the units in
        front of the one that failed are in the queue then.
        """

    @abstractmethod
    def read_units(self, queue_offset: int, count: int) -> bytes:
        """The packed units of up to *count* records, from the one with message *queue_offset* on.

        Empty when the message is not there.
        """

    @abstractmethod
    def entry(self, queue_offset: int) -> tuple[int, ...] | None:
        """The fields of the unit of the record that holds message *queue_offset*, or None."""

    @abstractmethod
    def offset_by_time(
        self, time_ms: int, upper: bool, store_time_of: Callable[[int, int], int]
    ) -> int:
        """The first message stored at *time_ms* or later; with *upper* the last one until then.

        *store_time_of* tells a record's store time by its commit log offset and size, −1 if it
        cannot be read. Without such a message the answer is the nearest end of the queue.
        """

    @abstractmethod
    def truncate_to(self, queue_offset: int) -> None:
        """Drop the messages from *queue_offset* on; the log knows other ones there."""

    def hides(self, queue_offset: int) -> bool:
        """Whether the message is there, but not to be seen yet."""
        return False

    @abstractmethod
    def _start_position(self) -> int:
        """The position of the first unit that counts."""

    @abstractmethod
    def _set_range(self, start: int, end: int) -> None:
        """Set the offsets from the units in [start, end), at least one, or none in the files."""

    @abstractmethod
    def _set_start(self, position: int) -> None:
        """Set ``min_offset``: what stands in front of *position* is gone from the log."""

    @staticmethod
    @abstractmethod
    def is_plausible(unit: tuple[int, ...], commit_log_max: int) -> bool:
        """Whether *unit* may stand for a record of a log that ends at *commit_log_max*."""

    @staticmethod
    @abstractmethod
    def count_valid(units: bytes, previous: tuple[int, ...] | None, commit_log_max: int) -> int:
        """How many of *units*, which follow the unit *previous*, make sense one by one."""

    @abstractmethod
    def noted(self, queue_offset: int) -> tuple[int, ...] | None:
        """The unit of a message, of those too that nobody is shown: expired or held ones."""

    @abstractmethod
    def held(self, queue_offset: int, commit_log_offset: int) -> tuple[int, ...] | None:
        """The unit that is there for a record, which may be wrong."""

    @abstractmethod
    def around(self, queue_offset: int, count: int) -> tuple[Noted, Noted]:
        """Queue offset and unit of *count* records in front of a message, nearest first; behind."""

    @abstractmethod
    def unit_of(self, check: RecordCheck, tags_code: int) -> tuple[int, ...]:
        """What the unit of a record of this queue has to say."""

    @abstractmethod
    def mend(self, queue_offset: int, unit: tuple[int, ...]) -> None:
        """Write the unit of a message anew, as ``unit_of`` its record says.

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
        """Up to *count* units from the end, oldest first, for recovery to compare with the log."""
        end = self._end_position()
        start = max(self._start_position(), end - count * self.UNIT_SIZE_BYTES)
        return list(self.UNIT.iter_unpack(self._files.read(start, end))) if self.has_files else []

    def records_bytes(self) -> int:
        """What the records of the queue take in the log.

        Above SUMMED_UNITS_MAX of them it is estimated by as many, in runs spread evenly from the
        first to the last, and never more than the log has between those.
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
        """Find where the units end, cut what makes no sense, and set the offsets.

        Units that point beyond *commit_log_max* are cut, and so is everything behind a unit that
        is damaged or missing: the log puts it back. Units that point below *trusted_below* were
        known to be on disk and are not read; after a clean stop that is *commit_log_max*.
        What is read or mapped for that stays so until ``close``: there is more to look at.
        """
        self._forget_mapping()
        self.glance()
        verified_from, end = find_end(self._files, self, commit_log_max, trusted_below)
        self._cut(end)
        if trusted_below >= commit_log_max:
            self._flushed = self._end_position()
        elif self.has_files:
            self._flushed = min(self._flushed, verified_from)
            self._note_change()

    def _cut(self, end: int) -> None:
        """Drop the units from position *end* on, and set the offsets by those that stay."""
        files = self._files
        self._forget_mapping()
        self._flushed = min(self._flushed, end)
        start = self._first_counted(files.min_offset, end)
        if start < end:
            files.truncate_to(end)
            self._set_range(start, end)
            return
        files.destroy()
        self._set_empty(self.min_offset)

    def _set_empty(self, next_offset: int) -> None:
        """Note that there are neither messages nor files; the next message is *next_offset*."""
        self.min_offset = self.max_offset = next_offset
        self.commit_log_end = -1
        self._flushed = 0

    def _first_counted(self, start: int, end: int) -> int:
        """The position of the first unit that stands for a message."""
        return start if self._files.files else end

    def truncate_to_commit_log(self, commit_log_end: int) -> None:
        """Drop the units of records that end beyond *commit_log_end*.

        Without any message left the files go too; the next message is still ``max_offset``.
        """
        if self.commit_log_end <= commit_log_end or not self.has_files:
            return
        start = self._start_position()
        end = self._end_position()
        keep = self._files.first(start, end, lambda unit: unit[0] + unit[1] > commit_log_end)
        self._truncate_to_position(keep)

    def _truncate_to_position(self, position: int) -> None:
        # Units of messages that expired stay in front of the cut: they keep the next offset.
        start = self._start_position()
        self._cut(position)
        if self.has_files:
            self._set_start(min(start, position))

    # Retention.

    def correct_min_offset(self, commit_log_min: int) -> None:
        """Move ``min_offset`` to the first message that the log, from *commit_log_min* on, has."""
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
        """Leave the queue's files to the caller, to be deleted; offsets start at 0 again."""
        self._forget_mapping()
        files = self._files.detach_first(len(self._files.files))
        for file in files:
            file.mark_deleted()
        self._set_empty(0)
        return files

    def destroy(self) -> None:
        """Delete the queue's files and directory; offsets start at 0 again."""
        self._forget_mapping()
        self._files.destroy()
        self._set_empty(0)

    def close(self) -> None:
        """Let go of mappings and descriptors. Flushes nothing."""
        self._forget_mapping()
        self._files.close()
