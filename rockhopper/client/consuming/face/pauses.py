"""What an application wants nothing of for now: everything, topics, or single queues.

Kept by name, so that a queue which goes away and comes back is paused still. Messages that come
again by way of the group's retry topic count as those of the topic that they were sent to.
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
        """Those that are paused by name."""
        self._queues: set[MessageQueue] = set()

    def pause(self, *what: Paused) -> None:
        """Want nothing of these topics and queues; without one, of anything.

        Raises:
            TypeError: something else than topics and queues.
            ValueError: a name that no topic can have.
        """
        topics, queues = _sorted_out(what)
        self.is_everything |= not what
        self.topics |= topics
        self._queues |= queues

    def resume(self, *what: Paused) -> None:
        """Want them again; without one, everything. Raises as `pause`."""
        topics, queues = _sorted_out(what)
        if not what:
            self.is_everything = False
            self.topics.clear()
            self._queues.clear()
        self.topics -= topics
        self._queues -= queues

    def listed(self, every: Iterable[str]) -> list[Paused]:
        """The topics and queues that are paused; `every` topic is where everything is."""
        topics = self.topics.union(every) if self.is_everything else self.topics
        return [*sorted(topics), *sorted(self._queues)]

    def cover(self, queue: MessageQueue) -> bool:
        """Whether nothing of a queue is wanted."""
        return self.is_everything or queue in self._queues or queue.topic in self.topics

    def split(self, queue: MessageQueue) -> bool:
        """Whether some messages of a queue may be wanted and others not."""
        return bool(self.topics) and queue.topic == self._retry_topic

    def may_be(self, message: ReceivedMessage) -> bool:
        """Whether a message of such a queue is wanted."""
        return message.topic not in self.topics


def _sorted_out(what: tuple[Paused, ...]) -> tuple[set[str], set[MessageQueue]]:
    topics: set[str] = set()
    queues: set[MessageQueue] = set()
    for each in what:
        if isinstance(each, MessageQueue):
            queues.add(each)
        elif not isinstance(each, str):
            raise TypeError(f"a topic or a MessageQueue is paused, not {each!r}")
        elif (reason := topic_error(each)) is not None:
            raise ValueError(reason)
        else:
            topics.add(each)
    return topics, queues
