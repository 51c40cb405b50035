"""UnusedGroups: deletes groups that clients created by name and never used.

A group and its retry topic are created when a client first names the group. A client that invents a
name at each start, or a hostile one, would fill memory and files. Only groups that clients created
since this broker started are deleted. A group is kept if an administrator created it, or if it has
committed an offset, popped a message or sent one back.
"""

from collections.abc import Iterable

import structlog

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.names import retry_topic

log = structlog.get_logger("broker.groups")

UNUSED_MS = 3_600_000
LOOKED_AT_ONCE_MAX = 200


class UnusedGroups(Part):
    """Checks the oldest groups that clients created, every few seconds."""

    def __init__(
        self,
        tables: Tables,
        consumers: ConsumerGroups,
        store: MessageStore,
        features: Iterable[FeaturePart],
    ) -> None:
        self._groups = tables.groups
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._consumers = consumers
        self._store = store
        self._features = tuple(features)

    def expire(self) -> None:
        """Delete groups that were created an hour ago, have no members, and were never used."""
        due = self._groups.take_made_before(UNUSED_MS, LOOKED_AT_ONCE_MAX)
        if not due:
            return
        used = {group for _, group, _ in self._offsets.entries()}
        used.update(*(part.used_groups() for part in self._features))
        gone = []
        for name in due:
            topic = retry_topic(name)
            if name in used or self._store.reading.queue_range(topic, 0)[1] > 0:
                continue
            if self._consumers.get(name) is not None:
                self._groups.note_made(name)
                continue
            self._groups.delete(name)
            self._topics.delete(topic)
            gone.append(name)
        if gone:
            log.info("groups that were never used are deleted", count=len(gone), groups=gone[:5])
