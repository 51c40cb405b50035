"""What a server gives back when the official Java client reads a topic from end to end."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tests.interop.java_client import JavaClient


@dataclass(frozen=True, slots=True)
class Reading:
    """Every message of a topic, and the range of each of its queues."""

    messages: list[dict[str, Any]]
    queues: list[tuple[str, int, int, int]]
    """Broker name, queue id, minimum and maximum offset."""
    statuses: list[str]
    """Pulls inside a range that found nothing; there should be none."""

    @property
    def hashes(self) -> list[str]:
        """The SHA-1 of each body, sorted."""
        return sorted(message["sha1"] for message in self.messages)

    @property
    def ids(self) -> list[str]:
        """The unique id of each message, sorted."""
        return sorted(message["msgId"] for message in self.messages)

    def assert_whole(self) -> None:
        """Check that every queue holds each offset from its minimum to its maximum once."""
        assert self.statuses == []
        offsets = defaultdict(list)
        for message in self.messages:
            offsets[message["queueId"]].append(message["queueOffset"])
        for _, queue_id, low, high in self.queues:
            assert offsets[queue_id] == list(range(low, high)), f"queue {queue_id}"


def read_topic(java: JavaClient, nameserver: str, topic: str, expression: str = "*") -> Reading:
    """Read *topic* from the minimum to the maximum offset of each queue."""
    answer = java.call("pull", nameserver=nameserver, topic=topic, expression=expression)
    queues = [tuple(queue) for queue in answer["queues"]]
    return Reading(answer["messages"], queues, answer["statuses"])
