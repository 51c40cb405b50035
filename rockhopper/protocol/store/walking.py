"""Walk plain records of the log by the thousand, and return their queue units and index keys.

A record is plain if its unit and its keys follow from it alone, belong to its own queue alone, and
none of its bytes needs a closer check. So it is of version 1 with IPv4 hosts, neither prepared nor
rolled back, holds no batch, has no delay level and no light queue; its topic can be a directory
name, and its properties are ASCII and do not end with a zero. The caller handles all other records.

``fast_walking`` has the compiled form, which is in ``_walking.c``.

``read_record`` is the quick way to a single record. For the common kinds it accepts the same as
``check_record`` of message_codec at half the cost, and leaves everything else to it. In addition it
requires a store time. If RocketMQ's ``enabledAppendPropCRC`` added a CRC to the record, it checks
that too. That CRC is in the last 20 bytes of the properties:

    __CRC32#  0x01  ten digits of the CRC-32 of all bytes before them, the lowest first  0x02

A record without that property is not checked in this way, whatever the setting forceVerifyPropCRC.
"""

import mmap
import struct
from typing import TypeAlias
from zlib import crc32

from rockhopper.protocol.names import LMQ_PREFIX, SCHEDULE_TOPIC
from rockhopper.protocol.store.expected import LIGHT_QUEUES, Record, expected
from rockhopper.protocol.store.message_codec import BODY_CRC_MASK, check_record
from rockhopper.protocol.store.message_codec.record_check import OWN_CRC_NAME, is_own_crc_right
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    HEAD_SIZE_BYTES,
    HOST_FLAGS_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
    head_struct,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH, SYS_FLAG_TRANSACTION_PREPARED

_NOT_PLAIN = HOST_FLAGS_MASK | SYS_FLAG_TRANSACTION_PREPARED | SYS_FLAG_INNER_BATCH
_V1 = MAGIC_V1.to_bytes(4, "big")
_SIZE_MIN = {
    MAGIC_V1: RECORD_SIZE_BYTES_MIN,
    MAGIC_V2: RECORD_SIZE_BYTES_MIN,
    MAGIC_BLANK: BLANK_RECORD.size,
}


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
_unpack_head = _HEAD.unpack_from
_unpack_uint16 = _UINT16.unpack_from
_new = tuple.__new__

TIMED_KEY = struct.Struct(">Iqq")
"""A key of the index: its hash, the commit log offset and the store time of its message."""

PlainRun: TypeAlias = tuple[str, int, int, int, bytes, int, int, int]
"""Consecutive messages of one queue: topic, queue id, offset of the first one, how many, units, the
commit log offsets of the first one and after the last one, and the store time of the last one.
Records of other queues may be between theirs."""

Found: TypeAlias = tuple[int, int, int, list[PlainRun], bytes]
"""A stretch of plain records: its end, the number of records, the store time of the last one (0
without any), their runs, ordered by first record, and a TIMED_KEY for every key, in the order of
the log. A queue has several runs if its offsets have gaps."""


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


def walk_plain(
    data: mmap.mmap | bytes, position: int, end: int, base_offset: int, check_crc: bool
) -> Found:
    """Walk over the plain records that begin in [*position*, *end*) of a file.

    *base_offset* is the commit log offset of the file's first byte. Changes nothing.
    """
    runs: list[_Growing] = []
    newest: dict[tuple[bytes, int], _Growing] = {}
    keys: list[bytes] = []
    record_count = store_time_ms = 0
    while position < end:
        record = read_record(data, position, base_offset, check_crc)
        if record is None or not is_plain(record, data[position + 4 : position + 8]):
            break
        run = newest.get((record.topic, record.queue_id))
        if run is None or run.next_offset != record.queue_offset:
            run = newest[record.topic, record.queue_id] = _Growing(record)
            runs.append(run)
        keys += run.append_record(record)
        position += record.size_bytes
        record_count += 1
        store_time_ms = record.store_time_ms
    return position, record_count, store_time_ms, [run.finish() for run in runs], b"".join(keys)


def whole_end(data: mmap.mmap | bytes, position: int, end: int) -> int:
    """Return where the last whole record in [*position*, *end*) ends, by the stated sizes.

    The blank record at a file's end counts. Stops before bytes that are not a record.
    """
    end = min(end, len(data))
    while position <= end - BLANK_RECORD.size:
        size, magic = BLANK_RECORD.unpack_from(data, position)
        size_min = _SIZE_MIN.get(magic)
        if size_min is None or not size_min <= size <= end - position:
            break
        position += size
    return position


def is_plain(record: Record, magic: bytes) -> bool:
    """Return whether ``walk_plain`` can handle *record*."""
    topic = record.topic.decode()
    return (
        magic == _V1
        and not record.sys_flag & _NOT_PLAIN
        and topic.isascii()
        and topic not in ("", ".", "..", SCHEDULE_TOPIC)
        and not topic.startswith(LMQ_PREFIX)
        and not any(char in topic for char in "/\\\0")
        and record.properties.isascii()
        and LIGHT_QUEUES not in record.properties
        and not record.properties.endswith(b"\0")
    )


class _Growing:
    """A run to which records are still added."""

    def __init__(self, first: Record) -> None:
        self._topic = first.topic.decode()
        self._first = self._last = first
        self._units: list[bytes] = []

    @property
    def next_offset(self) -> int:
        return self._first.queue_offset + len(self._units)

    def append_record(self, record: Record) -> list[bytes]:
        """Add *record*; return its keys."""
        (unit,), keys = expected(record, is_batch=False, delay_ms=_no_delay)
        self._units.append(CONSUME_QUEUE_UNIT.pack(*unit.fields(is_batch=False)))
        self._last = record
        return [TIMED_KEY.pack(key, record.offset, record.store_time_ms) for key in keys]

    def finish(self) -> PlainRun:
        first, last = self._first, self._last
        return (
            self._topic,
            first.queue_id,
            first.queue_offset,
            len(self._units),
            b"".join(self._units),
            first.offset,
            last.end_offset,
            last.store_time_ms,
        )


def _no_delay(level: int) -> int:
    raise AssertionError(f"a plain record has no delay level, but this one has {level}")
