"""UnitFiles and MappedUnits: the files of a queue, full of units of one size.

Units follow each other from the start of the first file; zeros follow the last. A unit's first two
fields are a commit log offset and the size of the record there, and commit log offsets grow from
unit to unit. So every "where does … begin" is a binary search.

After a crash that is only almost true. Pages of a file reach the disk in any order, so there may be
a hole before units that were written; and RocketMQ leaves stale units after the end when it cuts a
queue. ``find_end`` therefore reads, one by one, the units that may be affected.

Example: units 0, 1 and 2 point to records at 0, 100 and 200. Unit 1 was not on disk when the power
failed, and reads as zeros. The binary search may end after unit 2; the check one by one ends
after unit 0. Recovery cuts there, and adds units 1 and 2 again from the log.

``MappedUnits`` appends units to the last file of a queue through its mapping, and makes them
durable. A file has its full size from the start, but its blocks are allocated step by step, ahead
of the units that need them: there may be tens of thousands of queues with few messages each. So a
full disk is noticed at the allocation. A write through the mapping would kill the process instead.
A queue holds mappings only while it is in use; the next access makes new ones.

Threads: everything belongs to the thread that appends, except ``MappedUnits.flush``.
"""

import errno
import mmap
import os
import stat
import struct
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Protocol

from rockhopper.broker.settings.store_layout import file_name
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    StoreFailedError,
    TooManyOpenFilesError,
)
from rockhopper.broker.store.files.mapped_file import MapFile, MappedFile, Mappings
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.protocol.store.queue_layout import BLANK_UNIT_SIZE_FIELD, CONSUME_QUEUE_UNIT

Unit = tuple[int, ...]

# This many units are read before those that may not have been on disk.
_UNITS_TO_VERIFY = 1024
_SLICE_UNITS = 4096
# Means "no mapping held", so that the hot path needs no check.
UNMAPPED = mmap.mmap(-1, 1)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_PAGE_BITS = 12
# A queue is extended by its current size, within these bounds.
_STEP_BYTES = 16_384
_STEP_BYTES_MAX = 1 << 20
_SHORT_BYTES = 4096
_FIRST_FILE = file_name(0)


class UnitRules(Protocol):
    """What counts as a unit, for one kind of queue."""

    def is_plausible(self, unit: Unit, commit_log_max: int) -> bool:
        """Return whether *unit* may belong to a record of a log that ends at *commit_log_max*."""

    def count_valid(self, units: bytes, previous: Unit | None, commit_log_max: int) -> int:
        """Return how many of *units*, which follow the unit *previous*, are valid one by one."""


class UnitFiles(MappedFileQueue):
    """A MappedFileQueue of units; offsets are called positions here."""

    __slots__ = ("unit",)

    def __init__(
        self,
        directory: Path | str,
        file_size_bytes: int,
        unit: struct.Struct,
        map_file: MapFile,
    ) -> None:
        """*unit* is the layout of one unit; *map_file* is as for MappedFileQueue."""
        super().__init__(
            directory,
            file_size_bytes,
            writable=True,
            unit_size_bytes=unit.size,
            map_file=map_file,
        )
        self.unit = unit

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of [start, end), or fewer if a gap follows."""
        file = self.file_at(start)
        if file is not None and start < end <= file.end_offset:
            return file.read(start - file.base_offset, end - file.base_offset)
        parts = []
        while start < end:
            file = self.file_at(start)
            if file is None:
                break
            stop = min(end, file.end_offset)
            parts.append(file.read(start - file.base_offset, stop - file.base_offset))
            start = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def unit_at(self, position: int) -> Unit:
        """Return the fields of the unit at *position*, which must be in a file."""
        file = self.file_at(position)
        assert file is not None, position
        start = position - file.base_offset
        return self.unit.unpack(file.read(start, start + self.unit.size))

    def first(self, start: int, end: int, is_behind: Callable[[Unit], bool]) -> int:
        """Return the first position in [start, end] from which on *is_behind* is true.

        *is_behind* gets a unit; if it is true for one, it is true for all later ones. The search
        starts near *start*: most files belong to queues with few units.
        """
        unit_size = self.unit.size
        low, high = 0, max(end - start, 0) // unit_size
        reach = 1
        while reach <= high:
            if is_behind(self.unit_at(start + (reach - 1) * unit_size)):
                high = reach - 1
                break
            low, reach = reach, 2 * reach
        while low < high:
            middle = (low + high) // 2
            if is_behind(self.unit_at(start + middle * unit_size)):
                high = middle
            else:
                low = middle + 1
        return start + low * unit_size

    def newest_first(self) -> Iterator[tuple[int, int]]:
        """Yield commit log offset and size of the units, before recovery has checked them."""
        unit_size = self.unit.size
        for file in reversed(self.files):
            start = file.base_offset
            end = self.first(start, file.end_offset, lambda unit: unit[1] <= 0)
            try:
                for position in range(end - unit_size, start - 1, -unit_size):
                    offset, size_bytes = self.unit_at(position)[:2]
                    if not 0 < size_bytes < BLANK_UNIT_SIZE_FIELD:
                        break
                    yield offset, size_bytes
            finally:
                file.unmap()


def points_into_log(unit: Unit, commit_log_max: int) -> bool:
    """Return whether a unit's commit log offset and size may be those of a record in the log."""
    return (
        unit[0] >= 0 and 0 < unit[1] < BLANK_UNIT_SIZE_FIELD and unit[0] + unit[1] <= commit_log_max
    )


