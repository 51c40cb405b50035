"""Puller: validates, executes and holds pulls.

``pull`` takes plain values. So the fast path, which decodes a request in one step, and the
processors, which decode any serialization, run the same code. The order of the checks is RocketMQ's
(PullMessageProcessor).
"""

import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Protocol

import msgspec
import structlog

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import (
    BROADCASTING,
    ConsumerGroups,
    ConsumeSettings,
)
from rockhopper.broker.kernel.pull.long_polling import FILTERED_RECHECK_S, LongPolling, ParkedPull
from rockhopper.broker.kernel.pull.pull_filters import PullFilters
from rockhopper.broker.kernel.pull.reader_positions import ReaderPositions
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.filter_turns import FilterTurns
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.store.reading.property_stage import MessageFilter
from rockhopper.broker.users.errors import (
    Forbidden,
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    Refusal,
    SubscriptionNotFound,
    SubscriptionOutdated,
    TooManyWait,
    TopicNotFound,
)
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.names import group_error, is_retry_topic, retry_topic
from rockhopper.protocol.sql92.sql_filter import SqlFilter
from rockhopper.protocol.store.record_head import head_struct
from rockhopper.protocol.subscription import TYPE_SQL92, Subscription
from rockhopper.protocol.sys_flags import (
    PULL_FLAG_BROWSE,
    PULL_FLAG_COMMIT_OFFSET,
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
)

log = structlog.get_logger("broker.pulling")

_LOG_OFFSET = head_struct("log_offset")


class PullOutcome(IntEnum):
    """The outcome of a pull."""

    FOUND = 0
    NOT_YET = 1
    """There is no message behind the offset yet."""
    GO_ON = 2
    """None of the examined messages is wanted: continue at the next offset."""
    MOVED = 3
    """The offset does not belong to the queue: continue at another one."""


_EMPTY = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_OUTCOMES = {
    GetStatus.FOUND: PullOutcome.FOUND,
    GetStatus.MESSAGE_WAS_REMOVING: PullOutcome.GO_ON,
    GetStatus.NO_MATCHED_MESSAGE: PullOutcome.GO_ON,
    GetStatus.OFFSET_FOUND_NULL: PullOutcome.NOT_YET,
    GetStatus.OFFSET_OVERFLOW_ONE: PullOutcome.NOT_YET,
    GetStatus.OFFSET_OVERFLOW_BADLY: PullOutcome.MOVED,
    GetStatus.OFFSET_TOO_SMALL: PullOutcome.MOVED,
    GetStatus.OFFSET_RESET: PullOutcome.MOVED,
}


class PullReply(Protocol):
    """Replies to a pull, in the encoding of its request."""

    def answer(self, outcome: PullOutcome, result: GetResult) -> None:
        """Send the result to the client."""

    def refuse(self, error: Refusal) -> None:
        """Send the client the reason why the pull is refused."""

    def check_access(self) -> None:
        """Raise a Refusal if the client's user has lost the permission to read."""


class Pull(msgspec.Struct, frozen=True, gc=False):
    """A pull request, in whatever encoding it arrived."""

    connection: Peer
    is_lite: bool
    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    expression: str | None
    expression_type: str | None
    version: int
    reply: PullReply


def outcome_of(status: GetStatus, offset: int) -> PullOutcome:
    """Return the consumer's next step after the store's result at *offset*."""
    if status in _EMPTY:
        return PullOutcome.NOT_YET if offset == 0 else PullOutcome.MOVED
    return _OUTCOMES[status]


class _ParkedPull(ParkedPull):
    """A pull that waits until *until_s* at most."""

    __slots__ = ("_puller", "pull", "until_s")

    def __init__(
        self,
        puller: "Puller",
        pull: Pull,
        tail: QueueTail,
        offset: int,
        chosen: MessageFilter | None,
        until_s: float,
    ) -> None:
        super().__init__(pull.connection, tail, offset, chosen)
        self._puller = puller
        self.pull = pull
        self.until_s = until_s

    def rerun(self) -> None:
        self._puller.rerun(self)


