"""Reading messages of a queue: which records a pull gets, under which limits.

The rules are those of RocketMQ's DefaultMessageStore.getMessage: an answer is full at 32 messages
or 256 KiB while it lies within the newest part of the log (40 % of the memory), at 8 messages or
64 KiB behind that; the first message always passes; 800 entries are looked at before a pull that
matched nothing comes back empty. All of these numbers are settings.

Each record is compared with its entry each time it is read: place, size, topic, queue and offset
(checking.py). Where they disagree, the entry is mended from the log (entry_mending.py), so a bit
of it that turned costs no message. Bodies are compared with their CRC unless they are in the
log's tail, which is what came within the last seconds and was checked on arrival. A record that is
damaged costs the one message, is reported once, and never reaches a consumer.
"""

from collections.abc import Callable
from typing import NamedTuple

import structlog

from rockhopper.broker.store.log.checking import ANY_MESSAGE
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.log.fast_encoding import count_sound, select_sound
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.consume_queue_ext import is_address
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.reading.bulk_reading import gather, read_bulk
from rockhopper.broker.store.reading.filter_budget import FilterBudget
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.store.reading.property_stage import (
    MessageFilter,
    PropertyStage,
    PropertyTest,
)
from rockhopper.broker.store.recovering.entry_mending import EntryMender, is_of
from rockhopper.broker.store.recovering.record_places import RecordPlaces
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.sql92.sql_filter import SqlFilter
from rockhopper.protocol.store.message_codec import RecordCheck, check_record, decode_message
from rockhopper.protocol.store.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
)

log = structlog.get_logger("broker.store")

