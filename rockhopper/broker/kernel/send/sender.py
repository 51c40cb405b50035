"""Stores messages of every kind, and batches.

Nearly all sends are plain messages to a known topic. These normally take the fast path in
hot_pass.py, which ends in the same ``staging.stage``; all others arrive here.

SendChecks finds the target, or refuses the send. Properties that the broker sets are never accepted
from a client.
"""

import random
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.scheduled.timers.times import REQUEST_PROPERTIES as TIMER_PROPERTIES
from rockhopper.broker.kernel.send.send_request import (
    PlainSend,
    Send,
    batch_of,
    check_inner_count,
    inner_count,
    is_any_delayed,
    is_half,
)
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.store.files.errors import RecordTooLargeError, StoreError
from rockhopper.broker.store.log.encoding import BROKER_PROPERTIES
from rockhopper.broker.store.log.fast_encoding import message_ids
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.users.errors import (
    GroupNotFound,
    IllegalMessage,
    InvalidParameter,
    NoPermission,
    Refusal,
    TopicNotFound,
)
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.message_ids import UniqueIds, offset_message_id
from rockhopper.protocol.names import (
    DLQ_PREFIX,
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    group_of_retry_topic,
)
from rockhopper.protocol.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    decode_properties,
    join_properties,
)
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)

# Only the broker decides which records contain a batch.
INNER_BATCH_FLAGS = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
VERSION_WITH_MAX_RECONSUME_TIMES = 121
FIRST_RETRY_LEVEL = 3
TOPIC_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
HAS_TIMER = frozenset(TIMER_PROPERTIES)

PrepareSend = Callable[[dict[str, str], TopicConfig, int], int]
"""Prepares a single message, before anything delays or diverts it: takes the properties that will
be stored, the topic and the queue id, and returns the queue id that the answer names. It may change
the properties, and may raise a Refusal."""


class Placed(NamedTuple):
    """A staged message, or batch: its place, and the answer for the producer."""

    log_offset: int
    """The commit log offset of its first record."""
    message_ids: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    batch_unique_id: str | None = None
    diversion: "Diversion | None" = None
    recall_handle: str | None = None


class Diversion:
    """A message that a feature stores in another queue first, for example a half message."""

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = self.log_offset = -1
        """The place of the staged message; the Sender sets it."""

    def stored(self) -> None:
        """Continue, now that the message is in the log."""

    def add_to_grpc_entry(self, entry: Any, message_id: str) -> None:
        """Add to the entry of the message in a gRPC answer."""


DivertHalf: TypeAlias = Callable[[Send, dict[str, str], str, int], Diversion | None]
"""Stores half messages elsewhere: takes the prepared send, the properties that will be stored, the
topic and the queue id. It may change the properties, and may raise a Refusal. A message that one
feature diverts is not shown to later ones, and is not delayed."""


def takes_plain(topic: TopicConfig) -> bool:
    """Whether *topic* stores messages as they are sent."""
    return not (topic.is_batch or topic.is_to_be_compacted or topic.name.startswith("%"))