def find_end(
    files: UnitFiles, rules: UnitRules, commit_log_max: int, trusted_below: int
) -> tuple[int, int]:
    """Return where the units end, and the start of the units that were checked one by one.

    Units that point below *trusted_below* are known to be on disk.
    """
    first = files.min_offset
    end = _plausible_end(files, rules, commit_log_max)
    start = _verify_from(files, end, trusted_below)
    good = _find_verified_end(files, rules, start, end, commit_log_max)
    while good == start > first:
        end, start = start, max(first, start - files.file_size_bytes)
        good = _find_verified_end(files, rules, start, end, commit_log_max)
    return start, good


def _plausible_end(files: UnitFiles, rules: UnitRules, commit_log_max: int) -> int:
    """Return where the units end if all are intact; units after a lost file do not count."""
    gaps = files.gaps
    run_end = gaps[0][0] if gaps else files.next_base_offset
    for file in reversed(files.files):
        if file.base_offset >= run_end:
            continue
        if rules.is_plausible(files.unit_at(file.base_offset), commit_log_max):
            return files.first(
                file.base_offset + files.unit.size,
                file.end_offset,
                lambda unit: not rules.is_plausible(unit, commit_log_max),
            )
    return files.min_offset


def _verify_from(files: UnitFiles, end: int, trusted_below: int) -> int:
    first = files.min_offset
    untrusted = files.first(first, end, lambda unit: unit[0] >= trusted_below)
    return max(first, untrusted - _UNITS_TO_VERIFY * files.unit.size)


def _find_verified_end(
    files: UnitFiles, rules: UnitRules, start: int, end: int, commit_log_max: int
) -> int:
    unit_size = files.unit.size
    previous = files.unit_at(start - unit_size) if start > files.min_offset else None
    position = start
    while position < end:
        units = files.read(position, min(end, position + _SLICE_UNITS * unit_size))
        count = rules.count_valid(units, previous, commit_log_max)
        position += count * unit_size
        if count * unit_size < len(units):
            break
        previous = files.unit.unpack(units[-unit_size:])
    return position


