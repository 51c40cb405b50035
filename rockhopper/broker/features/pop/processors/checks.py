"""The checks of the pop family before any work; checks and codes are RocketMQ's.

Each raises a Refusal, or a RequestError with a code that only consumers know.
"""

from dataclasses import dataclass

from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.server.remoting.dispatcher import RequestError
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.errors import (
    GroupNotFound,
    IllegalMessage,
    InvalidParameter,
    NoPermission,
    Refusal,
    TopicNotFound,
)
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.names import group_error


@dataclass(eq=False, repr=False)
class PopChecks:
    """The conditions on broker, topic, queue and group."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable

    def broker_is_readable(self, what: str) -> None:
        """Check that this broker delivers messages."""
        config = self._config
        if not config.live.is_readable:
            raise NoPermission(f"the broker[{config.broker_name}] {what} message is forbidden")

    def may_read(self, peer: str, topic_name: str, group_name: str, queue_id: int) -> None:
        """Check that the group may pop the queue for *peer*; −1 means all queues."""
        topic = self._topic(topic_name)
        if not topic.is_readable:
            raise NoPermission(f"the topic[{topic_name}] peeking message is forbidden")
        if topic.is_batch:
            raise NoPermission(
                f"the topic[{topic_name}] has queues of type BatchCQ, which cannot be popped"
            )
        if queue_id >= topic.read_queue_nums:
            raise _illegal_queue(InvalidParameter, peer, topic, queue_id)
        group = self._group(group_name)
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {group_name}")

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic[{name}] not exist, apply first please!")
        return topic

    def _group(self, name: str) -> SubscriptionGroup:
        group = self._groups.find_or_create(name)
        if group is None:
            reason = group_error(name) or "groups are not created on first use"
            raise GroupNotFound(f"subscription group [{name}] does not exist: {reason}")
        return group

    def queue_range(self, peer: str, topic_name: str, queue_id: int) -> tuple[int, int]:
        """Return the offsets of a queue, which must exist."""
        topic = self._topic(topic_name)
        if not 0 <= queue_id < topic.read_queue_nums:
            raise _illegal_queue(IllegalMessage, peer, topic, queue_id)
        return self._store.reading.queue_range(topic_name, queue_id)


def _illegal_queue(kind: type[Refusal], peer: str, topic: TopicConfig, queue_id: int) -> Refusal:
    return kind(
        f"queueId[{queue_id}] is illegal, topic:[{topic.name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
        f"consumer:[{peer}]",
    )


def no_message(
    group: str, topic: str, queue_id: int, offset: int, low: int, high: int
) -> RequestError:
    """Return the refusal of an offset that has no message in its queue."""
    return RequestError(
        ResponseCode.NO_MESSAGE,
        f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{offset}, store:{low}~{high}",
    )
