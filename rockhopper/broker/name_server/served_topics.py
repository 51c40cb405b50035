"""ServedTopics: the topics of remote brokers, indexed by topic and by broker.

Removing a broker takes time in proportion to its own topics, however many others there are.
"""

from collections.abc import Mapping, Set

from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.kernel.tables.topics import TopicConfig

_NONE: frozenset[str] = frozenset()


class ServedTopics:
    """Topics by name, each with the brokers that have it."""

    def __init__(self) -> None:
        self._brokers: dict[str, dict[str, TopicConfig]] = {}
        # The brokers' mappings of static topics, by topic and broker name.
        self._mappings: dict[str, dict[str, JsonObject]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self.count = 0
        """The number of topics; a topic counts once for each broker that has it."""

    def __len__(self) -> int:
        return len(self._brokers)

    def names(self) -> list[str]:
        """Return every topic once."""
        return list(self._brokers)

    def brokers(self, topic: str) -> Mapping[str, TopicConfig]:
        """Return the brokers that have *topic*, with its configuration on each."""
        return self._brokers.get(topic, {})

    def mappings(self, topic: str) -> Mapping[str, JsonObject]:
        """Return the brokers' queue mappings of *topic*, if it is a static topic."""
        return self._mappings.get(topic, {})

    def find_topics(self, broker: str) -> Set[str]:
        """Return the topics of *broker*; the set is live."""
        return self._topics_of.get(broker, _NONE)

    def set_topic(self, topic: str, broker: str, config: TopicConfig) -> None:
        """Add *topic* to *broker*, or update it."""
        brokers = self._brokers.setdefault(topic, {})
        if broker not in brokers:
            self._topics_of.setdefault(broker, set()).add(topic)
            self.count += 1
        brokers[broker] = config

    def put_mapping(self, topic: str, broker: str, mapping: JsonObject) -> None:
        """Store a broker's queue mapping of a static topic."""
        self._mappings.setdefault(topic, {})[broker] = mapping

    def remove(self, topic: str, broker: str) -> None:
        """Remove *topic* from *broker*, which must have it."""
        brokers = self._brokers[topic]
        del brokers[broker]
        if not brokers:
            del self._brokers[topic]
        mappings = self._mappings.get(topic, {})
        if mappings.pop(broker, None) is not None and not mappings:
            del self._mappings[topic]
        topics = self._topics_of[broker]
        topics.remove(topic)
        if not topics:
            del self._topics_of[broker]
        self.count -= 1

    def remove_broker(self, broker: str) -> None:
        """Remove *broker* with all its topics."""
        for topic in list(self.find_topics(broker)):
            self.remove(topic, broker)
