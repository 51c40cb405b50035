"""LightQueueState: topics and groups with names of light queues exist without being created."""

from rockhopper.broker.kernel.state import NoState
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topics import CREATED_REMEMBERED_MAX, TopicConfig, TopicTable
from rockhopper.protocol.names import topic_error
from rockhopper.protocol.store.light_queues import is_light, light_queue_error


class LightQueueState(NoState):
    """Nothing is stored; a follower serves light queues, too."""

    def attach(self, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        """Serve light queues from these tables, if the settings enable them."""
        config = topics.config.store
        if config.light_queues_enabled:
            topics.serve_implicit(LightTopics(is_sent_by_name=config.multi_dispatch_enabled))
            groups.serve_implicit(LightGroups())


class LightTopics:
    """Each light queue, known or not, is a topic with one queue."""

    def __init__(self, *, is_sent_by_name: bool) -> None:
        self._is_sent_by_name = is_sent_by_name
        self._found: dict[str, TopicConfig] = {}

    def owns(self, name: str) -> bool:
        """Return whether *name* is that of a light queue."""
        return is_light(name)

    def find(self, name: str) -> TopicConfig | None:
        """Return the topic; None if no light queue may have this name."""
        if light_queue_error(name) is not None:
            return None
        topic = self._found.get(name)
        if topic is None:
            if len(self._found) >= CREATED_REMEMBERED_MAX:
                self._found.clear()
            topic = TopicConfig(name, read_queue_nums=1, write_queue_nums=1)
            self._found[name] = topic
        return topic

    def name_error(self, name: str) -> str | None:
        """Return why no message may be sent to *name*; None if one may."""
        return light_queue_error(name) if self._is_sent_by_name else topic_error(name)


class LightGroups:
    """A group with the name of a light queue has the default settings."""

    def owns(self, name: str) -> bool:
        """Return whether *name* is that of a light queue."""
        return is_light(name)

    def find(self, name: str) -> SubscriptionGroup | None:
        """Return the group; None if no light queue may have this name."""
        return SubscriptionGroup(name) if light_queue_error(name) is None else None