class Puller(Part, CatalogListener):
    """Serves the pulls of one broker, and holds those that wait."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerGroups,
        offsets: ConsumerOffsetTable,
        long_polling: LongPolling,
        stats: BrokerStats,
    ) -> None:
        self._broker_name = config.broker_name
        self._live = config.live
        self._settings = config.pull
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._long_polling = long_polling
        self.turns = FilterTurns(store.reading.reader.budget)
        self._stats = stats
        self.positions: ReaderPositions | None = None
        """Without it, offsets are not checked against the history of the log."""
        self.filters = PullFilters(config)
        self.listeners: Sequence[KernelListener] = ()
        """They may add messages to a retry topic that was read to the end."""
        topics.listeners.append(self)

    def purge(self) -> None:
        """Answer every waiting pull: the queues are being deleted."""
        self._long_polling.purge()

    def stop(self) -> None:
        """Answer every waiting pull, and hold no more."""
        try:
            self._long_polling.stop()
        finally:
            self.turns.stop()

    def pull(self, pull: Pull) -> tuple[PullOutcome, GetResult] | None:
        """Execute a pull; return None if it waits.

        Raises:
            Refusal: the pull is refused.
        """
        if not self._is_filtered(pull):
            return self._pull(pull)
        budget = self.turns.budget
        if not budget.has_room():
            self._await_turn(pull, partial(self._pull_in_turn, pull))
            return None
        with budget.pays():
            return self._pull(pull)

    def _is_filtered(self, pull: Pull) -> bool:
        """Return whether a client's expression, or its length, determines the cost of the pull."""
        if is_retry_topic(pull.topic) and (
            "_" in pull.group or self._settings.filter_support_retry
        ):
            return True
        if pull.sys_flag & PULL_FLAG_SUBSCRIPTION:
            return pull.expression_type == TYPE_SQL92
        chosen = self._consumers.subscription(pull.group, pull.topic, pull.connection)
        return chosen is not None and chosen.is_sql

    def _await_turn(self, pull: Pull, resume: Callable[[], None]) -> None:
        """Serve *pull* once filters have time budget again. Raises TooManyWait."""

        def in_turn() -> None:
            if not pull.connection.closed:
                with self.turns.budget.pays():
                    resume()

        if not self.turns.wait(pull.connection, in_turn):
            raise TooManyWait(
                "[OVERLOAD]system busy, start flow control for a while: too many pulls with a "
                "filter are waiting"
            )

    def _pull_in_turn(self, pull: Pull) -> None:
        try:
            pull.reply.check_access()
            served = self._pull(pull)
        except Refusal as error:
            pull.reply.refuse(error)
            return
        except (OSError, StoreError) as error:
            pull.reply.refuse(Refusal(str(error)))
            return
        if served is not None:
            pull.reply.answer(*served)

    def _pull(self, pull: Pull) -> tuple[PullOutcome, GetResult] | None:
        chosen = self.check(pull)
        moved = self._find_move(pull)
        if moved is not None:
            return moved
        if pull.sys_flag & PULL_FLAG_COMMIT_OFFSET and pull.commit_offset >= 0:
            self._offsets.commit(pull.topic, pull.group, pull.queue_id, pull.commit_offset)
        outcome, result = self._read(pull, chosen)
        if outcome is PullOutcome.NOT_YET and pull.topic == retry_topic(pull.group):
            for listener in self.listeners:
                listener.retries_read(pull.group)
            outcome, result = self._read(pull, chosen)
        if outcome is PullOutcome.NOT_YET and pull.sys_flag & PULL_FLAG_SUSPEND:
            return self._park(pull, chosen, outcome, result)
        return outcome, result

    def _read(self, pull: Pull, chosen: MessageFilter | None) -> tuple[PullOutcome, GetResult]:
        begun_s = time.perf_counter()
        result = self._store.reading.get_message(
            pull.topic, pull.queue_id, pull.offset, max(pull.count_max, 1), chosen
        )
        stats = self._stats
        is_counted = not pull.sys_flag & PULL_FLAG_BROWSE
        if result.status is GetStatus.FOUND:
            if is_counted:
                stats.get_found += 1
                traffic = stats.get_pull_traffic(pull.topic, pull.group)
                traffic.count_request(result.count, len(result.body))
                traffic.read(pull.queue_id, result.next_offset, time.perf_counter() - begun_s)
            if self._settings.slave_read:
                self._suggest(pull.group, result)
            return PullOutcome.FOUND, result
        stats.get_missed += is_counted
        if result.max_offset == 0 and self._topics.is_batch(pull.topic):
            # The minimum that RocketMQ returns for a new queue of this type.
            result.min_offset = -1
        if result.status in _EMPTY:
            first, _ = self._store.reading.queue_range(pull.topic, pull.queue_id)
            if first:
                result.next_offset = result.min_offset = result.max_offset = first
            return (PullOutcome.NOT_YET if pull.offset == first else PullOutcome.MOVED), result
        return outcome_of(result.status, pull.offset), result

    def _suggest(self, group_name: str, result: GetResult) -> None:
        """Suggest another broker to a reader whose messages are no longer in memory here."""
        (log_offset,) = _LOG_OFFSET.unpack_from(result.body)
        behind_bytes = self._store.log.written_offset - log_offset
        if behind_bytes > self._store.reading.reader.limits.memory_bytes:
            group = self._groups.find_or_create(group_name)
            if group is not None:
                result.suggested_broker_id = group.which_broker_when_consume_slowly

    def _park(
        self, pull: Pull, chosen: MessageFilter | None, outcome: PullOutcome, result: GetResult
    ) -> tuple[PullOutcome, GetResult] | None:
        settings = self._settings
        suspend_ms = pull.suspend_ms if settings.long_polling else settings.short_polling_ms
        if self._wait(pull, chosen, result.next_offset, suspend_ms / 1000):
            return None
        if self._long_polling.is_closed:
            return outcome, result
        raise TooManyWait(
            "[OVERLOAD]system busy, start flow control for a while: too many pulls are waiting "
            "on this connection"
        )

    def _find_move(self, pull: Pull) -> tuple[PullOutcome, GetResult] | None:
        """Return the answer that makes the reader continue elsewhere; None if it may read here."""
        return self._reset_of(pull) or self._move_back(pull)

    def _reset_of(self, pull: Pull) -> tuple[PullOutcome, GetResult] | None:
        """Return the answer with the offset that an operator has set; None if there is none."""
        reset = self._offsets.take_reset(pull.topic, pull.group, pull.queue_id)
        if reset is None:
            return None
        low, high = self._store.reading.queue_range(pull.topic, pull.queue_id)
        result = GetResult(GetStatus.OFFSET_RESET, reset, low, high)
        return PullOutcome.MOVED, result

    def _find_valid(self, pull: Pull) -> int | None:
        """Return where to read instead of an offset of an older history; None if it is valid."""
        if self.positions is None:
            return None
        return self.positions.next_valid(
            pull.connection, pull.group, pull.topic, pull.queue_id, pull.offset
        )

    def _move_back(self, pull: Pull) -> tuple[PullOutcome, GetResult] | None:
        """Return the answer for an offset of an older history of the log; None if it is valid."""
        to = self._find_valid(pull)
        if to is None:
            return None
        topic, queue_id = pull.topic, pull.queue_id
        low, high = self._store.reading.queue_range(topic, queue_id)
        log.warning(
            "a consumer was moved back: the log was cut before its offset",
            group=pull.group,
            topic=topic,
            queue=queue_id,
            offset=pull.offset,
            now=to,
            peer=pull.connection.peer,
        )
        return PullOutcome.MOVED, GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, to, low, high)

    def answer_now(self, pull: Pull) -> None:
        """Answer a pull that has waited with the present messages."""
        self._answer_in_turn(pull, partial(self._answer_now, pull))

    def _answer_in_turn(self, pull: Pull, serve: Callable[[], None]) -> None:
        """Serve a pull that has waited, or hold it again until its filter has time budget."""
        if not self._is_filtered(pull) or self._long_polling.is_closed:
            serve()
            return
        budget = self.turns.budget
        if budget.has_room():
            with budget.pays():
                serve()
            return
        try:
            self._await_turn(pull, serve)
        except Refusal as error:
            pull.reply.refuse(error)

    def _answer_now(self, pull: Pull) -> None:
        try:
            chosen = self._check_again(pull)
        except Refusal as error:
            pull.reply.refuse(error)
            return
        pull.reply.answer(*(self._find_move(pull) or self._read(pull, chosen)))

    def _check_again(self, pull: Pull) -> MessageFilter | None:
        """Check a pull that has waited again: permissions, group and topic may have changed."""
        pull.reply.check_access()
        return self.check(pull)

    def look_at_resets(self, topic: str, queue_id: int) -> None:
        """Notify the pulls that wait on a queue of a reset now."""
        self._long_polling.wake_all(self._store.staging.tail(topic, queue_id))

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Answer the pulls that wait for a deleted topic."""
        if name and topic is None:
            self._long_polling.wake_topic(name)

    def _wait(self, pull: Pull, chosen: MessageFilter | None, offset: int, wait_s: float) -> bool:
        """Hold *pull* until a message is behind *offset*; return False if too many wait already."""
        until_s = self._long_polling.loop.time() + wait_s

        tail = self._store.staging.tail(pull.topic, pull.queue_id)
        parked = _ParkedPull(self, pull, tail, offset, chosen, until_s)
        return self._long_polling.park(parked, wait_s)

    def rerun(self, parked: "_ParkedPull") -> None:
        """Serve a pull that has waited, or hold it again until its filter has time budget."""
        self._answer_in_turn(parked.pull, partial(self._rerun, parked))

    def _rerun(self, parked: "_ParkedPull") -> None:
        pull, chosen, offset = parked.pull, parked.subscription, parked.offset
        try:
            self._check_again(pull)
        except Refusal as error:
            pull.reply.refuse(error)
            return
        moved = self._find_move(pull)
        if moved is not None:
            pull.reply.answer(*moved)
            return
        # Messages between the two offsets were examined and are not wanted.
        from_there = pull if offset <= pull.offset else msgspec.structs.replace(pull, offset=offset)
        outcome, result = self._read(from_there, chosen)
        if not self._waits_on(from_there, chosen, result, parked.until_s):
            pull.reply.answer(outcome, result)

    def _waits_on(
        self, pull: Pull, chosen: MessageFilter | None, result: GetResult, until_s: float
    ) -> bool:
        """Hold a pull again that was woken by messages with unwanted properties.

        An unwanted tag would not have woken it. As with tags, the client learns its new offset
        within 5 s.
        """
        if (
            result.status is not GetStatus.NO_MATCHED_MESSAGE
            or chosen is None
            or chosen.matches_properties is None
            or not pull.offset < result.next_offset == result.max_offset
        ):
            return False
        wait_s = min(until_s - self._long_polling.loop.time(), FILTERED_RECHECK_S)
        return wait_s > 0 and self._wait(pull, chosen, result.next_offset, wait_s)

    def check(self, pull: Pull, *, is_left: bool = False) -> MessageFilter | None:
        """Run RocketMQ's checks in RocketMQ's order; return the filter to read with, or None.

        *is_left*: the queue may be one that its topic no longer includes.
        """
        if not self._live.is_readable:
            raise NoPermission(
                f"the broker[{self._broker_name}] pulling message is forbidden", Forbidden.BROKER
            )
        if pull.is_lite and not self._settings.lite_pull:
            raise NoPermission(
                f"the broker[{self._broker_name}] for lite pull consumer is forbidden",
                Forbidden.BROKER,
            )
        group = self._groups.find_or_create(pull.group)
        if group is None:
            raise GroupNotFound(_unknown_group(pull.group))
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {pull.group}", Forbidden.GROUP)
        topic = self._topics.get(pull.topic)
        if topic is None:
            raise TopicNotFound(f"topic[{pull.topic}] not exist, apply first please!")
        if not topic.is_readable:
            raise NoPermission(
                f"the topic[{pull.topic}] pulling message is forbidden", Forbidden.TOPIC
            )
        if not 0 <= pull.queue_id < topic.read_queue_nums and not is_left:
            raise InvalidParameter(
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[{pull.connection.peer}]"
            )
        if pull.sys_flag & PULL_FLAG_SUBSCRIPTION:
            chosen = self.filters.build_requested(
                pull.group, pull.topic, pull.expression or "*", pull.expression_type or "TAG"
            )
            self._check_reader(pull)
        else:
            chosen = self._find_registered(pull, broadcast_allowed=group.consume_broadcast_enable)
        if is_retry_topic(pull.topic):
            return self._on_retry_topic(pull, chosen)
        return chosen

    def _check_reader(self, pull: Pull) -> None:
        """Refuse a member that would skip messages which other members want.

        It releases its queues once it is notified of the others, perhaps a moment later.
        """
        online = self._consumers.get(pull.group)
        if online is not None and online.must_leave(pull.connection, pull.topic):
            raise SubscriptionOutdated(
                f"other members of group {pull.group} subscribe to more of topic {pull.topic} "
                "than this one, which must release its queues to them: rebalance"
            )

    def plain_read(self, pull: Pull) -> tuple[ConsumeQueue, SqlFilter | None] | None:
        """Return the queue that *pull* may read until a change, and its SQL92 expression.

        Return None if tags decide, if each pull needs its own checks, or if the offset belongs to
        an older history of the log.
        """
        online = self._consumers.get(pull.group)
        is_member = online is not None and pull.connection in online.members
        is_known = is_member or pull.sys_flag & PULL_FLAG_SUBSCRIPTION
        is_counted = not pull.sys_flag & PULL_FLAG_BROWSE
        if not (is_known and is_counted) or pull.topic.startswith("%"):
            return None
        try:
            chosen = self.check(pull)
        except Refusal:
            return None
        if self._find_valid(pull) is not None:
            return None
        sql = None if chosen is None else chosen.sql
        queue = self._store.reading.consume_queue(pull.topic, pull.queue_id)
        return None if queue is None or (chosen is not None and sql is None) else (queue, sql)

    def _on_retry_topic(self, pull: Pull, chosen: Subscription | None) -> MessageFilter | None:
        def find(topic: str) -> Subscription | None:
            return self._consumers.subscription(pull.group, topic, pull.connection)

        return self.filters.on_retry_topic(chosen, pull.group, pull.topic, find)

    def _find_registered(self, pull: Pull, *, broadcast_allowed: bool) -> Subscription | None:
        online = self._consumers.get(pull.group)
        if online is None and not self._consumers.is_remembered(pull.group):
            raise SubscriptionNotFound(f"the consumer's group info not exist, group: {pull.group}")
        settings = online.settings_of(pull.connection) if online is not None else ConsumeSettings()
        if not broadcast_allowed and settings.message_model == BROADCASTING:
            raise NoPermission(
                f"the consumer group[{pull.group}] can not consume by broadcast way",
                Forbidden.BROADCASTING,
            )
        if self._groups.is_forbidden(pull.group, pull.topic):
            raise NoPermission(
                f"the consumer group[{pull.group}] is forbidden for topic[{pull.topic}]",
                Forbidden.SUBSCRIPTION,
            )
        if (
            (online is None or pull.connection not in online.members)
            and self._consumers.seen_early(pull.group, pull.connection)
            and online is not None
            and online.subscription(pull.topic) is not None
        ):
            # Another member owns the queue, until a heartbeat announces this one.
            raise SubscriptionNotFound(
                f"the consumer's group info not exist, group: {pull.group}: send a heartbeat first"
            )
        subscription = self._consumers.subscription(pull.group, pull.topic, pull.connection)
        if subscription is None:
            raise SubscriptionNotFound(
                f"the consumer's subscription not exist, group: {pull.group}, topic: {pull.topic}"
            )
        if subscription.version < pull.version:
            return self.filters.find_newer(
                pull.group, subscription, pull.connection, pull.version, pull.expression_type
            )
        return self.filters.find_registered(pull.group, subscription)


def _unknown_group(group: str) -> str:
    problem = group_error(group)
    if problem is not None:
        return f"subscription group [{group}] is not usable: {problem}"
    return f"subscription group [{group}] does not exist, and groups are not created on first use"
