"""Reading messages of a queue: which records a pull gets, under which limits.

The rules are those of RocketMQ's DefaultMessageStore.getMessage: an answer is full at 32 messages
or 256 KiB while it lies within the newest part of the log (40 % of the memory), at 8 messages or
64 KiB behind that; the first message always passes; 800 entries are looked at before a pull that
matched nothing comes back empty.  All of these numbers are settings.

What this process wrote is in its page cache as it was checked on arrival.  Older records are
verified each time they are read (position, topic, queue, offset, body CRC), so a byte that rotted
on disk costs the one message, is reported once, and never reaches a consumer.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

import structlog

from broker.store.batch_consume_queue import BatchConsumeQueue
from broker.store.bulk_reading import read_bulk
from broker.store.commit_log import CommitLog
from broker.store.consume_queue import ConsumeQueue
from broker.store.consume_queue_ext import is_address
from broker.store.get_result import GetResult, GetStatus
from broker.store.property_stage import MessageFilter, PropertyStage
from protocol.errors import ProtocolError
from protocol.message_codec import (
    BODY_CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
    decode_message,
)
from protocol.names import LMQ_PREFIX
from protocol.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT_SIZE_BYTES,
)
from protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

log = structlog.get_logger("broker.store")

# Up to so many entries are compared at once.
_SIDE_BY_SIDE_MAX = 32
_iter_units = CONSUME_QUEUE_UNIT.iter_unpack
_iter_batch_units = BATCH_CONSUME_QUEUE_UNIT.iter_unpack
_SIZES = [struct.Struct(">" + "8xi8x" * count) for count in range(_SIDE_BY_SIDE_MAX + 1)]
_POSITION = struct.Struct(">q")
_LAST = struct.Struct(">qi")
_HEAD = struct.Struct(">IIIiiqqi")
_INT32 = struct.Struct(">i")


class ReadLimits(NamedTuple):
    """What one answer may hold, for messages in memory and for those that must be read from disk.

    ``memory_bytes`` behind the end of the log count as in memory; ``scan_count`` entries are looked
    at when a filter lets nothing through.
    """

    memory_bytes: int
    count_in_memory: int
    size_bytes_in_memory: int
    count_on_disk: int
    size_bytes_on_disk: int
    scan_count: int


class MessageReader:
    """Reads queues over one commit log."""

    def __init__(
        self,
        commit_log: CommitLog,
        trusted_from: int,
        limits: ReadLimits,
        resolve_ext: Callable[[str, int, int], int | None],
    ) -> None:
        """Records from *trusted_from* on were written by this process and are not verified."""
        self._log = commit_log
        self._trusted_from = trusted_from
        self._limits = limits
        self._resolve_ext = resolve_ext
        self._reported: set[int] = set()
        self._stage = PropertyStage(commit_log)

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        count_max: int,
        subscription: MessageFilter | None,
    ) -> GetResult:
        """Read up to *count_max* messages from *offset* on that *subscription* lets through."""
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)
        limits = self._limits
        count_max = min(count_max, limits.count_in_memory)
        scan_count = count_max if subscription is None else max(limits.scan_count, count_max)
        units = queue.read_units(offset, min(scan_count, high - offset))
        if not units:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
        first_position = CONSUME_QUEUE_UNIT.unpack_from(units)[0]
        if self._log.written_offset - first_position <= limits.memory_bytes:
            size_max = limits.size_bytes_in_memory
        else:
            count_max, size_max = min(count_max, limits.count_on_disk), limits.size_bytes_on_disk
        if subscription is None and first_position >= self._trusted_from:
            ranges, count = _contiguous(units, count_max, size_max)
            read = self._log.read
            parts = [read(start, end) for start, end in ranges]
            if all(parts):
                body = parts[0] if len(parts) == 1 else b"".join(parts)
                return GetResult(GetStatus.FOUND, offset + count, low, high, body, count)
        return self._get_each(queue, units, offset, count_max, size_max, subscription)

    def _get_each(
        self,
        queue: ConsumeQueue,
        units: bytes,
        offset: int,
        count_max: int,
        size_max: int,
        subscription: MessageFilter | None,
    ) -> GetResult:
        """The careful way: filter, verify what is old, step over what is gone."""
        status = GetStatus.NO_MATCHED_MESSAGE
        parts: list[bytes] = []
        size_all = 0
        next_offset = offset
        low_position = self._log.min_offset
        if subscription is not None:
            passing = subscription.tag_hashes
            verdict = self._verdict_on(queue, subscription)
        for position, size, tags_code in _iter_units(units):
            if len(parts) >= count_max or (parts and size_all + size > size_max):
                break
            unit_offset = next_offset
            next_offset += 1
            if (
                subscription is not None
                and tags_code not in passing
                and not (wanted := verdict(position, size, tags_code))
            ):
                if wanted is None:
                    next_offset = unit_offset
                    break
                if not parts:
                    status = GetStatus.NO_MATCHED_MESSAGE
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

    def _verdict_on(
        self, queue: ConsumeQueue, subscription: MessageFilter
    ) -> Callable[[int, int, int], bool | None]:
        """Whether a filter wants a unit's message; None when the read should end in front of it."""
        matches_hash = subscription.matches_hash

        def by_tag(_position: int, _size: int, tags_code: int) -> bool:
            if is_address(tags_code):
                resolved = self._resolve_ext(queue.topic, queue.queue_id, tags_code)
                if resolved is None:
                    return True
                tags_code = resolved
            return matches_hash(tags_code)

        test = subscription.matches_properties
        if test is None:
            return by_tag
        stage = self._stage
        stage.begin()

        def by_properties(position: int, size: int, tags_code: int) -> bool | None:
            if stage.is_spent():
                return None
            return by_tag(position, size, tags_code) and not stage.rejects(position, size, test)

        return by_properties

    def _verified(
        self, queue: ConsumeQueue | BatchConsumeQueue, offset: int, position: int, size: int
    ) -> bytes:
        """The record of message *offset*; empty when it is gone or, which is reported, damaged."""
        record = self._log.read(position, position + size)
        if position >= self._trusted_from or not record:
            return record
        reason = _what_is_wrong(record, position)
        if reason is None and not queue.topic.startswith(LMQ_PREFIX):
            reason = _whose_it_is(record, queue.topic, queue.queue_id, offset)
        if reason is None:
            return record
        return self._report(queue, offset, position, reason)

    def _report(
        self,
        queue: ConsumeQueue | BatchConsumeQueue,
        offset: int,
        position: int,
        reason: str,
    ) -> bytes:
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
    def tested_count(self) -> int:
        """How many messages filters over properties looked into since the start."""
        return self._stage.tested_count

    @property
    def damaged_count(self) -> int:
        """How many damaged messages readers came across since the start."""
        return len(self._reported)

    def get_batch(
        self,
        queue: BatchConsumeQueue | None,
        offset: int,
        count_max: int,
        subscription: MessageFilter | None = None,
    ) -> GetResult:
        """As ``get`` for a topic of type BatchCQ; a record may hold several messages.

        As in RocketMQ an expression over properties is asked about the record as a whole.
        """
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = max(queue.min_offset, 0), queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)
        limits = self._limits
        parts: list[bytes] = []
        size_all = 0
        next_offset, count = offset, 0
        status = GetStatus.MESSAGE_WAS_REMOVING
        test = None if subscription is None else subscription.matches_properties
        for position, size, _, _, base, batch_count, _, _ in _iter_batch_units(
            queue.read_units(offset, min(max(count_max, 1), limits.count_in_memory))
        ):
            too_many = count + batch_count > count_max
            if parts and (too_many or size_all + size > limits.size_bytes_in_memory):
                break
            next_offset = base + batch_count
            if test is not None and self._stage.rejects(position, size, test):
                status = GetStatus.NO_MATCHED_MESSAGE
                continue
            record = self._verified(queue, base, position, size)
            if record:
                parts.append(record)
                size_all += size
                count += batch_count
        if parts:
            status = GetStatus.FOUND
        return GetResult(status, next_offset, low, high, b"".join(parts), len(parts))

    def get_bulk(
        self, queue: ConsumeQueue, offset: int, count_max: int, size_max: int
    ) -> GetResult:
        """As ``get`` without a filter, under limits of the caller's (bulk_reading.py)."""
        low, high = queue.min_offset, queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)

        def look_closer(queue_offset: int, position: int) -> bytes:
            (_, size, _) = CONSUME_QUEUE_UNIT.unpack(queue.read_units(queue_offset, 1))
            return self._verified(queue, queue_offset, position, size)

        return read_bulk(
            self._log, queue, offset, count_max, size_max, self._trusted_from, look_closer
        )

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


