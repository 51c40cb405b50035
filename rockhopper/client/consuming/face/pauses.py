"""What the application has paused: everything, topics, or single queues.

Pauses are stored by name, so a queue that is revoked and assigned again is still paused. A message
from the group's retry topic counts as a message of its original topic.
"""

from collections.abc import Iterable

from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.names import topic_error

Paused = str | MessageQueue


class Pauses:
    """The pauses of one consumer."""

    def __init__(self, retry_topic: str | None) -> None:
        self.is_everything = False
        self._retry_topic = retry_topic
        self.topics: set[str] = set()
        """The topics paused by name."""
        self._queues: set[MessageQueue] = set()

    def pause(self, *what: Paused) -> None:
        """Pause these topics and queues; without an argument, everything.

        Raises:
            TypeError: an argument is neither a topic nor a queue.
            ValueError: an invalid topic name.
        """
        topics, queues = _sort_out(what)
        self.is_everything |= not what
        self.topics |= topics
        self._queues |= queues

    def resume(self, *what: Paused) -> None:
        """Resume these topics and queues; without an argument, everything. Raises like `pause`."""
        topics, queues = _sort_out(what)
        if not what:
            self.is_everything = False
            self.topics.clear()
            self._queues.clear()
        self.topics -= topics
        self._queues -= queues

    def list_paused(self, every: Iterable[str]) -> list[Paused]:
        """Return the paused topics and queues; includes `every` topic if everything is paused."""
        topics = self.topics.union(every) if self.is_everything else self.topics
        return [*sorted(topics), *sorted(self._queues)]

    def cover(self, queue: MessageQueue) -> bool:
        """Whether the whole queue is paused."""
        return self.is_everything or queue in self._queues or queue.topic in self.topics

    def split(self, queue: MessageQueue) -> bool:
        """Whether a queue may hold both paused and unpaused messages."""
        return bool(self.topics) and queue.topic == self._retry_topic

    def may_be(self, message: ReceivedMessage) -> bool:
        """Whether a message of such a mixed queue may be delivered."""
        return message.topic not in self.topics


def _sort_out(what: tuple[Paused, ...]) -> tuple[set[str], set[MessageQueue]]:
    topics: set[str] = set()
    queues: set[MessageQueue] = set()
    for each in what:
        if isinstance(each, MessageQueue):
            queues.add(each)
        elif not isinstance(each, str):
            raise TypeError(f"expected a topic or a MessageQueue to pause, not {each!r}")
        elif (reason := topic_error(each)) is not None:
            raise ValueError(reason)
        else:
            topics.add(each)
    return topics, queues
