"""SendBack: redelivers a message that a consumer failed to process, or gives it up.

The message is stored again: for ``%RETRY%group``, through the delay levels (10 s, 30 s, 1 min … 2
h), or in ``%DLQ%group`` once the limit of attempts is reached, or if its properties leave no room
for those of a redelivery.

With retryQueueNums=0, RocketMQ reports success and stores nothing. Here no failed message is
dropped: such a group has one retry queue.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from rockhopper.broker.kernel.scheduled.delayed import DelayedDelivery
from rockhopper.broker.kernel.send.record_access import ANY_MESSAGE, Identity, record_at
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import RecordTooLargeError
from rockhopper.broker.store.log.encoding import drop_own_properties
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Copy
from rockhopper.broker.users.errors import GroupNotFound, NoPermission, Refusal
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import (
    DEAD_LETTER_OPTIONAL_PROPERTIES,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT,
    fit_properties,
)

log = structlog.get_logger("broker.send_back")

FIRST_RETRY_LEVEL = 3


@dataclass(eq=False, repr=False)
class SendBack:
    """Accepts messages that consumers failed to process."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _delayed: DelayedDelivery
    _stats: BrokerStats

    def store_again(
        self,
        group_name: str,
        log_offset: int,
        delay_level: int,
        *,
        times_max: int | None = None,
        unit_mode: bool = False,
        of_topics: Collection[str] | None = None,
        meant: Identity = ANY_MESSAGE,
    ) -> int:
        """Store the message at *log_offset* again, for redelivery or as a dead letter.

        If *delay_level* is 0, the delay grows with each attempt; if it is negative, the message
        becomes a dead letter. A *times_max* of 0 or more replaces the group's own maximum. A
        message outside *of_topics*, which the client may not read, is not found. Nor is one that
        does not fit *meant*.

        Return the log offset that must be safe before the answer. Raises Refusal, StoreError.
        """
        group = self._groups.find_or_create(group_name)
        if group is None:
            raise GroupNotFound(f"subscription group not exist, {group_name}")
        if not self._config.live.is_writable:
            raise NoPermission(
                f"the broker[{self._config.broker_name}] sending message is forbidden"
            )
        retry_topic = self._topics.ensure_retry_topic(
            group.name, group.retry_queue_nums, unit_mode=unit_mode
        )
        _check_writable(retry_topic)
        found = record_at(self._store, log_offset, of_topics)
        if found is None:
            raise Refusal(f"look message by offset failed, {log_offset}")
        message = found[1]
        if not meant.fits(message):
            raise Refusal(
                f"look message by offset failed, {log_offset}: the offset now holds another "
                "message, because the log was cut after the message was read"
            )
        most = times_max if times_max is not None and times_max >= 0 else group.retry_max_times
        if message.reconsume_times >= most or delay_level < 0:
            return self._bury(message, group.name)
        return self._retry(message, group.name, retry_topic, delay_level)

    def _retry(
        self, message: StoredMessage, group: str, retry_topic: TopicConfig, delay_level: int
    ) -> int:
        properties = _properties_of_copy(message)
        topic, queue_id = self._delayed.levels.redirect(
            retry_topic.name,
            random.randrange(max(retry_topic.write_queue_nums, 1)),
            properties,
            delay_level or FIRST_RETRY_LEVEL + message.reconsume_times,
        )
        try:
            end = self._put_copy(message, topic, queue_id, properties)
        except RecordTooLargeError as error:
            log.error(
                "a message that was sent back cannot be stored for redelivery: it becomes a dead "
                "letter",
                topic=message.topic,
                group=group,
                commit_log_offset=message.commit_log_offset,
                reason=str(error),
            )
            return self._bury(message, group)
        counter = self._stats.get_send_back_traffic(properties[PROPERTY_RETRY_TOPIC], group)
        counter.count_request(1, message.size_bytes)
        return end

    def _bury(self, message: StoredMessage, group: str) -> int:
        dead_topic = self._topics.ensure_dlq_topic(group)
        _check_writable(dead_topic)
        properties = _properties_of_copy(message)
        properties[PROPERTY_DELAY_LEVEL] = "0"
        topic = properties[PROPERTY_RETRY_TOPIC]
        properties = fit_properties(properties, DEAD_LETTER_OPTIONAL_PROPERTIES)
        end = self._put_copy(message, dead_topic.name, 0, properties)
        counter = self._stats.dead(topic, group)
        counter.count_request(1, message.size_bytes)
        return end

    def _put_copy(
        self, message: StoredMessage, topic: str, queue_id: int, properties: dict[str, str]
    ) -> int:
        """Store the copy and return its end in the log."""
        store, times = self._store, message.reconsume_times + 1
        store.check_writable()
        store.staging.read_clock()
        store.staging.stage_again(Copy(topic, queue_id, message, properties, reconsume_times=times))
        end = store.commit()
        self._stats.get_send_traffic(topic).count_request(1, message.size_bytes)
        return end


def _properties_of_copy(message: StoredMessage) -> dict[str, str]:
    """Return the copy's properties, including references to the original message."""
    properties = drop_own_properties(message.properties)
    properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
    properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_message_id)
    properties[PROPERTY_WAIT] = "false"
    return properties


def _check_writable(topic: TopicConfig) -> None:
    if not topic.is_writable:
        raise NoPermission(f"the topic[{topic.name}] sending message is forbidden")
