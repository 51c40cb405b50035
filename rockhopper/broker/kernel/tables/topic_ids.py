"""TopicIds: what tells a topic from another one that had its name before.

A topic that is deleted and made anew begins at offset 0 again, and once it has more messages than a
reader had read, offsets tell it nothing. So each topic has an id, of 16 hex digits at random, from
the first time that somebody asks for it until it is deleted. Kept in
``<store>/rockhopper/topic-ids.json`` (checked_table.py); an entry is

    [id, where the commit log ended when it was given]

Whoever gets an id gets it after it is on disk. At a start those are dropped whose topic is not
there, or was deleted later than the id was given: then the process ended in the midst of deleting.
"""

import secrets
from collections.abc import Container, Iterable

import structlog

from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.topics import TopicConfig

log = structlog.get_logger("broker.topics")

ID_BYTES = 8


class TopicIds(CheckedTable):
    """Topic -> its id. Belongs to the event loop."""

    lost = "jobs will treat every topic as created anew: the list of topic ids is damaged"

    def known(self, topic: str) -> str | None:
        """The id of a topic, None if nobody has asked for it."""
        entry = self.entries.get(topic)
        return None if entry is None else str(entry[0])

    def get(self, topic: str, log_end: int) -> str:
        """The id of a topic that is there; ``saved`` must return before it is told to anybody."""
        found = self.known(topic)
        if found is None:
            found = secrets.token_hex(ID_BYTES)
            self.set(topic, [found, log_end])
        return found

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Listen to a TopicTable: forget the topics that go."""
        if topic is None:
            self.forget(name)

    def agree_with(self, topics: Container[str], deletions: Iterable[tuple[str, int]]) -> None:
        """Drop the ids of topics that are not there, or were deleted since; writes nothing.

        *deletions* are (topic, commit log offset).
        """
        ends = dict(deletions)
        for topic, (_, since) in self.entries.copy().items():
            if topic not in topics or ends.get(topic, 0) > since:
                log.warning("a topic was deleted and created again", topic=topic)
                self.forget(topic)

    def from_json(self, document: dict[str, object]) -> None:
        """Take what was kept. Raises ValueError."""
        super().from_json(document)
        if not all(isinstance(entry, list) and len(entry) == 2 for entry in self.entries.values()):
            raise ValueError("an entry is not an id and an offset")