def _what_is_wrong(record: bytes, position: int) -> str | None:
    """Why *record* is not a sound one that belongs at *position*; None if it is."""
    if _is_sound(record, position):
        return None
    try:
        message = decode_message(record, check_crc=True)
    except ProtocolError as error:
        return str(error)
    return f"a record of {message.size_bytes} bytes says it is at {message.commit_log_offset}"


def _whose_it_is(record: bytes, topic: str, queue_id: int, offset: int) -> str | None:
    """Whose message *record* is, as a sentence; None if it is the one that was looked for."""
    _, magic, _, record_queue_id, _, record_offset, _, _ = _HEAD.unpack_from(record)
    name = topic.encode()
    field = len(name).to_bytes(1 if magic == MAGIC_V1 else 2, "big") + name
    _, topic_at = _body_range(record)
    if (record_queue_id, record_offset) == (queue_id, offset) and record.startswith(
        field, topic_at
    ):
        return None
    message = decode_message(record)
    return (
        f"the record is message {message.queue_offset} of queue {message.queue_id} of topic "
        f"{message.topic}"
    )


def _is_sound(record: bytes, position: int) -> bool:
    """Whether a record is the one for *position*, its sizes add up, and its body is as it came."""
    if len(record) < RECORD_SIZE_BYTES_MIN:
        return False
    size, magic, crc, _, _, _, stated_position, _ = _HEAD.unpack_from(record)
    if size != len(record) or stated_position != position:
        return False
    body_at, topic_at = _body_range(record)
    if not body_at <= topic_at <= size - 4:
        return False
    if crc32(record[body_at:topic_at]) & BODY_CRC_MASK != crc:
        return False
    if magic == MAGIC_V1:
        properties_at = topic_at + 1 + record[topic_at]
    elif magic == MAGIC_V2:
        properties_at = topic_at + 2 + int.from_bytes(record[topic_at : topic_at + 2], "big")
    else:
        return False
    properties_size = int.from_bytes(record[properties_at : properties_at + 2], "big")
    return bool(properties_at + 2 + properties_size == size)


