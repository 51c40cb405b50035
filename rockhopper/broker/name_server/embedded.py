"""EmbeddedBroker: the broker in this process, as its name service sees it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.name_server.broker_standing import ALONE, BrokerStanding
from rockhopper.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, group_error
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from rockhopper.broker.server.remoting.server import Connection


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
        may_have_group: Callable[[str], bool] = lambda _group: False,
        standing: Callable[[], BrokerStanding] = lambda: ALONE,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.instance = instance
        """What the broker sends with a registration, so that its own is told from a stranger's."""
        self.address_for = address_for
        self.standing = standing
        """What it is in its replica set just now."""
        self._topics = topics
        self._permission = permission
        self._may_have_group = may_have_group

    def find_topic(self, name: str) -> TopicConfig | None:
        """The topic as routes show it: with creation switched off, its pattern is not there.

        The retry topic of a group is shown before the group's first heartbeat makes it: a consumer
        asks for its route just before that heartbeat, and then not again for 30 s.
        """
        if name == AUTO_CREATE_TOPIC and not self._topics.creates_on_send:
            return None
        topic = self._topics.get(name)
        if topic is None and name.startswith(RETRY_PREFIX):
            group = name[len(RETRY_PREFIX) :]
            if group_error(group) is None and self._may_have_group(group):
                return TopicConfig(name, read_queue_nums=1, write_queue_nums=1)
        return topic

    def create_on_lookup(self, name: str) -> None:
        """Create a topic whose route is asked for, if the settings say so."""
        self._topics.create_on_lookup(name)

    @property
    def table(self) -> TopicTable:
        """The broker's topics."""
        return self._topics

    def topics(self) -> Iterable[TopicConfig]:
        """Every topic."""
        return list(self._topics.configs.values())

    def perm_of(self, topic: TopicConfig) -> int:
        """A topic's permission, less what brokerPermission takes away."""
        permission = self._permission()
        if permission & (PERM_READ | PERM_WRITE) == PERM_READ | PERM_WRITE:
            return topic.perm
        return topic.perm & permission
