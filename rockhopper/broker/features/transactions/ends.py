"""Ends: commits and rollbacks, first ones and repeated ones.

RocketMQ: EndTransactionProcessor.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import structlog

from rockhopper.broker.features.transactions.check_counts import CheckCounts
from rockhopper.broker.features.transactions.half_messages import immunity_ms, is_copy
from rockhopper.broker.features.transactions.ledger import EndResult, Ledger
from rockhopper.broker.features.transactions.open_halves import OpenHalf, OpenHalves
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Copy, Redirect
from rockhopper.broker.users.errors import IllegalOperation, Refusal, TopicNotFound
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import (
    DLQ_PREFIX,
    NOT_SENDABLE_TOPICS,
    TRANSACTION_CHECK_MAX_TIME_TOPIC,
    TRANSACTION_HALF_TOPIC,
)
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    TIMER_OPTIONAL_PROPERTIES,
    fit_properties,
    parse_whole_number,
)
from rockhopper.protocol.requests import EndTransactionRequest
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_COMMIT, SYS_FLAG_TRANSACTION_MASK

log = structlog.get_logger("broker.transactions")

# Transactions that ended lately, remembered to tell a repeated end from one that contradicts it.
ENDED_REMEMBERED_MAX = 10_000


class Destination(NamedTuple):
    """The queue and the properties of the final message of a half message."""

    topic: str
    queue_id: int
    properties: dict[str, str]


CommittedHalf: TypeAlias = tuple[OpenHalf, int, str, int]
"""A half message, the log offset of its final message, the topic of that, and the size of its own
record."""


class HalfChecks(Protocol):
    """Checks open half messages."""

    def look_soon(self, half: OpenHalf) -> None:
        """Check *half* again in a second, whenever it was due."""


class TransactionEnds:
    """Ends the transactions of one broker. Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        halves: OpenHalves,
        ledger: Ledger,
        counts: CheckCounts,
        redirect: Redirect,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._stats = stats
        self._halves = halves
        self._ledger = ledger
        self._counts = counts
        self._redirect = redirect
        self._now_ms = now_ms
        # Half queue offset -> whether it was committed.
        self._ended: OrderedDict[int, bool] = OrderedDict()
        self.committed: dict[str, int] = {}
        self.rolled_back: dict[str, int] = {}
        self.checks: HalfChecks | None = None
        """Looks again at half messages that are committed, but cannot be closed yet."""

    def end_transaction(self, request: EndTransactionRequest, *, commit: bool) -> int:
        """Commit or roll back; return the log offset that the response must wait for.

        An end that is repeated changes nothing.

        Raises:
            Refusal: the end is refused; an open half message stays open.
            StoreError: the store refuses writes now; the half message stays open.
        """
        log_offset = request.commit_log_offset
        message = self._ledger.half_at(log_offset)
        if message is None:
            raise Refusal("Find prepared transaction message failed")
        self._check(request, message)
        half = self._halves.get(request.tran_state_table_offset) or self._newer_copy(message)
        if half is None:
            return self._end_again(message, commit=commit)
        if self.find_final(half, message):
            written = self.finish_committed(half)
            return self._check_decision(message.queue_offset, written.end_offset, commit=commit)
        if commit:
            return self._commit(half, message)
        end_offset = self.roll_back(half)
        self._count(self.rolled_back, message)
        return end_offset

    def committed_together(self, committed: list[CommittedHalf]) -> None:
        """Handle plain commits: the log has each final message, followed by its op message."""
        sizes: dict[str, list[int]] = {}
        for half, _, topic, size_bytes in committed:
            self.forget(half, committed=True)
            sizes.setdefault(topic, []).append(size_bytes)
        for topic, sizes_bytes in sizes.items():
            self.committed[topic] = self.committed.get(topic, 0) + len(sizes_bytes)
            traffic = self._stats.get_send_traffic(topic)
            for size_bytes in sizes_bytes:
                traffic.count_request(1, size_bytes)

    def roll_back(self, half: OpenHalf) -> int:
        """End *half* without a final message; return the end of the log. Raises StoreError."""
        written = self._ledger.finish(half)
        if written.failure is not None:
            raise written.failure
        self.forget(half, committed=False)
        return written.end_offset

    def _check(self, request: EndTransactionRequest, message: StoredMessage) -> None:
        """Make RocketMQ's checks, in its order."""
        immune_ms = immunity_ms(message.properties)
        if (
            not request.from_transaction_check
            and immune_ms is not None
            and self._now_ms() - message.born_time_ms > immune_ms
        ):
            raise IllegalOperation(
                "the end of the transaction comes later than CHECK_IMMUNITY_TIME_IN_SECONDS "
                "allows: wait for the check"
            )
        if message.properties.get(PROPERTY_PRODUCER_GROUP) != request.producer_group:
            raise Refusal("The producer group wrong")
        if message.queue_offset != request.tran_state_table_offset:
            raise Refusal("The transaction state table offset wrong")
        if message.commit_log_offset != request.commit_log_offset:
            raise Refusal("The commit log offset wrong")

    def find_final(self, half: OpenHalf, message: StoredMessage) -> bool:
        """Whether *half* is committed although it is still among the open ones."""
        if not half.is_verified:
            half.is_committed = self._ledger.has_final(message, has_copies=bool(half.copies))
            half.is_verified = True
        return half.is_committed

    def _newer_copy(self, message: StoredMessage) -> OpenHalf | None:
        """Return the open copy that a broker made of this half message, at another offset."""
        if message.queue_offset in self._ended:
            return None
        for copy in self._ledger.find_same_message(message, TRANSACTION_HALF_TOPIC):
            half = self._halves.get(copy.queue_offset)
            if half is not None and is_copy(copy.properties):
                return half
        return None

    def _end_again(self, message: StoredMessage, *, commit: bool) -> int:
        """Handle the end of a transaction that is not open: repeated, contradicting, or held."""
        committed = self._ended.get(message.queue_offset)
        if committed is None:
            copies = self._ledger.find_same_message(message, TRANSACTION_HALF_TOPIC)
            has_copies = any(is_copy(copy.properties) for copy in copies)
            committed = self._ledger.has_final(message, has_copies=has_copies)
            if commit and not committed and self._is_held(message):
                log.info("a held transaction was committed", id=message.message_id)
                place = self._place_of(message)
                written = self._ledger.store_copy(self._final(message, place))
                if written.failure is not None:
                    raise written.failure
                self._remember(message.queue_offset, committed=True)
                self._count(self.committed, message)
                return written.end_offset
        end = self._store.log.written_offset
        return self._check_decision(message.queue_offset, end, commit=commit, committed=committed)

    def _is_held(self, message: StoredMessage) -> bool:
        held = self._ledger.find_same_message(message, TRANSACTION_CHECK_MAX_TIME_TOPIC)
        return next(held, None) is not None

    def _check_decision(
        self, offset: int, end_offset: int, *, commit: bool, committed: bool = True
    ) -> int:
        if commit and not committed:
            raise IllegalOperation(
                f"the transaction with half message {offset} is over, and was not committed"
            )
        if committed and not commit:
            raise IllegalOperation(
                f"the transaction with half message {offset} was committed already"
            )
        return end_offset

    def _commit(self, half: OpenHalf, message: StoredMessage) -> int:
        place = self._place_of(message)
        if half.check_times:
            place.properties[PROPERTY_TRANSACTION_CHECK_TIMES] = str(half.check_times)
        written = self._ledger.finish(half, self._final(message, place))
        if written.log_offset is None:
            assert written.failure is not None
            raise written.failure
        if written.failure is not None:
            # The message is there for everybody to read; that it is over is said as soon as the
            # store takes it, and found out again after a crash.
            half.is_committed = half.is_verified = True
            self._count(self.committed, message)
            if self.checks is not None:
                self.checks.look_soon(half)
            return written.end_offset
        self.forget(half, committed=True)
        self._count(self.committed, message)
        return written.end_offset

    def _final(self, message: StoredMessage, place: Destination) -> Copy:
        flags = message.sys_flag & ~SYS_FLAG_TRANSACTION_MASK | SYS_FLAG_TRANSACTION_COMMIT
        return Copy(
            place.topic,
            place.queue_id,
            message,
            place.properties,
            flags,
            prepared_offset=message.commit_log_offset,
        )

    def _place_of(self, message: StoredMessage) -> Destination:
        """Return the topic and queue of the final message. Raises Refusal if the topic is gone."""
        properties = dict(message.properties)
        name = properties.pop(PROPERTY_REAL_TOPIC, "")
        topic = self._topics.get(name)
        if topic is None or name in NOT_SENDABLE_TOPICS:
            raise TopicNotFound(
                f"topic[{name}] not exist, the transaction stays open: create the topic again"
            )
        queue_id = parse_whole_number(properties.pop(PROPERTY_REAL_QUEUE_ID, None))
        queue_nums = max(topic.write_queue_nums, topic.read_queue_nums, 1)
        if not 0 <= queue_id < queue_nums:
            # The topic has shrunk since.
            queue_id = max(queue_id, 0) % max(topic.write_queue_nums, 1)
        if name.startswith(DLQ_PREFIX):
            properties[PROPERTY_DELAY_LEVEL] = "-1"
            return Destination(name, queue_id, properties)
        place = self._redirect(name, queue_id, properties)
        if PROPERTY_TIMER_OUT_MS in properties:
            properties = fit_properties(properties, TIMER_OPTIONAL_PROPERTIES)
        return Destination(*place, properties)

    def finish_committed(self, half: OpenHalf) -> EndResult:
        """Write the op message of a transaction whose final message is in the log."""
        written = self._ledger.finish(half)
        if written.failure is None:
            self.forget(half, committed=True)
        return written

    def give_up(self, half: OpenHalf) -> StoreError | None:
        """End a half message whose record no longer exists."""
        log.error("a half message is missing from the log", offset=half.offset, group=half.group)
        written = self._ledger.finish(half)
        if written.failure is None:
            self.forget(half, committed=False)
        return written.failure

    def _count(self, counters: dict[str, int], message: StoredMessage) -> None:
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        counters[topic] = counters.get(topic, 0) + 1
        if counters is self.committed:
            self._stats.get_send_traffic(topic).count_request(1, message.size_bytes)

    def forget(self, half: OpenHalf, *, committed: bool) -> None:
        """Remove *half* from the open ones, and remember how its transaction ended."""
        self._halves.remove(half)
        self._counts.forget(half.offset)
        for offset in (half.offset, *half.copies):
            self._remember(offset, committed=committed)

    def _remember(self, offset: int, *, committed: bool) -> None:
        self._ended[offset] = committed
        if len(self._ended) > ENDED_REMEMBERED_MAX:
            self._ended.popitem(last=False)
