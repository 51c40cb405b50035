"""Read the commit log record by record, and find the next record after damage.

``read_record`` is the quick way. For the common kinds of records it accepts the same as
``check_record`` of protocol/store/message_codec at half the cost, and leaves everything else to it.
In addition it requires a store time. If RocketMQ's ``enabledAppendPropCRC`` added a CRC to the
record, it checks that too. That CRC is in the last 20 bytes of the properties:

    __CRC32#  0x01  ten digits of the CRC-32 of all bytes before them, the lowest first  0x02

A record without that property is not checked in this way, whatever the setting forceVerifyPropCRC.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from zlib import crc32

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.message_codec import BODY_CRC_MASK, check_record
from rockhopper.protocol.store.message_codec.record_check import OWN_CRC_NAME, is_own_crc_right
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    HEAD_SIZE_BYTES,
    HOST_FLAGS_MASK,
    MAGIC_BLANK,
    MAGIC_START,
    MAGIC_V1,
    head_struct,
)

_HEAD = head_struct(
    "size_bytes",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "log_offset",
    "sys_flag",
    "store_time_ms",
    "body_size_bytes",
)
_UINT16 = struct.Struct(">H")
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big")
_ZEROS = bytes(8)
_LAST_RECORD_TRIES = 256

_unpack_head = _HEAD.unpack_from
_unpack_uint16 = _UINT16.unpack_from
_new = tuple.__new__


def read_record(
    data: mmap.mmap | bytes, position: int, base_offset: int, check_crc: bool = True
) -> Record | None:
    """Return the record at *position* of a file that starts at *base_offset*, or None."""
    end_max = len(data)
    if position + HEAD_SIZE_BYTES > end_max:
        return None
    (
        size,
        magic,
        crc,
        queue_id,
        queue_offset,
        offset,
        sys_flag,
        store_time_ms,
        body_size,
    ) = _unpack_head(data, position)
    if offset != base_offset + position or magic != MAGIC_V1 or sys_flag & HOST_FLAGS_MASK:
        return _read_uncommon(data, position, base_offset, check_crc)
    end = position + size
    body_start = position + HEAD_SIZE_BYTES
    body_end = body_start + body_size
    if end > end_max or body_size < 0 or body_end + 3 > end:
        return None
    topic_end = body_end + 1 + data[body_end]
    properties_start = topic_end + 2
    if (
        properties_start > end
        or _unpack_uint16(data, topic_end)[0] != end - properties_start
        or data[body_end] > 127
        or store_time_ms <= 0
        or queue_id < 0
        or queue_offset < 0
    ):
        return None
    properties = data[properties_start:end]
    if check_crc:
        if body_size and crc32(data[body_start:body_end]) & BODY_CRC_MASK != crc:
            return None
        if properties[-20:-11] == OWN_CRC_NAME and not is_own_crc_right(data[position:end]):
            return None
    topic = data[body_end + 1 : topic_end]
    if not topic.isascii():
        return _read_uncommon(data, position, base_offset, check_crc)
    # Half the cost of Record(...).
    return _new(
        Record, (offset, size, queue_id, queue_offset, sys_flag, store_time_ms, topic, properties)
    )


def _read_uncommon(
    data: mmap.mmap | bytes, position: int, base_offset: int, check_crc: bool
) -> Record | None:
    available = len(data) - position
    check = check_record(data, position, available, base_offset + position, check_crc)
    if not check.is_ok or check.store_time_ms <= 0 or check.queue_id < 0 or check.queue_offset < 0:
        return None
    end = position + check.size_bytes
    if (
        check_crc
        and check.properties_bytes[-20:-11] == OWN_CRC_NAME
        and not is_own_crc_right(data[position:end])
    ):
        return None
    return check.record


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
