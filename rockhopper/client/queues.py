"""MessageQueue: a queue of a topic, the unit in which messages are ordered."""

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker; sorts as RocketMQ's MessageQueue does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"
