"""TopicEnds: where the queues of topics ended that were deleted or emptied.

A topic that is created again goes on at the offsets where the former one of its name ended.
Consumers that are still running keep their positions, and nothing that is sent to the new topic
has an offset that they have passed already. RocketMQ begins at 0 again, and consumers skip as many
messages as the former topic had.

Kept in ``<store>/rockhopper/topic-ends.json`` (checked_table.py); an entry is

    topic: {"<queue id>": offset of the next message, …}

At most ``TOPICS_MAX`` topics are kept; the oldest go first, and begin at 0 again.
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

    def add(self, topic: str, ends: Mapping[int, int]) -> None:
        """Keep the ends of the queues of a topic that is about to be deleted or emptied."""
        ends_by_id = {str(queue_id): end for queue_id, end in ends.items() if end > 0}
        merged = {**self.entries.get(topic, {}), **ends_by_id}
        if merged != self.entries.get(topic, {}):
            # At the end of the order: it is the newest.
            self.entries.pop(topic, None)
            self.set(topic, merged)
        while len(self.entries) > TOPICS_MAX:
            self.forget(next(iter(self.entries)))

    def clear(self) -> None:
        """Forget all of them."""
        for topic in list(self.entries):
            self.forget(topic)

    def end_of(self, topic: str, queue_id: int) -> int:
        """The offset at which a queue of a new topic of this name begins."""
        queues = self.entries.get(topic)
        return 0 if queues is None else int(queues.get(str(queue_id), 0))

    def from_json(self, document: JsonObject) -> None:
        """Take what was kept. Raises ValueError."""
        super().from_json(document)
        for queues in self.entries.values():
            if not isinstance(queues, dict) or not all(
                type(end) is int and queue_id.isdecimal() for queue_id, end in queues.items()
            ):
                raise ValueError("an entry does not hold offsets by queue ids")
