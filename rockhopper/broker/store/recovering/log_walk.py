"""Walk the commit log: every record from an offset on, the damage in between, and the end.

Three things look alike at first; the bytes after them tell them apart:

    the end of the log   zeros, or the torn rest of a write; nothing valid after it
    a hole               damage with a valid record after it, or before ``proven_end``
    the end of a file    a blank record up to the file's end

The walk checks closely how far a hole reaches (damage.py), because a body may hold bytes that look
like records. It skips a hole. If only the body of a record is damaged, its head still identifies
the message: such a record is yielded with ``is_damaged`` set.

Example: the log has records at 0, 100 and 200, and zeros from 300 on. The head of the one at 100 is
damaged. The walk yields 0, finds the next valid record at 200, notes the hole [100, 200), yields
200 and ends at 300. If the record at 200 is missing too, the log ends at 100, unless ``proven_end``
is after it: then [100, ``proven_end``) is a hole.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.fast_encoding import walk_plain
from rockhopper.broker.store.log.log_scan import (
    Record,
    find_next,
    is_blank,
    is_zero,
    read_damaged,
    read_record,
    why_not,
)
from rockhopper.broker.store.log.walking import Found
from rockhopper.broker.store.recovering.damage import QueueWitnesses, leads_on, stated_end

STRETCH_BYTES = 4 << 20


class Hole(NamedTuple):
    """A range of commit log offsets that holds no usable record."""

    start: int
    end: int
    reason: str


class LogWalk:
    """One walk over *files*, from *start* on.

    During the walk, ``holes`` are those found so far, ``is_damaged`` is about the yielded record,
    and ``last_store_time_ms`` is that of the last undamaged one, 0 before the first. Afterwards
    ``end`` is where the log ends.
    """

    def __init__(
        self,
        files: Sequence[MappedFile],
        start: int,
        *,
        proven_end: int = 0,
        quiet_from: int | None = None,
        check_crc: bool = True,
        is_stale: Callable[[Record], bool] = lambda record: False,
        witnesses: QueueWitnesses | None = None,
    ) -> None:
        """*start* must be the start of a record or of a file, or the end of the log.

        Up to *proven_end* the log was on disk once. Zeros at or after *quiet_from* end the log
        without a look at the bytes after them: for a start after a clean stop. *is_stale* is
        called with the first record after damage, and returns whether it is a leftover that does
        not count.
        """
        self._files = files
        self._check_crc = check_crc
        self._is_stale = is_stale
        self._witnesses = witnesses
        self._proven_end = min(proven_end, files[-1].end_offset) if files else 0
        self._quiet_from = quiet_from
        self._valid_from = -1
        self._refused_end = 0
        self.start = max(start, files[0].base_offset) if files else 0
        self.end = self.start
        self.holes: list[Hole] = []
        self.is_damaged = False
        self.last_store_time_ms = 0
        self.record_count = 0

    def records(self, take: Callable[[Found], bool] | None = None) -> Iterator[Record]:
        """Yield the records one by one.

        With *take*, stretches of plain records are passed to it first. Their records are yielded
        only if it returns False.
        """
        offset = self.start
        for number, file in enumerate(self._files):
            if file.end_offset <= offset:
                continue
            if file.base_offset > offset:
                self._add_hole(offset, file.base_offset, "a file of the commit log is missing")
                offset = file.base_offset
            offset = yield from self._records_of(number, offset - file.base_offset, take)
            if offset < file.end_offset:
                break
            file.unmap()  # A mapping holds a descriptor, and a log may have many files.
        self.end = offset

    def _records_of(
        self, number: int, position: int, take: Callable[[Found], bool] | None
    ) -> Generator[Record, None, int]:
        """Walk one file; return where to continue, before the file's end if the log ends there."""
        file = self._files[number]
        data = file.mapping
        base_offset = file.base_offset
        check_crc = self._check_crc
        while True:
            if take is not None:
                position = self._take_stretches(file, position, take)
            record = read_record(data, position, base_offset, check_crc)
            if record is not None and record[7].endswith(b"\0") and self._is_torn(number, record):
                return base_offset + position
            if record is not None:
                self.last_store_time_ms = record.store_time_ms
                self.record_count += 1
                yield record
                position += record[1]
                continue
            if is_blank(data, position):
                return file.end_offset
            offset = base_offset + position
            beyond = self._find_end_of_damage(number, position)
            if beyond is None:
                return offset
            damaged = read_damaged(data, position, base_offset)
            if damaged is not None and damaged.end_offset <= beyond:
                beyond = damaged.end_offset
            self._add_hole(offset, beyond, why_not(data, position, base_offset))
            if damaged is not None and damaged.end_offset == beyond:
                self.is_damaged = True
                yield damaged
                self.is_damaged = False
            if beyond >= file.end_offset:
                return beyond
            position = beyond - base_offset

    def _take_stretches(
        self, file: MappedFile, position: int, take: Callable[[Found], bool]
    ) -> int:
        """Return the position from which to continue record by record."""
        base_offset = file.base_offset
        while base_offset + position >= self._refused_end:
            end = position + STRETCH_BYTES
            found = walk_plain(file.mapping, position, end, base_offset, self._check_crc)
            if not (found[1] and take(found)):
                self._refused_end = base_offset + found[0]
                break
            position, self.last_store_time_ms = found[0], found[2]
            self.record_count += found[1]
        return position

    def _is_torn(self, number: int, record: Record) -> bool:
        """Return whether a valid record that ends with zeros lacks its last bytes.

        No CRC covers the properties, so this is checked where the log may end.
        """
        if record.end_offset <= self._proven_end:
            return False
        file = self._files[number]
        position = record.end_offset - file.base_offset
        if read_record(file.mapping, position, file.base_offset) or is_blank(
            file.mapping, position
        ):
            return False
        return self._find_valid(number, position) is None

    def _add_hole(self, start: int, end: int, reason: str) -> None:
        self.holes.append(Hole(start, end, reason))

    def _find_end_of_damage(self, number: int, position: int) -> int | None:
        """Return where the log continues after damage at *position*; None if it ends there."""
        file = self._files[number]
        offset = file.base_offset + position
        is_quiet = self._quiet_from is not None and offset >= self._quiet_from
        if is_quiet and offset >= self._proven_end and is_zero(file.mapping, position):
            return None
        if self._valid_from <= offset:
            found = self._find_valid(number, self._end_of_damaged(number, position))
            self._valid_from = self._proven_end if found is None else found
        return self._valid_from if self._valid_from > offset else None

    def _end_of_damaged(self, number: int, position: int) -> int:
        """Return from which position in its file to search after a damaged record."""
        file = self._files[number]
        noted = None
        if self._witnesses is not None:
            noted = self._witnesses.end_of(file.base_offset + position)
        if noted is not None and noted <= file.end_offset:
            return noted - file.base_offset
        return stated_end(file, position) or position + 1

    def _find_valid(self, number: int, position: int) -> int | None:
        for file in self._files[number:]:
            found = find_next(file, position)
            while found is not None:
                record = read_record(file.mapping, found, file.base_offset)
                if record is None:
                    return file.base_offset + found
                if self._is_stale(record):
                    found = find_next(file, found + record.size_bytes)
                elif self._is_image(file, record, is_expected=found == position):
                    found = find_next(file, found + 1)
                else:
                    return file.base_offset + found
            position = 0
        return None

    def _is_image(self, file: MappedFile, record: Record, *, is_expected: bool) -> bool:
        """Return whether a seeming record after damage is only an image in a body."""
        opinion = self._witnesses.opinion(record) if self._witnesses is not None else None
        if opinion is not None:
            return not opinion
        return not is_expected and not leads_on(file, record.end_offset - file.base_offset)
