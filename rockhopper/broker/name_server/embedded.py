"""EmbeddedBroker: the broker in this process, as its name server sees it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.name_server.advertisement import ALONE, Advertisement
from rockhopper.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, group_error
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from rockhopper.broker.server.remoting.connection import RemotingConnection


class EmbeddedBroker:
    """Reads the broker's topics directly, so that a topic is routable once it exists."""

    def __init__(
        self,
        cluster: str,
        name: str,
        instance: str,
        *,
        topics: TopicTable,
        permission: Callable[[], int],
        address_for: Callable[["RemotingConnection"], str],
        may_have_group: Callable[[str], bool] = lambda _group: False,
        advertisement: Callable[[], Advertisement] = lambda: ALONE,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.instance = instance
        """The id in the broker's registration; another broker of the same name has another id."""
        self.address_for = address_for
        self.advertisement = advertisement
        """Returns its present role in its replica set."""
        self._topics = topics
        self._permission = permission
        self._may_have_group = may_have_group

    def find_topic(self, name: str) -> TopicConfig | None:
        """Return the topic for routes; hide the auto-creation pattern if creation is switched off.

        The retry topic of a group is returned before the group's first heartbeat creates it. A
        consumer requests its route just before that heartbeat, and then not again for 30 s.
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
        """Create a topic whose route is requested, if the settings allow it."""
        self._topics.create_on_lookup(name)

    @property
    def table(self) -> TopicTable:
        """The broker's topics."""
        return self._topics

    def topics(self) -> Iterable[TopicConfig]:
        """Every topic."""
        return list(self._topics.configs.values())

    def perm_of(self, topic: TopicConfig) -> int:
        """Return a topic's permission, reduced by brokerPermission."""
        permission = self._permission()
        if permission & (PERM_READ | PERM_WRITE) == PERM_READ | PERM_WRITE:
            return topic.perm
        return topic.perm & permission
