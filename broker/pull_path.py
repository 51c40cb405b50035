"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): the checks, the read, the answer, the waiting.

``pull`` takes plain values, so that the hot pass, which decodes the request in one step, and the
dispatcher, which decodes any serialisation, run the same code.  The order of the checks and the
codes are RocketMQ's (PullMessageProcessor).
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from broker.config import BrokerConfig
from broker.consumer_groups import BROADCASTING, ConsumerGroups
from broker.consumer_offsets import ConsumerOffsetTable
from broker.dispatcher import Request, RequestError, Response
from broker.long_polling import LongPolling, ParkedPull
from broker.stats import BrokerStats
from broker.store.get_result import GetResult, GetStatus
from broker.store.message_store import MessageStore
from broker.subscription_groups import SubscriptionGroupTable
from broker.topics import TopicTable
from protocol.codes import RequestCode, ResponseCode
from protocol.errors import ProtocolError
from protocol.names import group_error
from protocol.requests import PullMessageRequest
from protocol.subscription import Subscription

if TYPE_CHECKING:
    from broker.server import Connection

FLAG_COMMIT_OFFSET = 1
FLAG_SUSPEND = 2
FLAG_SUBSCRIPTION = 4

FORBIDDEN_BROKER = 1
FORBIDDEN_GROUP = 2
FORBIDDEN_TOPIC = 3
FORBIDDEN_BROADCASTING = 4
FORBIDDEN_SUBSCRIPTION = 5

PERM_READ = 4
SUBSCRIPTIONS_CACHED_MAX = 4096
# Some 8,000 tags: parsing more would hold up all others.
EXPRESSION_LENGTH_MAX = 65_536
HEARTBEAT_GRACE_S = 0.5

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


class Pull(NamedTuple):
    """A pull request, whatever it was encoded in; *answer* writes a response to its client."""

    connection: "Connection"
    code: int
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
    answer: Callable[[int, GetResult], None]


def response_code(status: GetStatus, offset: int) -> int:
    """The response code that a client understands for what the store found."""
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[status]


