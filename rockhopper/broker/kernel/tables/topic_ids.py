"""TopicIds: ids that distinguish a topic from an earlier one of the same name.

A topic that is deleted and created again may reuse offsets. Once it has more messages than a reader
had read, offsets alone do not reveal the change. So each topic has a random id of 16 hex digits,
from its first query until it is deleted. The file is ``<store>/rockhopper/topic-ids.json``
(checked_table.py); an entry is

    [id, where the commit log ended when it was assigned]

A client receives an id only after it is on disk. At a start, an id is dropped if its topic is
missing, or was deleted after the id was assigned: then the process ended during the deletion.
"""

import secrets
from collections.abc import Container, Iterable

import structlog

from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig

log = structlog.get_logger("broker.topics")

ID_BYTES = 8


class TopicIds(CheckedTable, CatalogListener):
    """Topic -> its id. Belongs to the event loop."""

    lost = "jobs will treat every topic as created anew: the list of topic ids is damaged"

    def find(self, topic: str) -> str | None:
        """Return the id of a topic, None if it was never queried."""
        entry = self.entries.get(topic)
        return None if entry is None else str(entry[0])

    def get(self, topic: str, log_end: int) -> str:
        """Return the id of an existing topic; ``saved`` must return before a client receives it."""
        found = self.find(topic)
        if found is None:
            found = secrets.token_hex(ID_BYTES)
            self.set(topic, [found, log_end])
        return found

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Delete the id of a deleted topic."""
        if topic is None:
            self.forget(name)

    def agree_with(self, topics: Container[str], deletions: Iterable[tuple[str, int]]) -> None:
        """Delete the ids of topics that are missing, or were deleted since; writes nothing.

        *deletions* are (topic, commit log offset).
        """
        ends = dict(deletions)
        for topic, (_, since) in self.entries.copy().items():
            if topic not in topics or ends.get(topic, 0) > since:
                log.warning("a topic was deleted and created again", topic=topic)
                self.forget(topic)

    def from_json(self, document: dict[str, object]) -> None:
        """Load a stored document. Raises ValueError."""
        super().from_json(document)
        if not all(isinstance(entry, list) and len(entry) == 2 for entry in self.entries.values()):
            raise ValueError("an entry is not an id and an offset")