def read_short_queue_in_python(directory: str, log_end: int) -> tuple[int, int, bytes] | None:
    """Return file size, device and units of a queue with at most a page of sound units.

    That is a queue of single messages whose only file is the first one. Its units are sound one by
    one, in a log that ends at *log_end*, and only zeros follow them. Returns None for any other
    queue, and if anything fails: ``load`` and ``find_end`` read those.
    """
    try:
        if os.listdir(directory) != [_FIRST_FILE]:
            return None
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(f"{directory}/{_FIRST_FILE}", flags)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size <= _SHORT_BYTES:
            return None
        head = os.pread(descriptor, _SHORT_BYTES, 0)
        end = _sound_bytes(head, log_end)
        if not end or head[end:].strip(b"\0") or not _ends_short(descriptor, status.st_size):
            return None
        return status.st_size, status.st_dev, head[:end]
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _sound_bytes(head: bytes, log_end: int) -> int:
    end, before = 0, -1
    size = CONSUME_QUEUE_UNIT.size
    for unit in CONSUME_QUEUE_UNIT.iter_unpack(head[: len(head) // size * size]):
        if unit[0] <= before or not points_into_log(unit, log_end):
            break
        before = unit[0]
        end += size
    return end


def _ends_short(descriptor: int, size_bytes: int) -> bool:
    """Return whether a file has only zeros after its first page.

    Blocks that were allocated with the first page count as data while they are cached.
    """
    for start, end in ((_SHORT_BYTES, _STEP_BYTES), (_STEP_BYTES, size_bytes)):
        try:
            data = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            return error.errno == errno.ENXIO
        if data >= end or end == size_bytes:
            return False
        read = os.pread(descriptor, end - start, start)
        if len(read) < end - start or read.strip(b"\0"):
            return False
    return False


ReadShortQueue = Callable[[str, int], tuple[int, int, bytes] | None]
read_short_queue: ReadShortQueue = read_short_queue_in_python
if disk.COMPILED is not None:
    read_short_queue = disk.COMPILED.read_short_queue


class MappedUnits(ABC):
    """The files of one queue, and the mapping of the one that is written to.

    ``mapping`` holds the units from position ``mapping_start`` on. Without a mapping,
    ``mapping_start`` is higher than any position.
    """

    __slots__ = (
        "_append_limit",
        "_dirty",
        "_files",
        "_flushed",
        "_is_dirty",
        "_mappings",
        "_max_offset_when_checked",
        "mapping",
        "mapping_start",
        "max_offset",
    )
    UNIT: ClassVar[struct.Struct]
    UNIT_SIZE_BYTES: ClassVar[int]
    max_offset: int
    mapping: mmap.mmap | bytearray
    """The file that is written to, or its draft."""

    def __init__(
        self,
        directory: Path | str,
        file_size_bytes: int,
        dirty: "deque[MappedUnits]",
        mappings: Mappings,
    ) -> None:
        """The queue appends itself to *dirty* when it gets something to flush and had nothing."""
        self._mappings = mappings
        self._files = UnitFiles(directory, file_size_bytes, self.UNIT, self._map)
        self._files.reserve_step_bytes = _STEP_BYTES
        self._dirty = dirty
        self._is_dirty = False
        self._flushed = 0
        self._max_offset_when_checked = 0
        self._forget_mapping()

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        return self._files.directory

    @property
    def file_size_bytes(self) -> int:
        """The size of each file."""
        return self._files.file_size_bytes

    @property
    def is_dirty(self) -> bool:
        """Whether something may have been appended since the last flush."""
        return self._is_dirty

    @abstractmethod
    def _end_position(self) -> int:
        """Return the position after the last unit."""

    def _open_for(self, position: int) -> MappedFile:
        """Return the mapped file for a unit at *position*, after the last one; make it if missing.

        Raises:
            DiskFullError: no space for a new file; nothing has changed.
            TooManyOpenFilesError: no descriptor is free; nothing has changed.
            OSError: it could not be made or mapped; nothing has changed.
        """
        files = self._files.files
        if files and position < files[-1].end_offset:
            self._use(files[-1], position)
            return files[-1]
        relative = position % self.file_size_bytes
        end = relative + self.UNIT_SIZE_BYTES
        if not files and end <= self._files.file_size_bytes and self._mappings.may_draft(end):
            file = self._files.append_draft(position - relative)
            self._mappings.drafts.add(file)
            self._use(file, position)
            return file
        try:
            # After a kill, a queue begins with the first file that was made.
            self._mappings.with_room(self.write_draft)
            file = self._mappings.with_room(
                lambda: self._files.append_file(position - position % self.file_size_bytes)
            )
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise DiskFullError(
                    f"no room for a file of {self.file_size_bytes} bytes in {self.directory}: "
                    "free space, or lower fileReservedTime"
                ) from error
            raise
        try:
            self._use(file, position, start=0)
        except OSError:
            self._files.files.remove(file)
            file.delete()
            raise
        return file

    def _use(self, file: MappedFile, position: int, start: int | None = None) -> None:
        draft = file.draft_for(position - file.base_offset + self.UNIT_SIZE_BYTES)
        if draft is not None:
            self.mapping, self.mapping_start = draft, file.base_offset
            self._append_limit = (file.base_offset + len(draft)) // self.UNIT_SIZE_BYTES
            return
        limit = self._reserve(file, position, start)
        self.mapping = file.mapping
        self.mapping_start = file.base_offset
        self._append_limit = limit // self.UNIT_SIZE_BYTES

    def _reserve(self, file: MappedFile, position: int, start: int | None = None) -> int:
        """Allocate blocks for a unit at *position*, and from *start* on; return where they end.

        *start* counts from the start of the file.

        Raises:
            DiskFullError: the disk has no space.
            OSError: the allocation failed for another reason.
        """
        self._leave_draft()
        relative = position - file.base_offset
        needed = relative + self.UNIT_SIZE_BYTES
        step = _STEP_BYTES_MAX
        if file.base_offset == 0:
            step = max(_STEP_BYTES, min(step, 1 << needed.bit_length() - 1))
        end = -(-needed // step) * step
        begin = relative - relative % step if start is None else start
        try:
            self._mappings.with_room(lambda: file.reserve(begin, end))
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise DiskFullError(
                    f"no room for more units in {file.path}: free space, or lower fileReservedTime"
                ) from error
            raise
        return min(file.base_offset + end, file.end_offset)

    def _note_change(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)

    def glance(self) -> None:
        """Cache the first page of the last file, so that short queues need no mapping.

        The cache lasts until ``close``.

        Raises:
            TooManyOpenFilesError: no descriptor is free.
            OSError: its file cannot be read.
        """
        files = self._files.files
        if files:
            self._mappings.with_room(files[-1].glance)

    def _forget_mapping(self) -> None:
        self.mapping = UNMAPPED
        self.mapping_start = sys.maxsize
        self._append_limit = 0

    def _leave_draft(self) -> None:
        """Append no more to a draft: its file is about to be used."""
        if isinstance(self.mapping, bytearray):
            self._forget_mapping()

    def _map(self, file: MappedFile) -> mmap.mmap:
        self._leave_draft()
        mapping = self._mappings.map(file, self)
        if file in self._files.files[-1:]:
            # Read-ahead would fill the memory with unwritten pages, megabytes per queue.
            mapping.madvise(mmap.MADV_RANDOM)
        return mapping

    def has_grown(self, file: MappedFile) -> bool:
        """Return whether *file* is in use and anything was appended since the last call."""
        return file in self._files.files[-1:] and self._note_growth()

    def let_go(self, file: MappedFile) -> None:
        """Unmap *file*; the next access maps it again."""
        if self.mapping_start == file.base_offset:
            self._forget_mapping()
        file.unmap()

    def _note_growth(self) -> bool:
        before, self._max_offset_when_checked = self._max_offset_when_checked, self.max_offset
        return self.max_offset != before

    def release_if_idle(self) -> bool:
        """Drop the mappings if nothing was appended since the last call; return whether it did.

        The next access makes new ones. For the thread that appends, not for the flush thread.
        """
        was_idle = not self._note_growth() and not self._is_dirty
        if was_idle:
            self._release()
        return was_idle

    def _release(self) -> None:
        self._forget_mapping()
        self._files.unmap()

    def _release_unless_in_use(self) -> None:
        """Drop the mappings that were made only to read an idle queue."""
        if self.mapping is UNMAPPED:
            self._files.unmap()

    def flush(self, least_pages: int = 0) -> bool:
        """Make the units durable if at least *least_pages* pages, or a file, were filled.

        Blocks; the flush thread calls it. Returns whether anything was flushed.

        Raises:
            TooManyOpenFilesError: no descriptor is free; the queue stays dirty.
            OSError: its file cannot be made; the queue stays dirty, and nothing is lost.
            StoreFailedError: the content on disk is unknown.
        """
        try:
            self._make_draft()
        except OSError:
            self._dirty.append(self)
            raise
        end = self._end_position()
        start = self._flushed
        if self._is_short_of(least_pages, start, end):
            self._dirty.append(self)  # It stays dirty, and in the list of dirty queues.
            return False
        # Before the end is read again: a later append then marks the queue once more.
        self._is_dirty = False
        end = self._end_position()
        if end <= start:
            return False
        try:
            # Again: units may have been added to the draft since.
            self.write_draft()
            self._files.flush_range(start, end)
        except TooManyOpenFilesError:
            self._note_change()
            raise
        except OSError as error:
            raise StoreFailedError(
                f"{self.directory} could not be flushed ({error.strerror}), so messages are "
                "refused from now on: check the disk, then restart the broker"
            ) from error
        self._flushed = end
        return True

    def _make_draft(self) -> None:
        """Make the file of a new queue, in the flush thread; the next append then maps it."""
        files = tuple(self._files.files)
        if files and not files[0].is_made:
            self.write_draft()
            self._append_limit = 0
        self._mappings.drafts.difference_update(files)

    def write_draft(self) -> None:
        """Write the units of a new queue to its file, which is made if it is missing."""
        for file in tuple(self._files.files[:1]):
            file.write_draft(_STEP_BYTES)

    def note_synced(self, device: int) -> bool:
        """Note that the file system *device* was synced after the last append.

        Returns False, with nothing done, if the queue must be flushed nevertheless.
        """
        end = self._end_position()
        if end > self._flushed and not self._files.note_synced(self._flushed, end, device):
            return False
        self._is_dirty = False
        self._flushed = max(self._flushed, end)
        return True

    def _is_short_of(self, least_pages: int, start: int, end: int) -> bool:
        if not self._is_dirty or end <= start or end % self.file_size_bytes == 0:
            return False
        same_file = start // self.file_size_bytes == end // self.file_size_bytes
        return same_file and (end >> _PAGE_BITS) - (start >> _PAGE_BITS) < least_pages
