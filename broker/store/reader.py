"""Reading messages of a queue: which records a pull gets, under which limits.

The rules are those of RocketMQ's DefaultMessageStore.getMessage: a batch is full at 32 messages or
256 KiB while it lies within the newest part of the log (40 % of the memory), at 8 messages or
64 KiB behind that; the first message always passes; at least 800 entries are looked at before a
pull that matched nothing comes back empty.

What this process wrote is in its page cache as it was checked on arrival.  Older records are
verified each time they are read (position, topic, queue, offset, body CRC), so a byte that rotted
on disk costs the one message, is reported once, and never reaches a consumer.
"""

import struct
from collections.abc import Callable
from zlib import crc32

import structlog

from broker.store.batch_consume_queue import BatchConsumeQueue
from broker.store.commit_log import CommitLog
from broker.store.consume_queue import ConsumeQueue
from broker.store.consume_queue_ext import is_address
from broker.store.get_result import GetResult, GetStatus
from protocol.errors import ProtocolError
from protocol.message_codec import BODY_CRC_MASK, MAGIC_V1, MAGIC_V2, decode_message
from protocol.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT_SIZE_BYTES,
)
from protocol.subscription import Subscription
from protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

log = structlog.get_logger("broker.store")

COUNT_MAX_IN_MEMORY = 32
SIZE_BYTES_MAX_IN_MEMORY = 262_144
COUNT_MAX_ON_DISK = 8
SIZE_BYTES_MAX_ON_DISK = 65_536
SCAN_UNITS_MIN = 800
_iter_units = CONSUME_QUEUE_UNIT.iter_unpack
_iter_batch_units = BATCH_CONSUME_QUEUE_UNIT.iter_unpack
_SIZES = [struct.Struct(">" + "8xi8x" * count) for count in range(COUNT_MAX_IN_MEMORY + 1)]
_POSITION = struct.Struct(">q")
_LAST = struct.Struct(">qi")
_HEAD = struct.Struct(">IIIiiqqi")
_INT32 = struct.Struct(">i")


class MessageReader:
    """Reads queues over one commit log."""

    def __init__(
        self,
        commit_log: CommitLog,
        trusted_from: int,
        memory_bytes: int,
        resolve_ext: Callable[[str, int, int], int | None],
    ) -> None:
        """Records from *trusted_from* on were written by this process and are not verified."""
        self._log = commit_log
        self._trusted_from = trusted_from
        self._memory_bytes = memory_bytes
        self._resolve_ext = resolve_ext
        self._reported: set[int] = set()

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        count_max: int,
        subscription: Subscription | None,
    ) -> GetResult:
        """Read up to *count_max* messages from *offset* on that *subscription* lets through."""
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)
        log_end = self._log.written_offset
        scan_count = count_max if subscription is None else max(SCAN_UNITS_MIN, count_max)
        units = queue.read_units(offset, min(scan_count, high - offset))
        if not units:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
        first_position = CONSUME_QUEUE_UNIT.unpack_from(units)[0]
        if log_end - first_position <= self._memory_bytes:
            count_max, size_max = min(count_max, COUNT_MAX_IN_MEMORY), SIZE_BYTES_MAX_IN_MEMORY
        else:
            count_max, size_max = min(count_max, COUNT_MAX_ON_DISK), SIZE_BYTES_MAX_ON_DISK
        if subscription is None and first_position >= self._trusted_from:
            ranges, count, examined = _contiguous(units, count_max, size_max)
            read = self._log.read
            body = (
                read(*ranges[0])
                if len(ranges) == 1
                else b"".join([read(start, end) for start, end in ranges])
            )
            return GetResult(GetStatus.FOUND, offset + examined, low, high, body, count)
        return self._get_each(queue, units, offset, count_max, size_max, subscription)

    def _get_each(
        self,
        queue: ConsumeQueue,
        units: bytes,
        offset: int,
        count_max: int,
        size_max: int,
        subscription: Subscription | None,
    ) -> GetResult:
        """The careful way: filter by tag, verify what is old, step over what is gone."""
        status = GetStatus.NO_MATCHED_MESSAGE
        parts: list[bytes] = []
        size_all = 0
        next_offset = offset
        low_position = self._log.min_offset
        for position, size, tags_code in _iter_units(units):
            if len(parts) >= count_max or (parts and size_all + size > size_max):
                break
            unit_offset = next_offset
            next_offset += 1
            if subscription is not None and not self._matches(queue, tags_code, subscription):
                continue
            record = b""
            if position >= low_position:
                record = self._verified(queue, unit_offset, position, size)
            if record:
                parts.append(record)
                size_all += size
            elif not parts:
                status = GetStatus.MESSAGE_WAS_REMOVING
        if parts:
            status = GetStatus.FOUND
        return GetResult(
            status, next_offset, queue.min_offset, queue.max_offset, b"".join(parts), len(parts)
        )

    def _matches(self, queue: ConsumeQueue, tags_code: int, subscription: Subscription) -> bool:
        if is_address(tags_code):
            resolved = self._resolve_ext(queue.topic, queue.queue_id, tags_code)
            if resolved is None:
                return True
            tags_code = resolved
        return subscription.matches_hash(tags_code)

    def _verified(self, queue: ConsumeQueue, offset: int, position: int, size: int) -> bytes:
        record = self._log.read(position, position + size)
        if position >= self._trusted_from or not record or _is_sound(record, position):
            return record
        try:
            message = decode_message(record, check_crc=True)
        except ProtocolError as error:
            return self._report(queue, offset, position, str(error))
        reason = f"a record of {message.size_bytes} bytes says it is at {message.commit_log_offset}"
        return self._report(queue, offset, position, reason)

    def _report(self, queue: ConsumeQueue, offset: int, position: int, reason: str) -> bytes:
        if position not in self._reported:
            self._reported.add(position)
            log.error(
                "a stored message is damaged and is skipped",
                topic=queue.topic,
                queue=queue.queue_id,
                offset=offset,
                commit_log_offset=position,
                reason=reason,
            )
        return b""

    @property
    def damaged_count(self) -> int:
        """How many damaged messages readers came across since the start."""
        return len(self._reported)

    def get_batch(self, queue: BatchConsumeQueue | None, offset: int, count_max: int) -> GetResult:
        """As ``get`` for a topic of type BatchCQ; a record may hold several messages."""
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = max(queue.min_offset, 0), queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)
        parts: list[bytes] = []
        size_all = 0
        next_offset, count = offset, 0
        for position, size, _, _, base, batch_count, _, _ in _iter_batch_units(
            queue.read_units(offset, COUNT_MAX_IN_MEMORY)
        ):
            too_many = count + batch_count > count_max
            if parts and (too_many or size_all + size > SIZE_BYTES_MAX_IN_MEMORY):
                break
            next_offset = base + batch_count
            record = self._log.read(position, position + size)
            if record:
                parts.append(record)
                size_all += size
                count += batch_count
        status = GetStatus.FOUND if parts else GetStatus.MESSAGE_WAS_REMOVING
        return GetResult(status, next_offset, low, high, b"".join(parts), len(parts))

    def record(self, position: int) -> bytes:
        """The verified record that starts at *position*; empty when none does."""
        record = self._log.record_at(position) if position >= 0 else b""
        if not record:
            return b""
        try:
            message = decode_message(record, check_crc=True)
        except ProtocolError:
            return b""
        return record if message.commit_log_offset == position else b""