class PullPath:
    """Serves pulls of one broker."""

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
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._long_polling = long_polling
        self._stats = stats
        self._subscriptions: dict[tuple[str, str, str], Subscription | None] = {}

    def process(self, request: Request) -> Response | None:
        """Serve a pull that came in any serialisation."""
        fields = request.fields(PullMessageRequest)

        def answer(code: int, result: GetResult) -> None:
            request.answer(_response(code, result))

        pull = Pull(
            request.connection,
            request.code,
            fields.consumer_group,
            fields.topic,
            fields.queue_id,
            fields.queue_offset,
            fields.max_msg_nums,
            fields.sys_flag,
            fields.commit_offset,
            fields.suspend_timeout_millis,
            fields.subscription,
            fields.expression_type,
            fields.sub_version,
            answer,
        )
        served = self.pull(pull)
        return None if served is None else _response(*served)

    def pull(self, pull: Pull) -> tuple[int, GetResult] | None:
        """Execute a pull; None when it was parked.

        Raises:
            RequestError: it is refused.
        """
        subscription = self._check(pull)
        if pull.sys_flag & FLAG_COMMIT_OFFSET and pull.commit_offset >= 0:
            self._offsets.commit(pull.topic, pull.group, pull.queue_id, pull.commit_offset)
        reset = self._offsets.take_reset(pull.topic, pull.group, pull.queue_id)
        if reset is not None:
            low, high = self._store.queue_range(pull.topic, pull.queue_id)
            return ResponseCode.PULL_OFFSET_MOVED, GetResult(
                GetStatus.OFFSET_RESET, reset, low, high
            )
        code, result = self._read(pull, subscription)
        if code == ResponseCode.PULL_NOT_FOUND and pull.sys_flag & FLAG_SUSPEND:
            return self._park(pull, subscription, code, result)
        return code, result

    def _read(self, pull: Pull, subscription: Subscription | None) -> tuple[int, GetResult]:
        result = self._store.get_message(
            pull.topic, pull.queue_id, pull.offset, max(pull.count_max, 1), subscription
        )
        stats = self._stats
        if result.status is GetStatus.FOUND:
            stats.get_found += 1
            stats.got(pull.topic, pull.group).add(result.count, len(result.body))
            return ResponseCode.SUCCESS, result
        stats.get_missed += 1
        return response_code(result.status, pull.offset), result

    def _park(
        self, pull: Pull, subscription: Subscription | None, code: int, result: GetResult
    ) -> tuple[int, GetResult] | None:
        def rerun() -> None:
            pull.answer(*self._read(pull, subscription))

        config = self._config
        suspend_ms = pull.suspend_ms if config.long_polling else config.short_polling_ms
        parked = ParkedPull(
            pull.connection,
            self._store.tail(pull.topic, pull.queue_id),
            result.next_offset,
            subscription,
            rerun,
        )
        if self._long_polling.park(parked, suspend_ms / 1000):
            return None
        if self._long_polling.is_closed:
            return code, result
        raise RequestError(
            ResponseCode.SYSTEM_BUSY,
            "[OVERLOAD]system busy, start flow control for a while: "
            "too many pulls wait on this connection",
        )

    def _check(self, pull: Pull) -> Subscription | None:
        """RocketMQ's checks in RocketMQ's order; the filter to read with, None for no filter."""
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise _forbidden(f"the broker[{config.broker_name}] pulling message is forbidden", 1)
        if pull.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull:
            raise _forbidden(
                f"the broker[{config.broker_name}] for lite pull consumer is forbidden", 1
            )
        group = self._groups.find_or_create(pull.group)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, _unknown_group(pull.group)
            )
        if not group.consume_enable:
            raise _forbidden(f"subscription group no permission, {pull.group}", FORBIDDEN_GROUP)
        topic = self._topics.get(pull.topic)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{pull.topic}] not exist, apply first please!",
            )
        if not topic.perm & PERM_READ:
            raise _forbidden(
                f"the topic[{pull.topic}] pulling message is forbidden", FORBIDDEN_TOPIC
            )
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[{pull.connection.peer}]",
            )
        if pull.sys_flag & FLAG_SUBSCRIPTION:
            return self._parsed(pull.topic, pull.expression or "*", pull.expression_type or "TAG")
        return self._registered(pull, broadcast_allowed=group.consume_broadcast_enable)

    def _parsed(self, topic: str, expression: str, expression_type: str) -> Subscription | None:
        key = (topic, expression, expression_type)
        try:
            return self._subscriptions[key]
        except KeyError:
            pass
        if len(expression) > EXPRESSION_LENGTH_MAX:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: it has {len(expression)} characters, "
                f"and {EXPRESSION_LENGTH_MAX} is the most",
            )
        try:
            parsed = Subscription(topic, expression, expression_type)
        except ProtocolError as error:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from None
        subscription = _filter_of(parsed)
        if len(self._subscriptions) >= SUBSCRIPTIONS_CACHED_MAX:
            self._subscriptions.clear()
        self._subscriptions[key] = subscription
        return subscription

    def _registered(self, pull: Pull, *, broadcast_allowed: bool) -> Subscription | None:
        online = self._consumers.get(pull.group)
        if online is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist, group: {pull.group}",
            )
        if not broadcast_allowed and online.settings.message_model == BROADCASTING:
            raise _forbidden(
                f"the consumer group[{pull.group}] can not consume by broadcast way",
                FORBIDDEN_BROADCASTING,
            )
        if self._groups.is_forbidden(pull.group, pull.topic):
            raise _forbidden(
                f"the consumer group[{pull.group}] is forbidden for topic[{pull.topic}]",
                FORBIDDEN_SUBSCRIPTION,
            )
        subscription = self._consumers.subscription(pull.group, pull.topic, pull.connection)
        if subscription is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group: {pull.group}, topic: {pull.topic}",
            )
        chosen = _filter_of(subscription)
        if subscription.version < pull.version:
            _refuse_for_a_while(pull)
            return None
        return chosen


def _refuse_for_a_while(pull: Pull) -> None:
    """Refuse a consumer that is ahead of its own heartbeat, but not for long.

    The Java client raises its version after a rebalance and says so in a heartbeat, but drops that
    heartbeat while another is under way: about one start in eight, and RocketMQ then refuses it for
    half a minute.  A heartbeat that is on its way needs no second; after that the consumer gets
    every message.  Clients compare the tags themselves, since brokers compare hashes.
    """
    ahead = f"ahead of its heartbeat: {pull.group} {pull.topic}"
    now_s = time.monotonic()
    version, since_s = cast("tuple[int, float]", pull.connection.attributes.get(ahead, (-1, 0.0)))
    if version != pull.version:
        since_s = now_s
        pull.connection.attributes[ahead] = (pull.version, since_s)
    if now_s - since_s <= HEARTBEAT_GRACE_S:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
        )


def _filter_of(subscription: Subscription) -> Subscription | None:
    if subscription.expression_type not in ("", "TAG"):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by "
            f"{subscription.expression_type}",
        )
    return None if subscription.matches_all else subscription


def _forbidden(remark: str, forbidden_type: int) -> RequestError:
    return RequestError(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(forbidden_type)})


def _unknown_group(group: str) -> str:
    problem = group_error(group)
    if problem is not None:
        return f"subscription group [{group[:200]}] is not usable: {problem}"
    return f"subscription group [{group}] does not exist, and groups are not created on first use"


def _response(code: int, result: GetResult) -> Response:
    return Response(
        code,
        result.status.value,
        {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
        },
        result.body,
    )
