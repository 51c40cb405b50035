"""The checks of a send: permission, topic, and queue.

The order of the checks, the codes and the remarks are RocketMQ's (SendMessageProcessor). Where
RocketMQ skips checks, this broker does not: it always checks the write permission of topic and
broker.
"""

import random
import time
from collections.abc import Callable

from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.errors import (
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    Refusal,
    TopicNotFound,
)
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.names import (
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    group_of_retry_topic,
)
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    decode_properties,
)

VERSION_WITH_MAX_RECONSUME_TIMES = 121
FIRST_RETRY_LEVEL = 3
TOPIC_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class SendChecks:
    """Admits sends to topics and queues of one broker."""

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
            queue_id = random.randrange(max(topic.write_queue_nums, 1))
        if send.topic.startswith(RETRY_PREFIX):
            return self._retry_target(send, topic, queue_id)
        return topic, queue_id

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