def _is_sound(record: bytes, position: int) -> bool:
    """Whether a record is the one for *position*, its sizes add up, and its body is as it came."""
    size, magic, crc, _, _, _, stated_position, sys_flag = _HEAD.unpack_from(record)
    if size != len(record) or stated_position != position:
        return False
    body_at = 84
    if sys_flag & SYS_FLAG_BORN_HOST_V6:
        body_at += 12
    if sys_flag & SYS_FLAG_STORE_HOST_V6:
        body_at += 12
    (body_size,) = _INT32.unpack_from(record, body_at)
    topic_at = body_at + 4 + body_size
    if body_size < 0 or topic_at + 4 > size:
        return False
    if crc32(record[body_at + 4 : topic_at]) & BODY_CRC_MASK != crc:
        return False
    if magic == MAGIC_V1:
        properties_at = topic_at + 1 + record[topic_at]
    elif magic == MAGIC_V2:
        properties_at = topic_at + 2 + int.from_bytes(record[topic_at : topic_at + 2], "big")
    else:
        return False
    properties_size = int.from_bytes(record[properties_at : properties_at + 2], "big")
    return bool(properties_at + 2 + properties_size == size)


def _range_status(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def _contiguous(
    units: bytes, count_max: int, size_max: int
) -> tuple[list[tuple[int, int]], int, int]:
    """Merge neighbouring records into ranges; return them, the messages in them, the units used."""
    count = len(units) // CONSUME_QUEUE_UNIT_SIZE_BYTES
    if count <= min(count_max, COUNT_MAX_IN_MEMORY):
        # Records do not overlap: if their sizes add up to the span, they stand side by side.
        size_all = sum(_SIZES[count].unpack(units))
        start = _POSITION.unpack_from(units)[0]
        position, size = _LAST.unpack_from(units, len(units) - CONSUME_QUEUE_UNIT_SIZE_BYTES)
        if position + size - start == size_all and (size_all <= size_max or count == 1):
            return [(start, start + size_all)], count, count
    return _ranges(units, count_max, size_max)


def _ranges(units: bytes, count_max: int, size_max: int) -> tuple[list[tuple[int, int]], int, int]:
    ranges: list[tuple[int, int]] = []
    start = end = -1
    size_all = count = 0
    for position, size, _ in _iter_units(units):
        if count and (count >= count_max or size_all + size > size_max):
            break
        if position != end:
            if count:
                ranges.append((start, end))
            start = position
        end = position + size
        size_all += size
        count += 1
    ranges.append((start, end))
    return ranges, count, count
