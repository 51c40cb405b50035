"""TopicEnds: the end offsets of the queues of deleted or emptied topics.

A topic that is created again continues at the end offsets of the former topic of its name. Running
consumers keep their positions, and no new message has an offset that they have already passed.
RocketMQ begins at 0 again, and consumers skip as many messages as the former topic had.

    topic T has 100 messages in queue 0; a group has consumed all of them
    T is deleted and created again; its next message gets offset 100, and the group receives it

The file is ``<store>/rockhopper/topic-ends.json`` (checked_table.py); an entry is

    topic: {"<queue id>": offset of the next message, …}

At most ``TOPICS_MAX`` topics are stored; the oldest are dropped first, and begin at 0 again.
"""

from collections.abc import Mapping

from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.json_table import JsonObject

TOPICS_MAX = 20_000


class TopicEnds(CheckedTable):
    """Topic -> the ends of its former queues. Belongs to the event loop."""

    lost = (
        "topics that are created again begin at offset 0: the list of former end offsets is damaged"
    )

    def store_ends(self, topic: str, ends: Mapping[int, int]) -> None:
        """Store the ends of the queues of a topic that is about to be deleted or emptied."""
        ends_by_id = {str(queue_id): end for queue_id, end in ends.items() if end > 0}
        merged = {**self.entries.get(topic, {}), **ends_by_id}
        if merged != self.entries.get(topic, {}):
            # Moved to the end of the order, because it is the newest.
            self.entries.pop(topic, None)
            self.set(topic, merged)
        while len(self.entries) > TOPICS_MAX:
            self.forget(next(iter(self.entries)))

    def clear(self) -> None:
        """Delete all entries."""
        for topic in list(self.entries):
            self.forget(topic)

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the offset at which a queue of a new topic of this name begins."""
        queues = self.entries.get(topic)
        return 0 if queues is None else int(queues.get(str(queue_id), 0))

    def from_json(self, document: JsonObject) -> None:
        """Load a stored document. Raises ValueError."""
        super().from_json(document)
        for queues in self.entries.values():
            if not isinstance(queues, dict) or not all(
                type(end) is int and queue_id.isdecimal() for queue_id, end in queues.items()
            ):
                raise ValueError("an entry does not hold offsets by queue ids")