class SendChecks:
    """Admits sends to topics and queues of one broker.

    The order of the checks, the codes and the remarks are RocketMQ's (SendMessageProcessor). Where
    RocketMQ skips checks, this broker does not: it always checks the write permission of topic and
    broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        *,
        now_ms: Callable[[], int],
        consumes_in_order: Callable[[str, Peer], bool],
    ) -> None:
        """*consumes_in_order* returns whether a connection's client has order locks in a group."""
        self._broker_name = config.broker_name
        self._live = config.live
        self._store = store
        self._topics = topics
        self._groups = groups
        self._now_ms = now_ms
        self._consumes_in_order = consumes_in_order

    def check(self, send: Send) -> tuple[TopicConfig, int]:
        """Find or create the topic and the queue. Raises Refusal, StoreError."""
        self._store.check_writable()
        self._check_open()
        self._check_names(send)
        topic = self._topic(send)
        if not topic.is_writable:
            raise NoPermission(f"the topic[{send.topic}] sending message is forbidden")
        queue_nums = max(topic.write_queue_nums, topic.read_queue_nums)
        if send.queue_id >= queue_nums:
            raise InvalidParameter(
                f"request queueId[{send.queue_id}] is illegal, topic [{send.topic}] has "
                f"{queue_nums} queues"
            )
        queue_id = send.queue_id
        if queue_id < 0:
            queue_id = int(random.random() * topic.write_queue_nums)
        if send.topic.startswith(RETRY_PREFIX):
            return self._retry_target(send, topic, queue_id)
        return topic, queue_id

    def accepts_plain(self, topic: TopicConfig) -> bool:
        """Whether plain messages to *topic* pass ``check`` while ``is_open``."""
        name = topic.name
        return (
            takes_plain(topic)
            and topic.is_writable
            and name not in NOT_SENDABLE_TOPICS
            and self._topics.send_error(name) is None
        )

    def is_open(self) -> bool:
        """Whether the broker accepts messages now."""
        try:
            self._store.check_writable()
            self._check_open()
        except (Refusal, StoreError):
            return False
        return True

    def _check_open(self) -> None:
        live = self._live
        if live.accept_send_from_ms > self._now_ms():
            opens = time.strftime(
                "%Y-%m-%d %H:%M:%S", time.localtime(live.accept_send_from_ms / 1e3)
            )
            raise Refusal(f"broker unable to service, until {opens}")
        if not live.is_writable:
            raise NoPermission(f"the broker[{self._broker_name}] sending message is forbidden")

    def _check_names(self, send: Send) -> None:
        problem = self._topics.send_error(send.topic)
        if problem is not None:
            raise InvalidParameter(problem)
        if send.topic in NOT_SENDABLE_TOPICS:
            raise NoPermission(f"Sending message to topic[{send.topic}] is forbidden.")

    def _topic(self, send: Send) -> TopicConfig:
        topic = self._topics.get(send.topic)
        if topic is None and send.topic.startswith(RETRY_PREFIX):
            group = self._retry_group(send.topic)
            return self._topics.ensure_retry_topic(
                group.name, group.retry_queue_nums, unit_mode=send.unit_mode
            )
        if topic is None:
            topic = self._topics.create_on_send(
                send.topic, send.default_topic, send.default_queue_nums, unit_mode=send.unit_mode
            )
        if topic is None:
            raise TopicNotFound(f"topic[{send.topic}] not exist, apply first please!{TOPIC_FAQ}")
        return topic

    def _retry_group(self, topic: str) -> SubscriptionGroup:
        name = group_of_retry_topic(topic)
        group = self._groups.find_or_create(name)
        if group is None:
            raise GroupNotFound(f"subscription group not exist, {name}")
        return group

    def _retry_target(
        self,
        send: Send,
        topic: TopicConfig,
        queue_id: int,
    ) -> tuple[TopicConfig, int]:
        """Return the topic and queue for a message that a consumer sends back itself.

        These are the dead letters if the consumer gave up. A concurrent consumer whose request 36
        failed has already counted the attempt, so ``>`` here is the ``>=`` of 36. An orderly
        consumer, which sends back only messages that it gave up, has not counted it. RocketMQ turns
        every sent message into a dead letter while any member of the group holds an order lock.
        Here a sender counts as orderly only if it holds such a lock itself, or requests an orderly
        consumer's delay.
        """
        group = self._retry_group(send.topic)
        most = group.retry_max_times
        if (
            send.version >= VERSION_WITH_MAX_RECONSUME_TIMES
            and send.reconsume_times_max is not None
            and send.reconsume_times_max >= 0
        ):
            most = send.reconsume_times_max
        gave_up = send.reconsume_times > most
        if send.reconsume_times == most:
            delay = decode_properties(send.properties).get(PROPERTY_DELAY_LEVEL)
            gave_up = delay == str(FIRST_RETRY_LEVEL + most) or (
                send.connection is not None and self._consumes_in_order(group.name, send.connection)
            )
        return (self._topics.ensure_dlq_topic(group.name), 0) if gave_up else (topic, queue_id)