_iter_units = CONSUME_QUEUE_UNIT.iter_unpack
_iter_batch_units = BATCH_CONSUME_QUEUE_UNIT.iter_unpack
_pack_unit = CONSUME_QUEUE_UNIT.pack
# A unit that is wrong may state a size that it would take long to read.
_LARGE_BYTES = 1 << 16
_NEVER = 1 << 62
# Which message rotted is said of so many.
_NAMED_MAX = 100_000


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
        places: RecordPlaces,
        mender: EntryMender,
        limits: ReadLimits,
        resolve_ext: Callable[[str, int, int], int | None],
    ) -> None:
        self._log = commit_log
        self._places = places
        self._mender = mender
        self.limits = limits
        self._resolve_ext = resolve_ext
        self._reported: set[int] = set()
        self.tail_start = commit_log.written_offset
        """From where on bodies are not compared with their CRC."""
        self.damaged_count = 0
        """How many damaged messages readers or the scrub came across since the start."""
        self.budget = FilterBudget()
        self.stage = PropertyStage(commit_log, self.budget)

    def get(
        self,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        subscription: MessageFilter | None,
    ) -> GetResult:
        """Read up to *count_max* messages from *offset* on that *subscription* lets through."""
        low, high = queue.min_offset, queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)
        limits = self.limits
        count_max = min(count_max, limits.count_in_memory)
        scan_count = count_max if subscription is None else max(limits.scan_count, count_max)
        units = queue.read_units(offset, min(scan_count, high - offset))
        if not units:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
        first_log_offset = CONSUME_QUEUE_UNIT.unpack_from(units)[0]
        if self._log.written_offset - first_log_offset <= limits.memory_bytes:
            size_max = limits.size_bytes_in_memory
        else:
            count_max, size_max = min(count_max, limits.count_on_disk), limits.size_bytes_on_disk
        if subscription is None and not queue.is_light:
            gathered = gather(self._log, queue, units, offset, count_max, size_max, self.tail_start)
            if gathered is not None:
                count, body = gathered
                return GetResult(GetStatus.FOUND, offset + count, low, high, body, count)
        if subscription is None or subscription.matches_properties is None:
            return self._get_each(queue, units, offset, count_max, size_max, subscription)
        self.stage.begin()
        try:
            if subscription.sql is not None and not queue.is_light:
                selected = self._select(queue, units, offset, count_max, size_max, subscription.sql)
                if selected is not None:
                    scanned, count, body = selected
                    status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
                    return GetResult(status, offset + scanned, low, high, body, count)
            return self._get_each(queue, units, offset, count_max, size_max, subscription)
        finally:
            self.stage.end()

    def _select(
        self,
        queue: ConsumeQueue,
        units: bytes,
        offset: int,
        count_max: int,
        size_max: int,
        sql: SqlFilter,
    ) -> tuple[int, int, bytes] | None:
        """How many were looked at, how many *sql* wants, and their records; None for more to do."""
        stretch = self._log.mapped(CONSUME_QUEUE_UNIT.unpack_from(units)[0])
        test = self.stage.test_of(sql)
        if stretch is None or test is None:
            return None
        owner = queue.topic_field, queue.queue_id, offset
        chosen = select_sound(owner, units, count_max, size_max, stretch, self.tail_start, test)
        if chosen is not None:
            self.stage.tested_count += chosen[0]
        return chosen

    def _get_each(
        self,
        queue: ConsumeQueue,
        units: bytes,
        offset: int,
        count_max: int,
        size_max: int,
        subscription: MessageFilter | None,
    ) -> GetResult:
        """The careful way: filter, mend what is wrong, step over what is gone or lost."""
        status = GetStatus.NO_MATCHED_MESSAGE
        parts: list[bytes] = []
        size_all = 0
        next_offset = offset
        if subscription is not None:
            passing = subscription.tag_hashes
            verdict = self._verdict_on(queue, subscription)
        for log_offset, size, tags_code in _iter_units(units):
            if len(parts) >= count_max or (parts and size_all + size > size_max):
                break
            unit_offset = next_offset
            next_offset += 1
            if (
                subscription is not None
                and tags_code not in passing
                and not (wanted := verdict(log_offset, size, tags_code))
            ):
                if wanted is None:
                    next_offset = unit_offset
                    break
                if not parts:
                    status = GetStatus.NO_MATCHED_MESSAGE
                continue
            record = self._record(queue, unit_offset, log_offset, size)
            if record is None:
                next_offset = unit_offset
                break
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
        stage = self.stage
        stage.look_at_one()

        def by_properties(log_offset: int, size: int, tags_code: int) -> bool | None:
            if stage.is_spent():
                return None
            if not by_tag(log_offset, size, tags_code):
                return False
            # Of a record that is not the entry's the properties say nothing: look at it closer.
            return not stage.rejects(log_offset, size, test) or not self._agrees(log_offset, size)

        return by_properties

    def _agrees(self, log_offset: int, size: int) -> bool:
        """Whether what stands at *log_offset* has that size and says that it stands there."""
        return self._places.end_of(log_offset) == log_offset + size

    def _record(self, queue: UnitQueue, offset: int, log_offset: int, size: int) -> bytes | None:
        """The record of message *offset*; empty when it is gone, or lost, which is reported.

        None while it is being looked for: its entry is wrong.
        """
        if size <= _LARGE_BYTES or self._agrees(log_offset, size):
            record = self._log.read(log_offset, log_offset + size)
            if record and self._is_sound(queue, offset, log_offset, record):
                return record
        if 0 <= log_offset < self._log.min_offset and not self._is_out_of_line(queue, offset):
            return b""
        place = self._mender.right_place(queue, offset, log_offset, size)
        if place is None:
            return None
        if isinstance(place, str):
            return self._report(queue, offset, log_offset, place)
        log_offset, size = place
        record = self._log.read(log_offset, log_offset + size)
        if record and self._is_sound(queue, offset, log_offset, record):
            return record
        reason = _what_is_wrong(record, check_body=log_offset < self.tail_start)
        return record if reason is None else self._report(queue, offset, log_offset, reason)

    def _is_sound(self, queue: UnitQueue, offset: int, log_offset: int, record: bytes) -> bool:
        number = ANY_MESSAGE if queue.is_light else offset
        unit = _pack_unit(log_offset, len(record), 0)
        field, queue_id = queue.topic_field, queue.queue_id
        if count_sound(field, queue_id, number, unit, 1, record, self.tail_start) != 1:
            return False
        return not queue.is_light or is_of(
            check_record(record, 0, len(record), log_offset, False), queue, offset
        )

    def _is_out_of_line(self, queue: UnitQueue, offset: int) -> bool:
        """Whether an entry in front of the log stands behind one that is not."""
        before = queue.noted(offset - 1)
        return before is not None and before[0] >= self._log.min_offset

    def _report(self, queue: UnitQueue, offset: int, log_offset: int, reason: str) -> bytes:
        self.report(log_offset, reason, topic=queue.topic, queue=queue.queue_id, offset=offset)
        return b""

    def report(self, log_offset: int, reason: str, **message: str | int) -> None:
        """Count a damaged record and name it, once."""
        if log_offset in self._reported:
            return
        self.damaged_count += 1
        if len(self._reported) < _NAMED_MAX:
            self._reported.add(log_offset)
        log.error(
            "a stored message is damaged and is skipped",
            **message,
            commit_log_offset=log_offset,
            reason=reason,
        )

    @property
    def tested_count(self) -> int:
        """How many messages filters over properties looked into since the start."""
        return self.stage.tested_count

    def get_batch(
        self,
        queue: BatchConsumeQueue,
        offset: int,
        count_max: int,
        subscription: MessageFilter | None = None,
    ) -> GetResult:
        """As ``get`` for a topic of type BatchCQ; a record may hold several messages.

        As in RocketMQ an expression over properties is asked about the record as a whole.
        """
        test = None if subscription is None else subscription.matches_properties
        if test is None:
            return self._get_batch(queue, offset, count_max, None)
        self.stage.begin()
        try:
            return self._get_batch(queue, offset, count_max, test)
        finally:
            self.stage.end()

    def _get_batch(
        self, queue: BatchConsumeQueue, offset: int, count_max: int, test: PropertyTest | None
    ) -> GetResult:
        low, high = max(queue.min_offset, 0), queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)
        limits = self.limits
        parts: list[bytes] = []
        size_all = 0
        next_offset, count = offset, 0
        status = GetStatus.MESSAGE_WAS_REMOVING
        unit_count = min(max(count_max, 1), limits.count_in_memory)
        for log_offset, size, _, _, base, batch_count, _, _ in self._batch_units(
            queue, offset, unit_count
        ):
            too_many = count + batch_count > count_max
            if parts and (too_many or size_all + size > limits.size_bytes_in_memory):
                break
            if test is not None and self.stage.is_spent():
                break
            next_offset = base + batch_count
            if (
                test is not None
                and self.stage.rejects(log_offset, size, test)
                and self._agrees(log_offset, size)
            ):
                status = GetStatus.NO_MATCHED_MESSAGE
                continue
            record = self._record(queue, base, log_offset, size)
            if record is None:
                next_offset = max(base, offset)
                break
            if record:
                parts.append(record)
                size_all += len(record)
                count += batch_count
        if parts:
            status = GetStatus.FOUND
        return GetResult(status, next_offset, low, high, b"".join(parts), len(parts))

    def _batch_units(
        self, queue: BatchConsumeQueue, offset: int, count: int
    ) -> list[tuple[int, ...]]:
        """The units from a message on, mended if they do not follow each other.

        One more is read than is asked for: it says where the last one ends.
        """
        units = list(_iter_batch_units(queue.read_units(offset, count + 1)))
        if not queue.is_in_line(offset, units, to_end=len(units) <= count):
            self._mender.compare_near(queue, offset)
            units = list(_iter_batch_units(queue.read_units(offset, count + 1)))
        return units[:count]

    def get_bulk(
        self, queue: ConsumeQueue, offset: int, count_max: int, size_max: int
    ) -> GetResult:
        """As ``get`` without a filter, under limits of the caller's (bulk_reading.py)."""
        low, high = queue.min_offset, queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)

        def look_closer(queue_offset: int, log_offset: int, size: int) -> bytes | None:
            return self._record(queue, queue_offset, log_offset, size)

        return read_bulk(
            self._log, queue, offset, count_max, size_max, self.tail_start, look_closer
        )

    def record(self, log_offset: int) -> bytes:
        """The record that starts at *log_offset*, whoever says so; empty when none does."""
        found = self._places.record(log_offset)
        if found is None:
            return b""
        return found[0] if self.check_body(*found) else b""

    def check_body(self, record: bytes, check: RecordCheck) -> bool:
        """Whether the body of a record is as it came; what is not is reported."""
        unit = _pack_unit(check.commit_log_offset, len(record), 0)
        if count_sound(b"", 0, ANY_MESSAGE, unit, 1, record, _NEVER) == 1:
            return True
        reason = _what_is_wrong(record, check_body=True)
        if reason is None:
            return True
        self.report(
            check.commit_log_offset,
            reason,
            topic=check.topic,
            queue=check.queue_id,
            offset=check.queue_offset,
        )
        return False


def _what_is_wrong(record: bytes, *, check_body: bool) -> str | None:
    """Why *record*, of which the place is right, is damaged; None if it is not."""
    try:
        decode_message(record, check_crc=check_body)
    except ProtocolError as error:
        return str(error)
    return None


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
