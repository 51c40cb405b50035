"""Find records in the files of the commit log, and the next record after damage."""

import mmap
import os
from collections.abc import Iterator

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.message_codec import check_record
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    MAGIC_BLANK,
    MAGIC_START,
)
from rockhopper.protocol.store.walking import read_record

_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big")
_ZEROS = bytes(8)
_LAST_RECORD_TRIES = 256


def record_at(log_files: MappedFileQueue, offset: int) -> Record | None:
    """Return the whole and undamaged record at *offset* of the commit log, or None."""
    file = log_files.file_at(offset) if offset >= 0 else None
    if file is None:
        return None
    return read_record(file.mapping, offset - file.base_offset, file.base_offset)


def record_start(log_files: MappedFileQueue, offset: int) -> int:
    """Return *offset* if a whole record starts there, else the start of its file or of the log."""
    if record_at(log_files, offset) is not None:
        return offset
    file = log_files.file_at(offset)
    return log_files.min_offset if file is None else file.base_offset


def read_damaged(data: mmap.mmap | bytes, position: int, base_offset: int) -> Record | None:
    """Return the record at *position* if only its body's CRC is wrong, else None."""
    available = len(data) - position
    check = check_record(data, position, available, base_offset + position)
    is_body_damaged = not check.is_ok and not check.is_blank and check.size_bytes > 0
    return read_record(data, position, base_offset, check_crc=False) if is_body_damaged else None


def explain_missing_record(data: mmap.mmap | bytes, position: int, base_offset: int) -> str:
    """Return the reason why ``read_record`` found no record."""
    available = len(data) - position
    if data[position : position + 8] == _ZEROS[: min(available, 8)]:
        return "zeros instead of a record"
    check = check_record(data, position, available, base_offset + position)
    if not check.is_ok:
        return check.reason or "a blank record that does not end with the file"
    if check.store_time_ms <= 0 or check.queue_id < 0 or check.queue_offset < 0:
        return "the record's store time, queue id or queue offset is invalid"
    return "the record's CRC is wrong"


def is_blank(data: mmap.mmap | bytes, position: int) -> bool:
    """Return whether the file's records end at *position*: a blank record, or no room for one."""
    available = len(data) - position
    if available < BLANK_RECORD.size:
        return True
    size, magic = BLANK_RECORD.unpack_from(data, position)
    return bool(magic == MAGIC_BLANK and size == available)


def is_zero(data: mmap.mmap | bytes, position: int) -> bool:
    """Return whether the bytes at *position* are zeros, written or not."""
    return data[position : position + 8] == _ZEROS


def find_next(file: MappedFile, position: int) -> int | None:
    """Return the first position, from *position* on, of a whole record or the closing blank.

    A record counts if it states this very offset and its sizes and CRC are right. So stale bytes
    from elsewhere do not count, but an image of a record in a message's body may (log_walk.py).
    """
    data = file.mapping
    # The first bytes of a size are zeros, so a record may begin just before the written range.
    ranges = [
        (max(start - 3, position), end) for start, end in _list_written_ranges(file, position)
    ]
    for start, end in ranges:
        for at in _positions(data, MAGIC_START, start, end):
            if read_record(data, at - 4, file.base_offset):
                return at - 4
    for start, end in reversed(ranges):
        for at in _positions(data, _BLANK_MAGIC, start, end):
            if is_blank(data, at - 4):
                return at - 4
    return None


def _list_written_ranges(file: MappedFile, position: int) -> list[tuple[int, int]]:
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return list(disk.data_ranges(descriptor, position, file.size_bytes))
    finally:
        os.close(descriptor)


def _positions(data: mmap.mmap, pattern: bytes, start: int, end: int) -> Iterator[int]:
    """Yield the positions of *pattern*, the second word of records that begin in [start, end)."""
    at = data.find(pattern, start + 4, end + 4)
    while at >= 0:
        yield at
        at = data.find(pattern, at + 1, end + 4)


def last_store_time_ms(file: MappedFile) -> int | None:
    """Return the store time of the last record in a full file; None if no record is found."""
    data = file.mapping
    newest: Record | None = None
    tries = _LAST_RECORD_TRIES
    at = data.rfind(MAGIC_START, 4)
    while at >= 4 and (newest is None or tries):
        record = read_record(data, at - 4, file.base_offset, check_crc=False)
        if record is not None and is_blank(data, record.end_offset - file.base_offset):
            return record.store_time_ms  # Not an image of one in the last record's body.
        newest = newest or record
        tries -= 1
        at = data.rfind(MAGIC_START, 4, at + len(MAGIC_START) - 1)
    return None if newest is None else newest.store_time_ms