class Sender:
    """Serves the sends of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        checks: SendChecks,
        stats: BrokerStats,
        *,
        store_host: bytes,
        now_ms: Callable[[], int],
        delay_levels: DelayLevels,
        timers: Timers,
    ) -> None:
        self._config = config
        self._live_store = config.store.live
        self._store = store
        self._stats = stats
        port = int.from_bytes(store_host[-4:], "big")
        self._id_host = offset_message_id(store_host[:-4], port, 0)[:-16]
        """The beginning of each message's id; its log offset follows in 16 hex digits."""
        self._now_ms = now_ms
        self._delay_levels = delay_levels
        self._timers = timers
        self._checks = checks
        self.check = checks.check
        self.accepts_plain = checks.accepts_plain
        self._suffix = config.added_properties
        self.unique_ids = UniqueIds(store_host[:-4], now_ms)
        """For messages without a key."""
        self.preparations: list[tuple[str, PrepareSend]] = []
        """Those of the features, in order, each for messages with one property."""
        self.diversions: list[DivertHalf] = []
        """Those of the features, in order, for half messages."""

    def stage(self, send: Send) -> Placed:
        """Stage one message, or one batch, for ``commit``. Raises Refusal, StoreError."""
        try:
            topic, queue_id = self.check(send)
            put = self._put_batch if send.is_batch else self._put
            return put(send, topic, queue_id)
        except (Refusal, StoreError):
            self._stats.puts_refused(1)
            raise

    def commit(self, staged: Iterable[Placed]) -> tuple[int, StoreError | None]:
        """Write what ``stage`` has staged, with one call.

        Return the end of the log, and the error because of which the messages from there on are not
        in it.
        """
        error = None
        try:
            end = self._store.commit()
        except StoreError as failure:
            end, error = self._store.log.written_offset, failure
        for placed in staged:
            if placed.log_offset >= end:
                self._stats.puts_refused(1)
            elif placed.diversion is not None:
                placed.diversion.stored()
        return end, error

    def _message_id(self, commit_log_offset: int) -> str:
        return f"{self._id_host}{commit_log_offset:016X}"

    def _put(self, send: Send, topic: TopicConfig, queue_id: int) -> Placed:
        self._check_body(send.body)
        count = inner_count(send, topic)
        if count:
            return self._put_inner_batch(send, topic, queue_id, send.body, count)
        if send.apart is not None:
            placed = self._put_plain(send, send.apart, topic, queue_id)
            if placed is not None:
                return placed
        properties = self._broker_properties(send)
        if send.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK:
            raise IllegalMessage("the sysFlag marks the message as rolled back")
        is_compacted = topic.is_to_be_compacted
        if is_compacted and not properties.get(PROPERTY_KEYS):
            raise IllegalMessage("Required message key is missing")
        for name, prepare in self.preparations:
            if name in properties:
                queue_id = prepare(properties, topic, queue_id)
        self._store.staging.read_clock()
        name, stored_queue_id = topic.name, queue_id
        level = self._delay_level(properties)
        is_dead = name.startswith(DLQ_PREFIX)
        due_ms = None
        if level == 0 and not HAS_TIMER.isdisjoint(properties) and not is_dead:
            due_ms = self._timers.due_ms(properties, self._now_ms())
        recall_handle = None
        diversion = self._divert(send, properties, name, queue_id)
        if diversion is not None:
            name, stored_queue_id = diversion.topic, diversion.queue_id
        elif is_dead:
            properties[PROPERTY_DELAY_LEVEL] = "-1"
        elif level > 0:
            name, stored_queue_id = self._delay_levels.redirect(name, queue_id, properties, level)
        elif due_ms is not None:
            name, stored_queue_id = self._timers.redirect(name, queue_id, properties, due_ms)
            recall_handle = self._timers.recall_handle(properties)
        tail = self._store.staging.tail(name, stored_queue_id)
        log_offset = self._store.staging.stage(
            tail,
            send.body,
            properties,
            send.flag,
            send.sys_flag & ~INNER_BATCH_FLAGS & ~SYS_FLAG_TRANSACTION_MASK,
            send.born_time_ms,
            send.born_host,
            send.reconsume_times,
        )
        unique_key = properties[PROPERTY_UNIQUE_KEY]
        self._stats.get_send_traffic(topic.name if diversion is None else name).count_request(
            1, self._store.log.staged_offset - log_offset
        )
        offset = tail.next_offset - 1
        if diversion is not None:
            diversion.queue_offset, diversion.log_offset = offset, log_offset
        return Placed(
            log_offset,
            self._message_id(log_offset),
            queue_id,
            offset,
            unique_key,
            None,
            diversion,
            recall_handle,
        )

    def _put_plain(
        self, send: Send, properties: dict[str, str], topic: TopicConfig, queue_id: int
    ) -> Placed | None:
        """Stage a plain message as the general way does, only faster; None if it is not plain."""
        name = topic.name
        if send.sys_flag & SYS_FLAG_TRANSACTION_MASK or not takes_plain(topic):
            return None
        staging = self._store.staging
        staging.read_clock()
        tail = staging.tail(name, queue_id)
        staged = staging.stage_plain(
            tail,
            send.body,
            join_properties(properties),
            self._suffix,
            send.flag,
            send.sys_flag & ~INNER_BATCH_FLAGS,
            send.born_time_ms,
            send.born_host,
            send.reconsume_times,
        )
        return None if staged is None else self._count_plain(tail, staged)

    def stage_plain(self, send: PlainSend, topic: TopicConfig, born_host: bytes) -> Placed | None:
        """Stage a plain message as ``stage`` does, only faster; None if that must decide about it.

        The topic must be one that ``accepts_plain``.
        """
        if not self._checks.is_open():
            return None
        staging = self._store.staging
        staging.read_clock()
        tail = staging.tail(topic.name, int(random.random() * topic.write_queue_nums))
        try:
            staged = staging.stage_plain(
                tail,
                send.body,
                send.properties,
                self._suffix,
                0,
                0,
                send.born_time_ms,
                born_host,
                0,
            )
        except StoreError:
            # The general way tries again, and refuses it.
            return None
        return None if staged is None else self._count_plain(tail, staged)

    def _count_plain(self, tail: QueueTail, staged: tuple[int, str, bool, int]) -> Placed:
        log_offset, unique_key, _, size_bytes = staged
        self._stats.get_send_traffic(tail.topic).count_request(1, size_bytes)
        message_id, offset = self._message_id(log_offset), tail.next_offset - 1
        return Placed(log_offset, message_id, tail.queue_id, offset, unique_key)

    def _divert(
        self, send: Send, properties: dict[str, str], topic: str, queue_id: int
    ) -> Diversion | None:
        """Return how a feature stores a half message; None for any other message."""
        if not is_half(send, properties):
            return None
        for divert in self.diversions:
            if (diversion := divert(send, properties, topic, queue_id)) is not None:
                return diversion
        # Stored as any other, it would reach consumers before its producer commits it.
        raise NoPermission(
            "this broker serves no transactions: send the message without one, or to a broker that "
            "has them"
        )

    def _check_body(self, body: bytes) -> None:
        most = self._live_store.message_size_max_bytes
        if len(body) > most:
            raise RecordTooLargeError(f"The body has {len(body)} bytes.")

    def _broker_properties(self, send: Send) -> dict[str, str]:
        properties = send.apart
        if properties is None:
            properties = decode_properties(send.properties)
        if len(send.properties) > 2 * 32_767:
            raise RecordTooLargeError(f"The properties have {len(send.properties)} characters.")
        if not BROKER_PROPERTIES.isdisjoint(properties):
            for name in BROKER_PROPERTIES:
                properties.pop(name, None)
        if properties.get(PROPERTY_WAIT) == "true":
            del properties[PROPERTY_WAIT]
        if not properties.get(PROPERTY_UNIQUE_KEY):
            properties[PROPERTY_UNIQUE_KEY] = self.unique_ids.next()
        properties[PROPERTY_MSG_REGION] = self._config.region_id
        properties[PROPERTY_TRACE_SWITCH] = "true" if self._config.trace_on else "false"
        properties[PROPERTY_CLUSTER] = self._config.cluster_name
        return properties

    def _delay_level(self, properties: dict[str, str]) -> int:
        text = properties.get(PROPERTY_DELAY_LEVEL)
        if text is not None:
            try:
                level = int(text)
            except ValueError:
                raise Refusal(f"the property DELAY is {text!r}, not a delay level") from None
            if level > 0:
                for name in HAS_TIMER:
                    properties.pop(name, None)
                return min(level, self._delay_levels.level_max)
        return 0

    def _put_batch(self, send: Send, topic: TopicConfig, queue_id: int) -> Placed:
        if topic.name.startswith(RETRY_PREFIX):
            raise IllegalMessage("batch request does not support retry group ")
        if len(topic.name) > 127:
            raise IllegalMessage(f"message topic length over 127: {topic.name}")
        self._check_body(send.body)
        if send.sys_flag & SYS_FLAG_TRANSACTION_MASK:
            raise IllegalMessage("a batch cannot be part of a transaction")
        outer = decode_properties(send.properties)
        if self._delay_level(outer) > 0 or not HAS_TIMER.isdisjoint(outer):
            raise IllegalMessage("a batch cannot be delayed")
        if topic.is_batch and PROPERTY_INNER_NUM in outer:
            raise IllegalMessage(
                "the properties of a batch contain INNER_NUM, which only the broker may set: "
                "remove it"
            )
        body, messages = batch_of(send.body)
        if topic.is_batch and outer.get(PROPERTY_UNIQUE_KEY):
            return self._put_inner_batch(send, topic, queue_id, body, len(messages))
        if is_any_delayed(body, messages):
            raise IllegalMessage("a message in a batch cannot be delayed: send it on its own")
        self._store.staging.read_clock()
        tail = self._store.staging.tail(topic.name, queue_id)
        first_offset = tail.next_offset
        born_host = send.born_host
        placed = self._store.staging.stage_batch(
            tail,
            body,
            send.sys_flag & ~INNER_BATCH_FLAGS,
            send.born_time_ms,
            born_host,
        )
        if placed is None:
            raise RecordTooLargeError("A message of the batch does not fit a record.")
        self._stats.get_send_traffic(topic.name).count_request(
            len(messages), self._store.log.staged_offset - placed[0]
        )
        ids = message_ids(self._id_host, placed[1])
        return Placed(placed[0], ids, queue_id, first_offset, None)

    def _put_inner_batch(
        self,
        send: Send,
        topic: TopicConfig,
        queue_id: int,
        body: bytes,
        count: int,
    ) -> Placed:
        """Stage the whole batch as one record, for a topic of type BatchCQ."""
        check_inner_count(count, str(count))
        properties = self._broker_properties(send)
        unique_key = properties[PROPERTY_UNIQUE_KEY]
        self._store.staging.read_clock()
        tail = self._store.staging.tail(topic.name, queue_id)
        first_offset = tail.next_offset
        properties[PROPERTY_INNER_NUM] = str(count)
        properties[PROPERTY_INNER_BASE] = str(first_offset)
        log_offset = self._store.staging.stage(
            tail,
            body,
            properties,
            send.flag,
            send.sys_flag | (INNER_BATCH_FLAGS if send.is_batch else 0),
            send.born_time_ms,
            send.born_host,
            batch_count=count,
        )
        self._stats.get_send_traffic(topic.name).count_request(
            count, self._store.log.staged_offset - log_offset
        )
        batch_id = unique_key if send.is_batch else None
        message_id = self._message_id(log_offset)
        return Placed(log_offset, message_id, queue_id, first_offset, unique_key, batch_id)
