"""Read messages of a queue: which records a pull gets, and under which limits.

The rules are those of RocketMQ's DefaultMessageStore.getMessage. A response is full at 32 messages
or 256 KiB within the newest part of the log (40 % of the memory), and at 8 messages or 64 KiB
before that. The first message always fits. A pull that matches nothing returns empty after 800
entries. All of these numbers are settings.

Each read compares the record with its entry: place, size, topic, queue and offset (checking.py). If
they disagree, the entry is repaired from the log (entry_repair.py), so a flipped bit in it loses
no message. The CRC of a body is checked unless the record is in the log's tail, that is, arrived
within the last seconds and was checked then. A damaged record costs one message, is logged once,
and is never delivered to a consumer.
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
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.store.reading.property_stage import (
    FilterBudget,
    MessageFilter,
    PropertyStage,
    PropertyTest,
)
from rockhopper.broker.store.recovering.entry_repair import EntryRepair, RecordPlaces, is_of
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
# A damaged unit may state a size that would take long to read.
_LARGE_BYTES = 1 << 16
_NEVER = 1 << 62
# Only this many damaged messages are remembered, to log each once.
_NAMED_MAX = 100_000


class ReadLimits(NamedTuple):
    """The limits of one response, for messages in memory and for those read from disk.

    Messages within ``memory_bytes`` of the end of the log count as in memory. ``scan_count``
    entries are examined if a filter matches none.
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
        mender: EntryRepair,
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
        """The CRCs of bodies from this log offset on are not checked."""
        self.damaged_count = 0
        """How many damaged messages reads or the scrub have found since the start."""
        self.budget = FilterBudget()
        self.stage = PropertyStage(commit_log, self.budget)

    def get(
        self,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        subscription: MessageFilter | None,
    ) -> GetResult:
        """Read up to *count_max* messages from *offset* on that match *subscription*."""
        low, high = queue.min_offset, queue.max_offset
        refused = _range_status(offset, low, high)
        if refused is not None:
            return GetResult(*refused, low, high)
        limits = self.limits
        count_max = min(count_max, limits.count_in_memory)
        scan_count = count_max if subscription is None else max(limits.scan_count, count_max)
        units = queue.read_units(offset, scan_count)
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
        self.stage.start_read()
        try:
            if subscription.sql is not None and not queue.is_light:
                selected = self._select(queue, units, offset, count_max, size_max, subscription.sql)
                if selected is not None:
                    scanned, count, body = selected
                    status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
                    return GetResult(status, offset + scanned, low, high, body, count)
            return self._get_each(queue, units, offset, count_max, size_max, subscription)
        finally:
            self.stage.finish_read()

    def _select(
        self,
        queue: ConsumeQueue,
        units: bytes,
        offset: int,
        count_max: int,
        size_max: int,
        sql: SqlFilter,
    ) -> tuple[int, int, bytes] | None:
        """Return how many were scanned, how many match *sql*, and their records.

        Returns None if ``_get_each`` must read them instead.
        """
        stretch = self._log.find_mapping(CONSUME_QUEUE_UNIT.unpack_from(units)[0])
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
        """Filter, repair wrong entries, and skip deleted or lost records: slow, but complete."""
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
        """Return a function that decides whether a filter matches a unit's message.

        It returns None if the read should end before the message.
        """
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
            # The properties of a record that does not match its entry prove nothing: read it
            # closely.
            return not stage.rejects(log_offset, size, test) or not self._agrees(log_offset, size)

        return by_properties

    def _agrees(self, log_offset: int, size: int) -> bool:
        """Return whether the record at *log_offset* states that offset and *size*."""
        return self._places.end_of(log_offset) == log_offset + size

    def _record(self, queue: UnitQueue, offset: int, log_offset: int, size: int) -> bytes | None:
        """Return the record of message *offset*; empty if it is deleted, or lost (and reported).

        Returns None while the record is being searched, because its entry is wrong.
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
        reason = _describe_fault(record, check_body=log_offset < self.tail_start)
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
        """Return whether an entry that points before the log follows one that does not."""
        before = queue.read_noted(offset - 1)
        return before is not None and before[0] >= self._log.min_offset

    def _report(self, queue: UnitQueue, offset: int, log_offset: int, reason: str) -> bytes:
        self.report(log_offset, reason, topic=queue.topic, queue=queue.queue_id, offset=offset)
        return b""

    def report(self, log_offset: int, reason: str, **message: str | int) -> None:
        """Count and log a damaged record, once."""
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
        """How many messages property filters have read since the start."""
        return self.stage.tested_count

    def get_batch(
        self,
        queue: BatchConsumeQueue,
        offset: int,
        count_max: int,
        subscription: MessageFilter | None = None,
    ) -> GetResult:
        """Do the same as ``get`` for a BatchCQ topic; a record may hold several messages.

        As in RocketMQ, a property filter tests the record as a whole.
        """
        test = None if subscription is None else subscription.matches_properties
        if test is None:
            return self._get_batch(queue, offset, count_max, None)
        self.stage.start_read()
        try:
            return self._get_batch(queue, offset, count_max, test)
        finally:
            self.stage.finish_read()

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
        """Return the units from a message on, repaired if they do not follow each other.

        One more than *count* is read, because it shows where the last one ends.
        """
        units = list(_iter_batch_units(queue.read_units(offset, count + 1)))
        if not queue.is_in_line(offset, units, to_end=len(units) <= count):
            self._mender.compare_near(queue, offset)
            units = list(_iter_batch_units(queue.read_units(offset, count + 1)))
        return units[:count]

    def get_bulk(
        self, queue: ConsumeQueue, offset: int, count_max: int, size_max: int
    ) -> GetResult:
        """Do the same as ``get`` without a filter, under the caller's limits (bulk_reading.py)."""
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
        """Return the record at *log_offset*, any number; empty if no record starts there."""
        found = self._places.record(log_offset)
        if found is None:
            return b""
        return found[0] if self.check_body(*found) else b""

    def check_body(self, record: bytes, check: RecordCheck) -> bool:
        """Return whether the body of a record is undamaged; report it if not."""
        unit = _pack_unit(check.commit_log_offset, len(record), 0)
        if count_sound(b"", 0, ANY_MESSAGE, unit, 1, record, _NEVER) == 1:
            return True
        reason = _describe_fault(record, check_body=True)
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


def _describe_fault(record: bytes, *, check_body: bool) -> str | None:
    """Return why *record*, whose place is right, is damaged; None if it is not."""
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
