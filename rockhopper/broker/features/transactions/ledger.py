"""Ledger: writes the ends of transactions, and finds the open ones at the start.

RocketMQ's topics are the source of truth. A commit writes two records at once, the final message
first and then the op message; a rollback writes an op message. So a crash leaves one of:

    neither record          the half message is open: its producer ends it again, or is asked
    the final message only  committed: found by its preparedTransactionOffset, and never repeated
    both records            committed

After a power cut the disk may have the op message without the final message. RH_FINAL shows this,
and the half message is open again.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import structlog

from rockhopper.broker.features.transactions.half_messages import (
    HALF_QUEUE_ID,
    PROPERTY_FINAL_OFFSET,
    TRANSACTION_GROUP,
    immunity_ms,
    is_copy,
    op_body,
    op_properties,
    parse_finished_offsets,
)
from rockhopper.broker.features.transactions.open_halves import OpenHalf
from rockhopper.broker.kernel.scheduled.delays import WAITING_TOPICS
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Copy
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_UNIQUE_KEY,
    parse_whole_number,
)
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_COMMIT, SYS_FLAG_TRANSACTION_MASK

log = structlog.get_logger("broker.transactions")

READ_COUNT = 32
COPIES_LOOKED_AT_MAX = 32
END_OF_TIME_MS = 1 << 53


class EndResult(NamedTuple):
    """The result of an end: what the log contains now, and the error if it is incomplete.

    ``log_offset`` is the commit log offset of the copy, None when it is not in the log.
    """

    log_offset: int | None
    end_offset: int
    failure: StoreError | None


class Ledger:
    """Half, op and final messages of one store. Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetTable,
        *,
        has_index: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._has_index = has_index
        self._now_ms = now_ms
        # Of stores without an index: half message -> its final one, both by commit log offset.
        self._finals: dict[int, int] = {}
        # Log offset, half and op offset: what is finished once the disk holds the log up to there.
        self._snapshots: list[tuple[int, int, int]] = []
        self._noted = (0, 0)

    def finish(self, half: OpenHalf, copy: Copy | None = None) -> EndResult:
        """Store *copy*, if any, followed by the op message that ends *half*, in one write."""
        offsets = (half.offset, *half.copies)
        return self._write(copy, lambda log_offset: self._stage_op(offsets, log_offset))

    def store_copy(self, copy: Copy) -> EndResult:
        """Store *copy* by itself."""
        return self._write(copy, lambda _position: None)

    def _write(self, copy: Copy | None, then: Callable[[int | None], None]) -> EndResult:
        store = self._store
        log_offset: int | None = None
        failure: StoreError | None = None
        try:
            store.check_writable()
            store.staging.read_clock()
            if copy is not None:
                log_offset = store.staging.stage_again(copy)
            then(log_offset)
        except StoreError as error:
            failure = error
        try:
            store.commit()
        except StoreError as error:
            failure = failure or error
        end = store.log.written_offset
        # A log file may have ended between the two, and the disk may have no room for the next.
        if log_offset is not None and log_offset >= end:
            log_offset = None
        return EndResult(log_offset, end, failure)

    def _stage_op(self, offsets: tuple[int, ...], final_position: int | None) -> None:
        store = self._store
        store.staging.stage(
            store.staging.tail(TRANSACTION_OP_HALF_TOPIC, HALF_QUEUE_ID),
            op_body(offsets),
            op_properties(final_position),
            0,
            0,
            self._now_ms(),
            b"\x7f\0\0\1\0\0\0\0",
        )

    @property
    def half_end(self) -> int:
        """Return the end of the half queue."""
        return self._store.staging.tail(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID).next_offset

    @property
    def op_end(self) -> int:
        """Return the end of the op queue."""
        return self._store.staging.tail(TRANSACTION_OP_HALF_TOPIC, HALF_QUEUE_ID).next_offset

    def note_progress(self, first: OpenHalf | None) -> None:
        """Commit the offsets of RocketMQ's group, up to where transactions have durably ended.

        All half messages before *first*, the oldest open one, have ended; without *first*, all
        have. An offset is committed only once the op messages before it are on disk.
        """
        store = self._store
        place = (self.half_end, self.op_end) if first is None else (first.offset, first.op_floor)
        if place != self._noted:
            self._noted = place
            self._snapshots.append((store.log.written_offset, *place))
        flushed = store.log.flushed_offset
        while self._snapshots and self._snapshots[0][0] <= flushed:
            _, half_offset, op_offset = self._snapshots.pop(0)
            for topic, offset in (
                (TRANSACTION_HALF_TOPIC, half_offset),
                (TRANSACTION_OP_HALF_TOPIC, op_offset),
            ):
                self._offsets.commit(topic, TRANSACTION_GROUP, HALF_QUEUE_ID, offset)

    @property
    def awaits_flush(self) -> bool:
        """Whether an ended transaction may not be on disk yet."""
        return bool(self._snapshots)

    def half_at(self, log_offset: int) -> StoredMessage | None:
        """Return the half message at a commit log offset, which a client may have named."""
        store = self._store
        if not store.log.min_offset <= log_offset < store.log.written_offset:
            return None
        record = store.reading.reader.record(log_offset)
        message = decode_message(record) if record else None
        if message is None or message.topic != TRANSACTION_HALF_TOPIC:
            return None
        return message

    def rebuild(self) -> list[tuple[OpenHalf, int | None]]:
        """Yield the open half messages in order, and how long each needs no check.

        Some may be committed nevertheless: see ``has_final``.
        """
        op_floor = self._start_of(TRANSACTION_OP_HALF_TOPIC)
        start = self._start_of(TRANSACTION_HALF_TOPIC)
        self._noted = (start, op_floor)
        finished = self._list_finished(op_floor)
        halves: dict[int, tuple[OpenHalf, int | None]] = {}
        newest: dict[tuple[str, str], OpenHalf] = {}
        for message in self._read(TRANSACTION_HALF_TOPIC, start, finished):
            properties = message.properties
            half = OpenHalf(
                message.queue_offset,
                message.commit_log_offset,
                properties.get(PROPERTY_PRODUCER_GROUP, ""),
                message.store_time_ms,
                op_floor=op_floor,
                check_times=max(
                    parse_whole_number(properties.get(PROPERTY_TRANSACTION_CHECK_TIMES)), 0
                ),
                is_verified=False,
            )
            key = (half.group, properties.get(PROPERTY_UNIQUE_KEY, ""))
            former = newest.get(key)
            if former is not None and is_copy(properties):
                half.copies = (*former.copies, former.offset)
                del halves[former.offset]
            newest[key] = half
            halves[half.offset] = half, immunity_ms(properties)
        if halves and not self._has_index:
            self._read_finals([half for half, _ in halves.values()])
        return list(halves.values())

    def _start_of(self, topic: str) -> int:
        low, high = self._store.reading.queue_range(topic, HALF_QUEUE_ID)
        known = self._offsets.get(topic, TRANSACTION_GROUP, HALF_QUEUE_ID)
        return min(max(known or 0, low), high)

    def _list_finished(self, op_floor: int) -> set[int]:
        finished: set[int] = set()
        for message in self._read(TRANSACTION_OP_HALF_TOPIC, op_floor):
            final = parse_whole_number(message.properties.get(PROPERTY_FINAL_OFFSET))
            if final >= self._store.log.min_offset and not self._store.reading.reader.record(final):
                log.error(
                    "a crash lost a committed message, and its transaction is open again", at=final
                )
                continue
            finished.update(parse_finished_offsets(message.body))
        return finished

    def _read(
        self,
        topic: str,
        offset: int,
        skip: set[int] | frozenset[int] = frozenset(),
        queue_id: int = HALF_QUEUE_ID,
    ) -> Iterator[StoredMessage]:
        """Yield the messages of a queue from *offset* on, except the offsets in *skip*."""
        end = self._store.reading.queue_range(topic, queue_id)[1]
        while offset < end:
            if offset in skip:
                offset += 1
                continue
            result = self._store.reading.get_message(topic, queue_id, offset, READ_COUNT)
            if result.status is GetStatus.FOUND:
                for message in decode_messages(result.body):
                    if message.queue_offset not in skip:
                        yield message
            elif result.status is GetStatus.NO_MATCHED_MESSAGE:
                continue  # The entry is wrong, and each read takes the search for it further.
            offset = max(result.next_offset, offset + 1)

    def has_final(self, half: StoredMessage, *, has_copies: bool = False) -> bool:
        """Whether the log has the final message of *half*, or of another copy of it."""
        if not self._has_index:
            return half.commit_log_offset in self._finals
        has_copies = has_copies or is_copy(half.properties)
        return any(
            _is_final(message)
            and (has_copies or message.prepared_transaction_offset == half.commit_log_offset)
            for topic in (half.properties.get(PROPERTY_REAL_TOPIC, ""), *WAITING_TOPICS)
            for message in self.find_same_message(half, topic)
        )

    def find_same_message(self, half: StoredMessage, topic: str) -> Iterator[StoredMessage]:
        """Yield the messages in *topic* with the unique key and producer group of *half*."""
        unique_key = half.properties.get(PROPERTY_UNIQUE_KEY)
        if not unique_key or not topic:
            return
        group = half.properties.get(PROPERTY_PRODUCER_GROUP)
        for record in self._store.reading.query(
            topic, unique_key, COPIES_LOOKED_AT_MAX, 0, END_OF_TIME_MS
        ):
            message = decode_message(record)
            if message.properties.get(PROPERTY_PRODUCER_GROUP) == group:
                yield message

    def _read_finals(self, halves: list[OpenHalf]) -> None:
        """Without an index, search the target queues of *halves* for their final messages."""
        since_ms: dict[str, int] = {}
        for half in halves:
            message = self.half_at(half.log_offset)
            if message is not None:
                for topic in (message.properties.get(PROPERTY_REAL_TOPIC, ""), *WAITING_TOPICS):
                    since_ms.setdefault(topic, half.stored_ms)
        for topic, time_ms in since_ms.items():
            for queue_id in self._store.reading.queue_ids(topic):
                offset = self._store.reading.offset_by_time(topic, queue_id, time_ms, upper=False)
                for message in self._read(topic, offset, queue_id=queue_id):
                    if _is_final(message):
                        log_offset = message.prepared_transaction_offset
                        self._finals[log_offset] = message.commit_log_offset


def _is_final(message: StoredMessage) -> bool:
    """Whether a commit wrote *message*; the offset alone may be 0, the log's first record."""
    return message.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_COMMIT
