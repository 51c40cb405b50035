"""EmbeddedBroker: the broker in this process, as its name service sees it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.topics import PERM_READ, PERM_WRITE, TopicConfig, TopicTable
from protocol.names import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from broker.server import Connection


class EmbeddedBroker:
    """Reads the broker's topics where they are, so that a topic is routable once it exists."""

    def __init__(
        self,
        cluster: str,
        name: str,
        instance: str,
        *,
        topics: TopicTable,
        permission: Callable[[], int],
        address_for: Callable[["Connection"], str],
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.instance = instance
        """What the broker sends with a registration, so that its own is told from a stranger's."""
        self.address_for = address_for
        self._topics = topics
        self._permission = permission

    def find_topic(self, name: str) -> TopicConfig | None:
        """The topic as routes show it: with creation switched off, its pattern is not there."""
        if name == AUTO_CREATE_TOPIC and not self._topics.creates_on_send:
            return None
        return self._topics.get(name)

    def create_on_lookup(self, name: str) -> None:
        """Create a topic whose route is asked for, if the settings say so."""
        self._topics.create_on_lookup(name)

    def topics(self) -> Iterable[TopicConfig]:
        """Every topic."""
        return list(self._topics.configs.values())

    def perm_of(self, topic: TopicConfig) -> int:
        """A topic's permission, less what brokerPermission takes away."""
        permission = self._permission()
        if permission & (PERM_READ | PERM_WRITE) == PERM_READ | PERM_WRITE:
            return topic.perm
        return topic.perm & permission
