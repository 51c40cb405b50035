"""Deletes the users' content of a broker: for ``Broker.purge``.

User topics, groups, offsets and settings are deleted, with every message. System topics stay but
are emptied; only their queues do not begin at 0 again.

Connections stay, and so do the groups and topics of online consumers. So a client that outlives one
test continues as if it had just joined.
"""

from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.names import SYSTEM_GROUPS, retry_topic


class Contents(Part):
    """The messages of the store and the entries of the tables.

    In the order of parts, this comes before those that continue at the new end of the store.
    """

    def __init__(
        self, store: MessageStore, tables: Tables, consumers: ConsumerGroups, stats: BrokerStats
    ) -> None:
        self._store = store
        self._stats = stats
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._topic_ends = tables.catalog.topic_ends
        self._deletions = tables.deletions
        self._subscriptions = tables.subscriptions
        self._consumers = consumers

    def purge(self) -> None:
        """Delete everything, without yielding to the event loop."""
        kept = self._topics_online()
        self._empty_store()
        for name in list(self._topics.configs):
            if not self._topics.is_system(name):
                self._topics.delete(name)
                self._stats.forget_topic(name)
        self._topic_ends.clear()
        self._offsets.delete_all()
        for group in list(self._groups.groups):
            if group not in SYSTEM_GROUPS:
                self._groups.delete(group)
        self._bring_back(kept)

    def _topics_online(self) -> list[TopicConfig]:
        """Return the existing topics to which online consumers subscribe."""
        wanted = {topic for group in self._consumers for topic in group.subscriptions()}
        return [
            topic
            for name, topic in sorted(self._topics.configs.items())
            if name in wanted and not self._topics.is_system(name)
        ]

    def _empty_store(self) -> None:
        system: list[str] = []
        users: list[str] = []
        for name in {*self._store.reading.topics(), *self._topics.configs}:
            (system if self._topics.is_system(name) else users).append(name)
        self._deletions.delete_topics(users).remove()
        self._deletions.purge_topics(system)

    def _bring_back(self, topics: list[TopicConfig]) -> None:
        """Recreate what the first heartbeats of online consumers had created."""
        for topic in topics:
            # A copy, so that everything derived from the settings is derived again.
            self._topics.put(TopicConfig.from_json(topic.name, topic.to_json()))
        online = {group.name for group in self._consumers}
        self._subscriptions.keep_only(online)
        for name in sorted(online):
            group = self._groups.find_or_create(name)
            if group is not None and retry_topic(name) not in self._topics:
                self._topics.ensure_retry_topic(name, group.retry_queue_nums)
