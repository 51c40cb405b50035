"""What the processors need of a broker: its parts, by the names they have there."""

from collections.abc import Callable
from typing import Protocol

from rockhopper.broker.later.delayed import DelayedDelivery
from rockhopper.broker.later.timers.timers import Timers
from rockhopper.broker.members.consumer_groups import ConsumerGroups
from rockhopper.broker.members.producers import ProducerTable
from rockhopper.broker.members.queue_locks import QueueLocks
from rockhopper.broker.nameserver.peer_brokers import PeerBrokers
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.pop.service import PopService
from rockhopper.broker.pulling.pull_path import PullPath
from rockhopper.broker.sending.send_path import SendPath
from rockhopper.broker.settings.config import BrokerConfig
from rockhopper.broker.sinks import SinkPublisher
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.tables.static_topics import StaticTopicTable
from rockhopper.broker.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.tables.topic_ids import TopicIds
from rockhopper.broker.tables.topics import TopicTable
from rockhopper.broker.transactions.transactions import Transactions


class BrokerParts(Protocol):
    """A broker, as its processors see it.

    They read ``config`` at each request, because an administrator may have changed it.
    """

    @property
    def config(self) -> BrokerConfig:
        """The settings as they are now."""

    @property
    def store(self) -> MessageStore:
        """Where messages are."""

    @property
    def topics(self) -> TopicTable:
        """What topics exist."""

    @property
    def static_topics(self) -> StaticTopicTable:
        """Which logical queues topics have."""

    @property
    def peer_brokers(self) -> PeerBrokers:
        """Other brokers of the cluster."""

    @property
    def groups(self) -> SubscriptionGroupTable:
        """The settings of consumer groups."""

    @property
    def offsets(self) -> ConsumerOffsetTable:
        """Where each group goes on."""

    @property
    def topic_ids(self) -> TopicIds:
        """What tells topics from others of their names."""

    @property
    def consumers(self) -> ConsumerGroups:
        """Who consumes now."""

    @property
    def producers(self) -> ProducerTable:
        """Who produces now."""

    @property
    def locks(self) -> QueueLocks:
        """Which queues are consumed in order."""

    @property
    def delayed(self) -> DelayedDelivery:
        """How far the delay levels are."""

    @property
    def transactions(self) -> Transactions:
        """Which transactions are open."""

    @property
    def timers(self) -> Timers:
        """What is delivered at a time."""

    @property
    def stats(self) -> BrokerStats:
        """What went in and out."""

    @property
    def send_path(self) -> SendPath:
        """Serves sends."""

    @property
    def pull_path(self) -> PullPath:
        """Serves pulls."""

    @property
    def sinks(self) -> SinkPublisher:
        """Publishes batches of jobs exactly once."""

    @property
    def pop(self) -> PopService:
        """Pop consumption."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """The wall clock, for points in time."""

    @property
    def steady_ms(self) -> Callable[[], int]:
        """The clock for what lasts: store times, delays, leases."""

    async def announce(self) -> None:
        """Return when the name services elsewhere know the topics as they are now, or are down."""

    def change_config(self, config: BrokerConfig) -> None:
        """Go on with other run-time settings."""
