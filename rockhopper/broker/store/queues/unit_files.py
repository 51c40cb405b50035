"""UnitFiles: numbered files full of units of one size, and the search for the end of the units.

Units follow each other from the start of the first file; zeros follow the last. A unit's first two
fields are a commit log offset and the size of the record there, and commit log offsets grow from
unit to unit. So every "where does … begin" is a binary search.

After a crash that is only almost true. Pages of a file reach the disk in any order, so there may be
a hole before units that were written; and RocketMQ leaves stale units after the end when it cuts a
queue. ``find_end`` therefore reads, one by one, the units that may be affected.

Example: units 0, 1 and 2 point to records at 0, 100 and 200. Unit 1 was not on disk when the power
failed, and reads as zeros. The binary search may end after unit 2; the check one by one ends
after unit 0. Recovery cuts there, and adds units 1 and 2 again from the log.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from rockhopper.broker.store.files.mapped_file import MapFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.protocol.store.queue_layout import BLANK_UNIT_SIZE_FIELD

Unit = tuple[int, ...]

# This many units are read before those that may not have been on disk.
_UNITS_TO_VERIFY = 1024
_SLICE_UNITS = 4096


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
