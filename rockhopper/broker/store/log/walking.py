"""Walk plain records of the log by the thousand, and return their queue units and index keys.

A record is plain if its unit and its keys follow from it alone, belong to its own queue alone, and
none of its bytes needs a closer check. So it is of version 1 with IPv4 hosts, neither prepared nor
rolled back, holds no batch, has no delay level and no light queue; its topic can be a directory
name, and its properties are ASCII and do not end with a zero. The caller handles all other records.

``fast_encoding`` has the compiled form, which is in ``_walking.c``.
"""

from mmap import mmap
from typing import TypeAlias

from rockhopper.broker.store.log.encoding import TIMED_KEY
from rockhopper.broker.store.log.log_scan import read_record
from rockhopper.protocol.names import LMQ_PREFIX, SCHEDULE_TOPIC
from rockhopper.protocol.store.expected import LIGHT_QUEUES, Record, expected
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    HOST_FLAGS_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH, SYS_FLAG_TRANSACTION_PREPARED

_NOT_PLAIN = HOST_FLAGS_MASK | SYS_FLAG_TRANSACTION_PREPARED | SYS_FLAG_INNER_BATCH
_V1 = MAGIC_V1.to_bytes(4, "big")
_SIZE_MIN = {
    MAGIC_V1: RECORD_SIZE_BYTES_MIN,
    MAGIC_V2: RECORD_SIZE_BYTES_MIN,
    MAGIC_BLANK: BLANK_RECORD.size,
}


PlainRun: TypeAlias = tuple[str, int, int, int, bytes, int, int, int]
"""Consecutive messages of one queue: topic, queue id, offset of the first one, how many, units, the
commit log offsets of the first one and after the last one, and the store time of the last one.
Records of other queues may be between theirs."""

Found: TypeAlias = tuple[int, int, int, list[PlainRun], bytes]
"""A stretch of plain records: its end, the number of records, the store time of the last one (0
without any), their runs, ordered by first record, and a TIMED_KEY for every key, in the order of
the log. A queue has several runs if its offsets have gaps."""


def walk_plain(
    data: mmap | bytes, position: int, end: int, base_offset: int, check_crc: bool
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


def whole_end(data: mmap | bytes, position: int, end: int) -> int:
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