def _body_range(record: bytes) -> tuple[int, int]:
    """Where a record says that its body starts and ends; the topic follows."""
    (sys_flag,) = _INT32.unpack_from(record, 36)
    size_at = 84
    if sys_flag & SYS_FLAG_BORN_HOST_V6:
        size_at += 12
    if sys_flag & SYS_FLAG_STORE_HOST_V6:
        size_at += 12
    if size_at + 4 > len(record):
        return size_at + 4, -1
    return size_at + 4, size_at + 4 + _INT32.unpack_from(record, size_at)[0]


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


def _contiguous(units: bytes, count_max: int, size_max: int) -> tuple[list[tuple[int, int]], int]:
    """Merge neighbouring records into ranges; return them, and the number of messages in them."""
    count = len(units) // CONSUME_QUEUE_UNIT_SIZE_BYTES
    if count <= min(count_max, _SIDE_BY_SIDE_MAX):
        # Records do not overlap: if their sizes add up to the span, they stand side by side.
        size_all = sum(_SIZES[count].unpack(units))
        start = _POSITION.unpack_from(units)[0]
        position, size = _LAST.unpack_from(units, len(units) - CONSUME_QUEUE_UNIT_SIZE_BYTES)
        if position + size - start == size_all and (size_all <= size_max or count == 1):
            return [(start, start + size_all)], count
    return _ranges(units, count_max, size_max)


def _ranges(units: bytes, count_max: int, size_max: int) -> tuple[list[tuple[int, int]], int]:
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
    return ranges, count
