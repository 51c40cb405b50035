"""Walk the commit log: every record from an offset on, the damage in between, and the end.

Three things look alike at first; the bytes after them tell them apart:

    the end of the log   zeros, or the torn rest of a write; nothing valid after it
    a hole               damage with a valid record after it, or before ``proven_end``
    the end of a file    a blank record up to the file's end

Example: the log has records at 0, 100 and 200, and zeros from 300 on. The head of the one at 100 is
damaged. The walk yields 0, finds the next valid record at 200, notes the hole [100, 200), yields
200 and ends at 300. If the record at 200 is missing too, the log ends at 100, unless ``proven_end``
is after it: then [100, ``proven_end``) is a hole.

The walk skips a hole. If only the body of a record is damaged, its head still identifies the
message: such a record is yielded with ``is_damaged`` set. ``cut_tail`` cuts the log off at its end,
and saves the bytes that were cut.

How far a hole reaches is checked closely, so that no message body is read as records. A body may
hold images of records, even with the very log offsets at which the images are. If the head in front
of such a body is damaged, the images look like the records after the damage. These facts tell them
apart:

- the size of the damaged record, from the queue entry that points at it or from the rest of its
  head, which states it twice: whole, and by the sizes of its parts;
- the queue entry that an image claims, if it points elsewhere;
- the bytes after the image: a real record is followed by records.

One case passes all checks: an image made so that it leads exactly to the end of the record that
holds it, if that record's head and every queue entry are lost. Nothing on disk tells it apart.
"""

import mmap
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import (
    explain_missing_record,
    find_next,
    is_blank,
    is_zero,
    read_damaged,
    record_at,
)
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.fast_walking import walk_plain
from rockhopper.protocol.store.record_head import (
    BORN_TIME_AT,
    MAGIC_AT,
    MAGIC_START,
    RECORD_SIZE_BYTES_MIN,
    SYS_FLAG_AT,
    body_start,
)
from rockhopper.protocol.store.walking import Found, read_record

STRETCH_BYTES = 4 << 20
# A search through all queues is expensive; in a badly damaged log it must not dominate.
_QUEUES_SEARCHED_MAX = 200_000
# No message is larger (maxMessageSize and its properties).
_BODY_BYTES_MAX = 17 << 20
_PAGE_BYTES = 512
_SLICE_BYTES = 1 << 20


class Hole(NamedTuple):
    """A range of commit log offsets that holds no usable record."""

    start: int
    end: int
    reason: str


class QueueWitnesses:
    """The evidence that consume queues give about the records of a log."""

    def __init__(self, queues: ConsumeQueueTable, log_files: MappedFileQueue) -> None:
        self._queues = queues
        self._log_files = log_files
        self._searches_left = _QUEUES_SEARCHED_MAX

    def end_of(self, offset: int) -> int | None:
        """Return where the record at *offset* ends, by the entry that points at it; or None."""
        for queue in self._queues.list_reaching_beyond(offset):
            if self._searches_left <= 0:
                break
            self._searches_left -= 1
            found = queue.find_unit(offset)
            if found is not None and found[1][0] == offset:
                return sum(found[1])
        return None

    def opinion(self, record: Record) -> bool | None:
        """Return whether the entry that *record* claims confirms it; None without such evidence."""
        topic = record.topic.decode(errors="replace")
        queue = self._queues.get(topic, record.queue_id)
        unit = None if queue is None else queue.read_noted(record.queue_offset)
        if unit is None:
            return None
        if unit[:2] == (record.offset, record.size_bytes):
            return True
        if unit[0] < record.offset < unit[0] + unit[1]:
            return False
        holder = record_at(self._log_files, unit[0])
        is_taken = holder is not None and (holder.topic, holder.queue_id, holder.queue_offset) == (
            record.topic,
            record.queue_id,
            record.queue_offset,
        )
        return False if is_taken else None


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
            self._add_hole(offset, beyond, explain_missing_record(data, position, base_offset))
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
        return find_stated_end(file, position) or position + 1

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


