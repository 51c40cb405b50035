"""The state of static topics: RocketMQ's topicQueueMapping.json."""

from rockhopper.broker.feature import State
from rockhopper.broker.features.static_topics.mappings import StaticTopicTable
from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig, TopicTable
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout


class StaticTopicState(State, CatalogListener):
    """The mappings. One goes with its topic."""

    def __init__(self, layout: StoreLayout, clock: BrokerClock) -> None:
        table = StaticTopicTable(layout.config / "topicQueueMapping.json", now_ms=clock.wall_ms)
        table.changes_journal = TableJournal(
            layout.table_changes(table.path), layout.quarantine, mode=table.file_mode
        )
        self.table = table
        self.tables = {table: Channel.CONFIRMED}

    def attach(self, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        """Show the mappings with the topics, and delete those of deleted topics."""
        topics.mappings = self.table.mappings
        topics.mapping_table = self.table
        topics.listeners.append(self)

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Delete the mapping of a deleted topic."""
        if topic is None and name:
            self.table.delete(name)
