"""Kernel: the parts of the broker that serve requests and that a feature may use."""

from typing import NamedTuple

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.members.queue_locks import QueueLocks
from rockhopper.broker.kernel.members.retry_owners import RetryOwners
from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.processors.sends import SendProcessor
from rockhopper.broker.kernel.processors.topics_admin import TopicAdminProcessors, TopicAnnouncer
from rockhopper.broker.kernel.pull.long_polling import LongPolling
from rockhopper.broker.kernel.pull.puller import Puller
from rockhopper.broker.kernel.pull.reader_positions import ReaderPositions
from rockhopper.broker.kernel.scheduled.delayed import DelayedDelivery
from rockhopper.broker.kernel.scheduled.timers.recall import TimerRecall
from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.send.send_back import SendBack
from rockhopper.broker.kernel.send.sender import Sender
from rockhopper.broker.kernel.state_channels import StateChannels
from rockhopper.broker.name_server.cluster_queues import Cluster
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.latencies import Latencies, RequestTimes
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Redirect
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.message_ids import UniqueIds


class Scheduled(NamedTuple):
    """Delivery at a later time: delay levels and timers."""

    delayed: DelayedDelivery
    timers: Timers
    redirect: Redirect
    """Where a message with these properties is stored first."""


class Kernel(NamedTuple):
    """The open store and everything over it that is not a feature."""

    config: BrokerConfig
    clock: BrokerClock
    stats: BrokerStats
    access: AccessRules
    store: MessageStore
    store_host: bytes
    """This broker's address in the format of records."""
    log_end_at_start: int
    """The end of the log before this broker wrote to it."""
    tables: Tables
    consumers: ConsumerGroups
    producers: ProducerTable
    locks: QueueLocks
    sender: Sender
    sends: SendProcessor
    topic_admin: TopicAdminProcessors
    send_back: SendBack
    timer_recall: TimerRecall
    retry_owners: RetryOwners
    cluster: Cluster
    long_polling: LongPolling
    puller: Puller
    positions: ReaderPositions
    scheduled: Scheduled
    delay_levels: DelayLevels
    unique_ids: UniqueIds
    state: StateChannels
    listeners: list[KernelListener]
    """Those that the kernel notifies of events (kernel/events.py)."""
    request_times: RequestTimes
    flush_times: Latencies
    announcer: TopicAnnouncer
