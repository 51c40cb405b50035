"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320), checks and all.

``process`` serves every kind of message in any serialisation.  Plain messages to a known topic,
which are nearly all, normally take the short way through hot_pass.py, which ends up in the same
``store.stage``; whatever that does not recognise comes here.

The order of the checks, the codes and the remarks are RocketMQ's (SendMessageProcessor).  Where it
is careless we are not: the write permission of topic and broker is always checked, producer groups
must have valid names, and properties that the broker sets are never taken from a client.
"""

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.delay_levels import DelayLevels
from broker.dispatcher import (
    Request,
    RequestError,
    Response,
    field_error_code,
    store_error_response,
    unconfirmed_code,
)
from broker.message_ids import UniqueIds
from broker.stats import BrokerStats
from broker.store.encoding import DELAYING_PROPERTIES
from broker.store.errors import RecordTooLargeError, StoreError
from broker.store.fast_encoding import message_ids
from broker.store.message_store import MessageStore
from broker.subscription_groups import SubscriptionGroupTable
from broker.topics import TopicConfig, TopicTable
from protocol.codes import RequestCode, ResponseCode
from protocol.errors import FieldError, MalformedBatchError
from protocol.message_codec import decode_batch
from protocol.message_ids import offset_message_id
from protocol.names import (
    DLQ_PREFIX,
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    group_error,
    topic_error,
)
from protocol.properties import (
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT,
    decode_properties,
)
from protocol.requests import SendMessageRequest, SendMessageRequestV2
from protocol.sys_flags import (
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
    SYS_FLAG_TRANSACTION_MASK,
)

PERM_WRITE = 2
# Which records hold a batch is for the broker to say.
INNER_BATCH_FLAGS = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
VERSION_WITH_MAX_RECONSUME_TIMES = 121
# Set by the broker, whatever a client claims.
BROKER_PROPERTIES = (
    "REAL_TOPIC",
    "REAL_QID",
    "POP_CK",
    "INNER_NUM",
    "INNER_BASE",
    "DUP_INFO",
    "__CRC32#",
    "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
)
TIMER_PROPERTIES = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "__STARTDELIVERTIME")
TOPIC_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Send(NamedTuple):
    """The header of a send request, whichever names its fields had."""

    group: str
    topic: str
    default_topic: str
    default_queue_nums: int
    queue_id: int
    sys_flag: int
    born_time_ms: int
    flag: int
    properties: str
    reconsume_times: int
    reconsume_times_max: int | None
    is_batch: bool


class Placed(NamedTuple):
    """A message that is in the log: its ids and what the producer is told."""

    message_ids: str
    queue_offset: int
    transaction_id: str | None
    batch_unique_id: str | None = None


class SendPath:
    """Serves sends of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        stats: BrokerStats,
        *,
        store_host: bytes,
        now_ms: Callable[[], int],
        delay_levels: DelayLevels,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._store_address = store_host[:-4], int.from_bytes(store_host[-4:], "big")
        self._now_ms = now_ms
        self._delay_levels = delay_levels
        self._unique_ids = UniqueIds(store_host[:-4], now_ms)

    def process(self, request: Request) -> Response | None:
        """Serve one send; None when the answer waits for the disk."""
        try:
            send = _send_of(request)
        except FieldError as error:
            raise RequestError(field_error_code(error), str(error), self.answer_ext()) from None
        try:
            topic, queue_id = self.check(send, request.version)
            if send.is_batch:
                placed = self._put_batch(request, send, topic, queue_id)
            else:
                placed = self._put(request, send, topic, queue_id)
            end = self._store.commit()
        except RequestError as error:
            self._stats.put_failed += 1
            raise RequestError(error.code, error.remark, self.answer_ext()) from None
        except StoreError as error:
            self._stats.put_failed += 1
            response = self._refused(error)
            response.ext = self.answer_ext()
            return response
        response = self._answer(placed, queue_id)
        if not self._store.is_sync or not waits_for_disk(send.properties):
            return response

        def release(error: StoreError | None) -> None:
            if error is not None:
                response.code = unconfirmed_code(error)
                response.remark = str(error)
            request.answer(response)

        self._store.park(end, release)
        return None

    def _message_id(self, commit_log_offset: int) -> str:
        return offset_message_id(*self._store_address, commit_log_offset)

    def answer_ext(self) -> dict[str, str]:
        """What every answer carries; Java dereferences the map without looking."""
        return {
            "MSG_REGION": self._config.region_id,
            "TRACE_ON": "true" if self._config.trace_on else "false",
        }

    def _answer(self, placed: Placed, queue_id: int) -> Response:
        ext = self.answer_ext()
        ext["msgId"] = placed.message_ids
        ext["queueId"] = str(queue_id)
        ext["queueOffset"] = str(placed.queue_offset)
        if placed.transaction_id:
            ext["transactionId"] = placed.transaction_id
        if placed.batch_unique_id:
            ext["batchUniqId"] = placed.batch_unique_id
        return Response(ResponseCode.SUCCESS, ext=ext)

    def _refused(self, error: StoreError) -> Response:
        if isinstance(error, RecordTooLargeError):
            return Response(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal, maybe msg body or properties length not matched. msg body "
                f"length limit {self._config.store.message_size_max_bytes}B, msg properties length "
                f"limit 32KB. {error}",
            )
        return store_error_response(error)

    # -- checks --------------------------------------------------------------------------------

    def check(self, send: Send, version: int) -> tuple[TopicConfig, int]:
        """Find or create the topic and the queue.  Raises RequestError, StoreError."""
        self._store.check_writable()
        self._check_open()
        self._check_names(send)
        topic = self._topic(send)
        if not topic.perm & PERM_WRITE:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"the topic[{send.topic}] sending message is forbidden"
            )
        queue_nums = max(topic.write_queue_nums, topic.read_queue_nums)
        if send.queue_id >= queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{send.queue_id}] is illegal, topic [{send.topic}] has "
                f"{queue_nums} queues",
            )
        queue_id = send.queue_id
        if queue_id < 0:
            queue_id = random.randrange(max(topic.write_queue_nums, 1))
        if send.topic.startswith(RETRY_PREFIX):
            return self._retry_target(send, version, topic, queue_id)
        return topic, queue_id

    def _check_open(self) -> None:
        config = self._config
        if config.accept_send_from_ms > self._now_ms():
            opens = time.strftime(
                "%Y-%m-%d %H:%M:%S", time.localtime(config.accept_send_from_ms / 1e3)
            )
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {opens}"
            )
        if not config.broker_permission & PERM_WRITE:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_name}] sending message is forbidden",
            )

    def _check_names(self, send: Send) -> None:
        problem = topic_error(send.topic)
        if problem is not None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, problem)
        problem = group_error(send.group)
        if problem is not None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"producer group: {problem}")
        if send.topic in NOT_SENDABLE_TOPICS:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{send.topic}] is forbidden."
            )

    def _topic(self, send: Send) -> TopicConfig:
        topic = self._topics.get(send.topic)
        if topic is None and send.topic.startswith(RETRY_PREFIX):
            topic = self._topics.ensure_retry_topic(send.topic[len(RETRY_PREFIX) :])
        if topic is None:
            topic = self._topics.create_on_send(
                send.topic, send.default_topic, send.default_queue_nums
            )
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{send.topic}] not exist, apply first please!{TOPIC_FAQ}",
            )
        return topic

    def _retry_target(
        self, send: Send, version: int, topic: TopicConfig, queue_id: int
    ) -> tuple[TopicConfig, int]:
        """A message that a consumer sends back itself: to the dead letters when it gave up."""
        name = send.topic[len(RETRY_PREFIX) :]
        group = self._groups.find_or_create(name)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}",
            )
        most = group.retry_max_times
        if version >= VERSION_WITH_MAX_RECONSUME_TIMES and send.reconsume_times_max is not None:
            most = send.reconsume_times_max
        if send.reconsume_times > most:
            return self._topics.ensure_dlq_topic(name), 0
        return topic, queue_id

    # -- one message ---------------------------------------------------------------------------

    def _put(self, request: Request, send: Send, topic: TopicConfig, queue_id: int) -> Placed:
        self._check_body(request.body)
        properties = self._broker_properties(send)
        if (
            send.sys_flag & SYS_FLAG_TRANSACTION_MASK
            or properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
        ):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                "transactional messages are not served by this release: send it as a plain message",
            )
        if topic.attributes.get("cleanup.policy") == "COMPACTION" and not properties.get("KEYS"):
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        self._store.begin()
        name, stored_queue_id = topic.name, queue_id
        level = self._delay_level(properties)
        if name.startswith(DLQ_PREFIX):
            properties["DELAY"] = "-1"
        elif level > 0:
            name, stored_queue_id = self._delay_levels.redirect(name, queue_id, properties, level)
        tail = self._store.tail(name, stored_queue_id)
        position = self._store.stage(
            tail,
            request.body,
            properties,
            send.flag,
            send.sys_flag & ~INNER_BATCH_FLAGS,
            send.born_time_ms,
            request.connection.born_host,
            send.reconsume_times,
        )
        unique_key = properties["UNIQ_KEY"]
        self._stats.put(topic.name).add(1, len(request.body))
        return Placed(self._message_id(position), tail.next_offset - 1, unique_key)

    def _check_body(self, body: bytes) -> None:
        most = self._config.store.message_size_max_bytes
        if len(body) > most:
            raise RecordTooLargeError(f"The body has {len(body)} bytes.")

    def _broker_properties(self, send: Send) -> dict[str, str]:
        properties = decode_properties(send.properties)
        if len(send.properties) > 2 * 32_767:
            raise RecordTooLargeError(f"The properties have {len(send.properties)} characters.")
        for name in BROKER_PROPERTIES:
            properties.pop(name, None)
        if properties.get("WAIT") == "true":
            del properties["WAIT"]
        if not properties.get("UNIQ_KEY"):
            properties["UNIQ_KEY"] = self._unique_ids.next()
        properties["MSG_REGION"] = self._config.region_id
        properties["TRACE_ON"] = "true" if self._config.trace_on else "false"
        properties["CLUSTER"] = self._config.cluster_name
        return properties

    def _delay_level(self, properties: dict[str, str]) -> int:
        text = properties.get("DELAY")
        if text is not None:
            try:
                level = int(text)
            except ValueError:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"the property DELAY is {text!r}, not a delay level"
                ) from None
            if level > 0:
                for name in TIMER_PROPERTIES:
                    properties.pop(name, None)
                return min(level, self._delay_levels.level_max)
        if any(name in properties for name in TIMER_PROPERTIES):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal: delivery at a given time is not served by this release, "
                "use a delay level",
            )
        return 0

    # -- batches -------------------------------------------------------------------------------

    def _put_batch(self, request: Request, send: Send, topic: TopicConfig, queue_id: int) -> Placed:
        if topic.name.startswith(RETRY_PREFIX):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group "
            )
        if len(topic.name) > 127:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length over 127: {topic.name}"
            )
        self._check_body(request.body)
        if send.sys_flag & SYS_FLAG_TRANSACTION_MASK:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction"
            )
        try:
            messages = decode_batch(request.body)
        except MalformedBatchError as error:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if self._topics.is_batch(topic.name):
            unique_key = decode_properties(send.properties).get("UNIQ_KEY")
            if unique_key:
                return self._put_inner_batch(request, send, topic, queue_id, len(messages))
        for _, _, properties in messages:
            if not DELAYING_PROPERTIES.isdisjoint(decode_properties(properties)):
                raise RequestError(
                    ResponseCode.MESSAGE_ILLEGAL, "a message in a batch cannot be delayed"
                )
        self._store.begin()
        tail = self._store.tail(topic.name, queue_id)
        first_offset = tail.next_offset
        born_host = request.connection.born_host
        placed = self._store.stage_batch(
            tail,
            request.body,
            send.sys_flag & ~INNER_BATCH_FLAGS,
            send.born_time_ms,
            born_host,
        )
        if placed is None:
            raise RecordTooLargeError("A message of the batch does not fit a record.")
        self._stats.put(topic.name).add(len(messages), len(request.body))
        ids = message_ids(self._message_id(0)[:-16], placed[1])
        return Placed(ids, first_offset, None)

    def _put_inner_batch(
        self, request: Request, send: Send, topic: TopicConfig, queue_id: int, count: int
    ) -> Placed:
        """A topic of type BatchCQ keeps the whole batch as one record."""
        properties = self._broker_properties(send)
        unique_key = properties["UNIQ_KEY"]
        self._store.begin()
        tail = self._store.tail(topic.name, queue_id)
        first_offset = tail.next_offset
        properties["INNER_NUM"] = str(count)
        properties["INNER_BASE"] = str(first_offset)
        position = self._store.stage(
            tail,
            request.body,
            properties,
            send.flag,
            send.sys_flag | INNER_BATCH_FLAGS,
            send.born_time_ms,
            request.connection.born_host,
            batch_count=count,
        )
        self._stats.put(topic.name).add(count, len(request.body))
        return Placed(self._message_id(position), first_offset, unique_key, unique_key)


def waits_for_disk(properties: str) -> bool:
    """Whether a producer wants its answer only when the message is safe; nearly all do."""
    return "false" not in properties or decode_properties(properties).get(PROPERTY_WAIT) != "false"


def _send_of(request: Request) -> Send:
    wire: type[SendMessageRequest] | type[SendMessageRequestV2] = SendMessageRequestV2
    if request.code == RequestCode.SEND_MESSAGE:
        wire = SendMessageRequest
    fields = request.fields(wire)
    return Send(
        fields.producer_group,
        fields.topic,
        fields.default_topic,
        fields.default_topic_queue_nums,
        fields.queue_id,
        fields.sys_flag,
        fields.born_timestamp,
        fields.flag,
        fields.properties or "",
        fields.reconsume_times or 0,
        fields.max_reconsume_times,
        fields.batch or request.code == RequestCode.SEND_BATCH_MESSAGE,
    )
