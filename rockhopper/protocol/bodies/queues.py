"""Bodies about single queues: locks, offsets, statistics, resets."""

from typing import Any, TypeVar

from msgspec import field

from rockhopper.protocol.bodies.body import Body, convert
from rockhopper.protocol.fastjson import MessageQueueKey

_Table = TypeVar("_Table", bound="QueueTable")


class QueueTable(Body, rename="camel"):
    """A body with a map by queues, whose keys are objects, which standard JSON does not allow."""

    @classmethod
    def from_json(cls: type[_Table], value: Any) -> _Table:
        """See Body. Raises MalformedBodyError."""
        return convert(_with_queue_keys(value), cls)


def _with_queue_keys(value: Any) -> Any:
    """Return *value* with string keys converted to the queues they encode."""
    if not isinstance(value, dict):
        return value
    return {
        MessageQueueKey.parse(key) if key.startswith("{") else key: _with_queue_keys(item)
        for key, item in value.items()
    }


class LockBatchRequestBody(Body, rename="camel"):
    """The body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueueKey] = field(default_factory=list)
    only_this_broker: bool = False


class LockBatchResponseBody(Body):
    """The answer to LOCK_BATCH_MQ (41)."""

    lock_ok_mq_set: list[MessageQueueKey] = field(name="lockOKMQSet", default_factory=list)


class TopicOffset(Body, rename="camel"):
    """The offsets of a queue."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0
    records_bytes: int | None = None
    """Rockhopper's: the size of the queue's records in the log, if requested."""


class TopicStatsTable(QueueTable, rename="camel"):
    """The answer to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueueKey, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class OffsetWrapper(Body, rename="camel"):
    """The progress of a group in a queue."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(QueueTable, rename="camel"):
    """The answer to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueueKey, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


class ResetOffsetBody(QueueTable, rename="camel"):
    """The answer to INVOKE_BROKER_TO_RESET_OFFSET (222), and the body of a broker's 220."""

    offset_table: dict[MessageQueueKey, int] = field(default_factory=dict)


class GetConsumerStatusBody(QueueTable, rename="camel"):
    """The answer to INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) and to 221."""

    consumer_table: dict[str, dict[MessageQueueKey, int]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueueKey, int] = field(default_factory=dict)
