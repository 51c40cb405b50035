"""Transactions: half messages, their ends, and the messages held for an operator.

    a producer sends a half message         Sender stores it and calls ``opened``
    the producer ends the transaction (37)  ends.py stores the final message and an op message, or
                                            only the op message
    the producer does not end it            check_back.py asks the producer (39)
    the producer never answers              check_back.py holds the half message in
                                            TRANS_CHECK_MAX_TIME_TOPIC until an operator resumes it
                                            (323)

RocketMQ: TransactionalMessageServiceImpl, TransactionalMessageBridge, EndTransactionProcessor.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import structlog

from rockhopper.broker.feature import FeaturePart, GrpcHalf
from rockhopper.broker.features.transactions.check_back import CheckBack
from rockhopper.broker.features.transactions.check_counts import CheckCounts
from rockhopper.broker.features.transactions.ends import TransactionEnds
from rockhopper.broker.features.transactions.half_messages import (
    HALF_QUEUE_ID,
    HalfSends,
    immunity_ms,
)
from rockhopper.broker.features.transactions.ledger import Ledger
from rockhopper.broker.features.transactions.metrics import transaction_families
from rockhopper.broker.features.transactions.open_halves import OpenHalf, OpenHalves
from rockhopper.broker.features.transactions.plain_ends import PlainEnds
from rockhopper.broker.features.transactions.processors import TransactionProcessors
from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.scheduled.last_flush import last_flush
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.put import Copy
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQUE_KEY,
)

log = structlog.get_logger("broker.transactions")

SETTLE_INTERVAL_S = 5.0
# Transactions that ended behind one that is open, and that a start would have to read, before the
# open one is put behind them.
ENDED_BEHIND_MAX = 100_000
MOVED_AT_ONCE_MAX = 200
COPIES_KEPT = 4


class Transactions(FeaturePart):
    """The transactions of one broker. Belongs to the event loop."""

    def __init__(self, kernel: Kernel, counts: CheckCounts) -> None:
        config, store, topics = kernel.config, kernel.store, kernel.tables.topics
        # For durations, and for comparisons with producers' times.
        now_ms, wall_ms = kernel.clock.steady_ms, kernel.clock.wall_ms
        self._settings = config.transactions
        self._store = store
        self._topics = topics
        self._now_ms = now_ms
        self.halves = OpenHalves()
        self.ledger = Ledger(
            store, kernel.tables.offsets, has_index=config.store.index_enabled, now_ms=now_ms
        )
        self.counts = counts
        self.ends = TransactionEnds(
            store,
            topics,
            kernel.stats,
            self.halves,
            self.ledger,
            counts,
            kernel.scheduled.redirect,
            now_ms=wall_ms,
        )
        self.check_back = CheckBack(kernel, self.halves, self.ledger, counts, self.ends)
        self.ends.checks = self.check_back
        store.opened.reserved_time.has_taken_care.append(self.check_back.has_looked_since)
        kernel.listeners.append(self.check_back)
        self._settle_timer: asyncio.TimerHandle | None = None
        self.processors = TransactionProcessors(store, self.ledger, self.ends, self.resume).rows()
        self.fast = PlainEnds(kernel, self.halves, self.ends)
        self.halves_opened = self.opened_together
        self.divert_half = HalfSends(config, self).divert

    def start(self) -> None:
        """Find the open half messages and start the checks; needs an event loop."""
        counted_ms = self.check_back.counted_ms()
        ahead_ms = self._now_ms() - counted_ms
        for half, immune_ms in self.ledger.rebuild():
            if half.stored_ms > counted_ms:
                half.ahead_ms = ahead_ms
            half.check_times = max(half.check_times, self.counts.get(half.offset))
            self.halves.register(half, half.stored_ms + self._patience_ms(immune_ms))
        self.counts.keep_only({half.offset for half in self.halves})
        if self.halves:
            log.info("open transactions found", count=len(self.halves))
        self.check_back.start()
        self._settle_later()

    def stop(self) -> None:
        """Stop the checks; ends are still accepted."""
        self.check_back.stop()
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None

    def abandon(self) -> None:
        """Stop without saving progress, because the open half messages are unknown."""
        self.stop()

    async def close(self) -> None:
        """Stop, and save the progress. The store must still be open."""
        self.stop()
        store = self._store
        self.settle()
        if self.ledger.awaits_flush:
            await last_flush(store, store.log.written_offset)
        self.settle()

    def _settle_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._settle_timer = loop.call_later(SETTLE_INTERVAL_S, self._settle_again)

    def _settle_again(self) -> None:
        self._move_up()
        self.settle()
        self.counts.save_soon()
        self._settle_later()

    def settle(self) -> None:
        self.ledger.note_progress(self.halves.first())

    def _move_up(self) -> None:
        """Append old open half messages again if many later ones have ended."""
        for _ in range(MOVED_AT_ONCE_MAX):
            half = self.halves.first()
            if half is None or half.is_committed:
                return
            ended = self.ledger.half_end - half.offset - len(self.halves)
            if ended <= ENDED_BEHIND_MAX or not self._move(half):
                return

    def _move(self, half: OpenHalf) -> bool:
        message = self.ledger.half_at(half.log_offset)
        if message is None or self.ends.find_final(half, message):
            self.check_back.look_soon(half)
            return False
        origin = message.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
        properties = message.properties | {
            PROPERTY_TRANSACTION_CHECK_TIMES: str(half.check_times),
            PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: origin or str(half.offset),
        }
        offset, op_floor = self.ledger.half_end, self.ledger.op_end
        copy = Copy(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID, message, properties)
        written = self.ledger.finish(half, copy)
        if written.log_offset is None:
            return False
        moved = OpenHalf(
            offset,
            written.log_offset,
            half.group,
            half.stored_ms,
            op_floor=op_floor,
            check_times=half.check_times,
            # What the producer knows, and what it was asked about lately.
            copies=(*half.copies, half.offset)
            if len(half.copies) < COPIES_KEPT
            else (half.copies[0], *half.copies[2:], half.offset),
        )
        moved.ahead_ms = half.ahead_ms
        self.halves.remove(half)
        self.counts.forget(half.offset)
        self.halves.register(moved, half.due_ms)
        if moved.check_times:
            self.counts.record_count(offset, moved.check_times)
        self.check_back.arm()
        return True

    def _patience_ms(self, immune_ms: int | None) -> int:
        """The time between a half message's arrival and its first check."""
        return self._settings.timeout_ms if immune_ms is None else immune_ms

    def opened(self, offset: int, log_offset: int, group: str, immune_ms: int | None) -> None:
        """See TransactionOpener."""
        self._open([(offset, log_offset, group)], immune_ms)

    def opened_together(self, halves: list[tuple[int, int, str]]) -> None:
        """Record stored half messages: the queue offset, log offset and producer group of each.

        The settings determine the time of their first check.
        """
        self._open(halves, None)

    def _open(self, halves: list[tuple[int, int, str]], immune_ms: int | None) -> None:
        now_ms, op_floor = self._now_ms(), self.ledger.op_end
        ahead_ms = now_ms - self.check_back.counted_ms()
        due_ms = now_ms + self._patience_ms(immune_ms)
        for offset, log_offset, group in halves:
            half = OpenHalf(offset, log_offset, group, now_ms, op_floor=op_floor)
            half.ahead_ms = ahead_ms
            self.halves.register(half, due_ms)
        self.check_back.arm_for(due_ms)

    def purge(self) -> None:
        """Forget all open half messages, because they are deleted."""
        for half in list(self.halves):
            self.ends.forget(half, committed=False)

    def open_grpc(self, sessions: Any) -> GrpcHalf:
        """Return the gRPC half, which serves EndTransaction."""
        from rockhopper.broker.features.transactions.grpc import TransactionGrpc

        return TransactionGrpc(self._store, self.ledger, self.ends)

    def metrics(self) -> Iterator[Family]:
        """Yield the counts of open and ended transactions."""
        return transaction_families(
            self.halves,
            self.ends,
            self.check_back.check_count,
            self.check_back.held_count,
            self._now_ms(),
        )

    def resume(self, message: StoredMessage) -> int:
        """Make a held message a half message again; return the log offset to wait for.

        Raises:
            Refusal: its transaction is committed.
            StoreError: the store refuses writes now.
        """
        if self.ledger.has_final(message, has_copies=True):
            raise Refusal(f"the transaction of message {message.message_id} was committed already")
        for copy in self.ledger.find_same_message(message, TRANSACTION_HALF_TOPIC):
            if self.halves.get(copy.queue_offset) is not None:
                return self._store.log.written_offset
        tail = self._store.staging.tail(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
        offset = tail.next_offset
        properties = message.properties | {PROPERTY_TRANSACTION_CHECK_TIMES: "0"}
        properties.pop(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, None)
        written = self.ledger.store_copy(
            Copy(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID, message, properties)
        )
        if written.failure is not None or written.log_offset is None:
            raise written.failure or StoreError("the half message could not be put back")
        group = properties.get(PROPERTY_PRODUCER_GROUP, "")
        self.opened(offset, written.log_offset, group, immunity_ms(properties))
        log.info("a held transaction is resumed", id=properties.get(PROPERTY_UNIQUE_KEY))
        return written.end_offset