def leads_on(file: MappedFile, position: int) -> bool:
    """Return whether records follow from *position* to the end of file or log, or past any body.

    Damage on the way is skipped if it states its own size. A page that was never written counts as
    damage too, not as the rest of a body.
    """
    data = file.mapping
    far = position + _BODY_BYTES_MAX
    while position < min(far, file.size_bytes):
        record = read_record(data, position, file.base_offset)
        if record is not None:
            position += record.size_bytes
        elif is_blank(data, position) or _is_zero_to_page_end(data, position):
            break
        elif (behind := find_stated_end(file, position)) is not None:
            position = behind
        else:
            return False
    return True


def _is_zero_to_page_end(data: mmap.mmap, position: int) -> bool:
    page_end = (position // _PAGE_BYTES + 1) * _PAGE_BYTES
    return is_zero(data, position) and not data[position:page_end].strip(b"\0")


def find_stated_end(file: MappedFile, position: int) -> int | None:
    """Return where a damaged record at *position* ends, by the rest of its head, or None."""
    data = file.mapping
    whole, parts = _end_by_size(data, position), _end_by_parts(data, position)
    if whole is not None and whole == parts:
        return whole
    ends = [end for end in (whole, parts) if end is not None]
    followed = [end for end in ends if read_record(data, end, file.base_offset) is not None]
    if followed:
        return max(followed)
    # Zeros are common: a size that leads to zeros only counts if the rest looks like a head.
    if data[position + MAGIC_AT : position + MAGIC_AT + 3] != MAGIC_START:
        return None
    closed = [end for end in ends if is_blank(data, end) or _is_zero_to_page_end(data, end)]
    return max(closed, default=None)


def _end_by_size(data: mmap.mmap, position: int) -> int | None:
    size = int.from_bytes(data[position : position + MAGIC_AT], "big")
    return position + size if RECORD_SIZE_BYTES_MIN <= size <= len(data) - position else None


def _end_by_parts(data: mmap.mmap, position: int) -> int | None:
    sys_flag = int.from_bytes(data[position + SYS_FLAG_AT : position + BORN_TIME_AT], "big")
    at = position + body_start(sys_flag)
    at += int.from_bytes(data[at - 4 : at], "big")
    if at + 3 > len(data):
        return None
    at += 1 + data[at]
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    return end if end <= len(data) else None


class CutTail(NamedTuple):
    """Bytes cut off after the end of the log, up to the last nonzero one."""

    offset: int
    size_bytes: int
    kept_as: str


def cut_tail(layout: StoreLayout, files: MappedFileQueue, end: int) -> CutTail | None:
    """End the log at *end*: copy the bytes after it to the quarantine, then zero them, durably.

    Returns None if there were only zeros after it.

    Raises:
        OSError: the log may still have its old content.
    """
    tail = None
    for file in files.files:
        if file.end_offset > end:
            start = max(end, file.base_offset)
            kept = _keep_tail(layout, file, start)
            if kept is not None and tail is not None:
                kept = CutTail(tail.offset, tail.size_bytes + kept.size_bytes, tail.kept_as)
            tail = kept or tail
    files.truncate_to(end)
    return tail


def _keep_tail(layout: StoreLayout, file: MappedFile, start: int) -> CutTail | None:
    position = start - file.base_offset
    last = _last_written(file, position)
    if last < position:
        return None
    target = layout.quarantine / f"commitlog-{start:020d}"
    kept_as = disk.copy_aside(file.path, target, position, last + 1)
    return CutTail(start, last + 1 - position, str(kept_as))


def is_all_zeros(file: MappedFile) -> bool:
    """Return whether all bytes of *file* are zero."""
    return _last_written(file, 0) < 0


def _last_written(file: MappedFile, position: int) -> int:
    """Return the position of the last nonzero byte from *position* on; −1 if there is none."""
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        ranges = list(disk.data_ranges(descriptor, position, file.size_bytes))
    finally:
        os.close(descriptor)
    for start, end in reversed(ranges):
        while end > start:
            slice_start = max(start, end - _SLICE_BYTES)
            written = file.read(slice_start, end).rstrip(b"\0")
            if written:
                return slice_start + len(written) - 1
            end = slice_start
    return -1
