"""ServingParts: the parts that serve requests, built over an open store, in their start order.

Broker adds the rest: ports, connections, name server, registration, the process.
"""

from collections.abc import Callable, Sequence

from rockhopper.broker.feature import Feature, FeaturePart, State
from rockhopper.broker.kernel.events import KernelEvents
from rockhopper.broker.kernel.kernel import Cluster, Kernel, Scheduled
from rockhopper.broker.kernel.members.change_notices import CallLater
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.members.queue_locks import QueueLocks
from rockhopper.broker.kernel.members.retry_owners import RetryOwners
from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.processors.sends import SendProcessor
from rockhopper.broker.kernel.processors.topics_admin import TopicAdminProcessors
from rockhopper.broker.kernel.pull.long_polling import LongPolling
from rockhopper.broker.kernel.pull.puller import Puller
from rockhopper.broker.kernel.pull.reader_positions import ReaderPositions
from rockhopper.broker.kernel.purging import Contents
from rockhopper.broker.kernel.scheduled.delayed import DelayedDelivery
from rockhopper.broker.kernel.scheduled.delays import by_delay
from rockhopper.broker.kernel.scheduled.timers.recall import TimerRecall
from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.send.send_back import SendBack
from rockhopper.broker.kernel.send.send_checks import SendChecks
from rockhopper.broker.kernel.send.sender import Sender
from rockhopper.broker.kernel.store_protection import protect_store
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.kernel.unused_groups import UnusedGroups
from rockhopper.broker.name_server.cluster_queues import ClusterQueues
from rockhopper.broker.name_server.peer_brokers import PeerBrokers
from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.cooperative_work import run_in_slices
from rockhopper.broker.server.loop.filter_turns import FilterTurns
from rockhopper.broker.server.loop.latencies import Latencies, RequestTimes
from rockhopper.broker.server.loop.part import Parts
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.mappings import MAPPED_FILES_MAX
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.opening import Extent
from rockhopper.broker.users.access import AccessRules


class ServingParts:
    """The parts by the names under which processors and tests reach them."""

    feature_list: Sequence[Feature] = ()
    """The features, in the order in which they are built."""
    states: dict[str, State]
    """The state of each feature, by its name."""
    features: dict[str, FeaturePart]
    """The part of each feature, by its name."""
    kernel: Kernel
    config: BrokerConfig
    access: AccessRules
    clock: BrokerClock
    stats: BrokerStats
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    cluster_queues: ClusterQueues
    topic_ids: TopicIds
    consumers: ConsumerGroups
    producers: ProducerTable
    locks: QueueLocks
    long_polling: LongPolling
    filter_turns: FilterTurns
    delayed: DelayedDelivery
    timers: Timers
    retry_owners: RetryOwners
    sender: Sender
    send_back: SendBack
    timer_recall: TimerRecall
    positions: ReaderPositions
    puller: Puller
    tables: Tables
    log_end_at_start: int
    parts: Parts
    request_times: RequestTimes
    flush_times: Latencies

    async def announce(self) -> None:
        """Return when other name servers have the current topics, or are unreachable."""
        raise NotImplementedError

    def change_config(self, config: BrokerConfig) -> None:
        """Apply changed run-time settings."""
        raise NotImplementedError

    @property
    def now_ms(self) -> Callable[[], int]:
        """The wall clock, for points in time."""
        return self.clock.wall_ms

    @property
    def steady_ms(self) -> Callable[[], int]:
        """The clock for durations."""
        return self.clock.steady_ms

    @property
    def passed_ms(self) -> Callable[[], int]:
        """The monotonic clock, for periods that must not end too early."""
        return self.clock.passed_ms

    def load_tables(self) -> None:
        """Read the tables; the store needs some of them to recover. Raises StoreError, OSError."""
        layout = StoreLayout.from_config(self.config.store)
        self.states = {
            feature.name: feature.state(layout, self.clock) for feature in self.feature_list
        }
        self.tables = Tables(self.config, self.clock, tuple(self.states.values()))
        self.topics = self.tables.topics
        self.groups = self.tables.groups
        self.offsets = self.tables.offsets
        self.topic_ids = self.tables.topic_ids
        self.tables.load()

    def open_store(
        self,
        store_host: bytes,
        mapped_files_max: int = MAPPED_FILES_MAX,
        cut_at: int | None = None,
    ) -> None:
        """Lock and recover the store, and correct the tables by it. Raises StoreError, OSError.

        *cut_at* is as for MessageStore.
        """
        self.store = MessageStore.open(
            self.config.store,
            now_ms=self.steady_ms,
            wall_ms=self.now_ms,
            batch_topic=self.topics.is_batch,
            known_offsets=self.tables.known_offsets,
            former_end=self.tables.topic_ends.end_of,
            delay_ms=self.tables.delays.levels.delay_ms,
            store_host=store_host,
            extent=Extent(mapped_files_max, cut_at),
        )
        protect_store(self.config)
        self.clock.not_before(self.store.store_time_ms)
        self.tables.agree_with(self.store)

    def build(
        self,
        store_host: bytes,
        *,
        name_service: NameService | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        """Make everything over tables and store; no I/O."""
        config, now_ms, steady_ms, store, topics, stats = (
            self.config,
            self.now_ms,
            self.steady_ms,
            self.store,
            self.topics,
            self.stats,
        )
        # Before the parts begin to write by themselves.
        self.log_end_at_start = store.max_commit_log_offset
        self.request_times = RequestTimes()
        self.flush_times = Latencies()
        store.flush_service.times = self.flush_times
        self.long_polling = LongPolling(self.store)
        self.consumers = ConsumerGroups(
            now_ms=self.passed_ms,
            may_notify=self._may_notify,
            call_later=call_later,
            remembered=self.tables.subscriptions,
        )
        self.producers = ProducerTable(now_ms=steady_ms)
        self.locks = QueueLocks(
            self.tables.locks, now_ms=self.passed_ms, other_connection=self.consumers.connection_of
        )
        self.delayed = DelayedDelivery(
            store,
            topics,
            self.long_polling,
            stats,
            self.tables.delays,
            now_ms=steady_ms,
        )
        self.timers = self.tables.timers.build(store, self.long_polling, stats)
        self.sender = Sender(
            config,
            store,
            SendChecks(
                config,
                store,
                topics,
                self.groups,
                now_ms=now_ms,
                consumes_in_order=self.locks.is_held_by,
            ),
            stats,
            store_host=store_host,
            now_ms=now_ms,
            delay_levels=self.delayed.levels,
            timers=self.timers,
        )
        self.send_back = SendBack(config, store, topics, self.groups, self.delayed, stats)
        self.timer_recall = TimerRecall(config, topics, self.timers)
        redirect = by_delay(self.delayed.levels, self.timers, now_ms)
        self.positions = ReaderPositions(
            store, self.consumers, self.offsets, stats, self.tables.history
        )
        self.puller = Puller(
            config,
            store,
            topics,
            self.groups,
            self.consumers,
            self.offsets,
            self.long_polling,
            stats,
        )
        self.filter_turns = self.puller.turns
        self.puller.positions = self.positions
        self.cluster_queues = ClusterQueues(config, topics, name_service)
        self.retry_owners = RetryOwners(topics, self.groups, self.offsets)
        events = KernelEvents()
        topic_admin = TopicAdminProcessors(
            config,
            store,
            topics,
            self.groups,
            self.tables.deletions,
            self.tables.topic_ends,
            self.offsets,
            self.consumers,
            stats,
            events,
            self.retry_owners,
            self,
        )
        self.kernel = Kernel(
            config=config,
            clock=self.clock,
            stats=stats,
            access=self.access,
            store=store,
            store_host=store_host,
            tables=self.tables,
            topics=topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            producers=self.producers,
            locks=self.locks,
            sender=self.sender,
            sends=SendProcessor(config, store, self.sender),
            topic_admin=topic_admin,
            send_back=self.send_back,
            cluster=Cluster(PeerBrokers(config, name_service), self.cluster_queues),
            puller=self.puller,
            positions=self.positions,
            scheduled=Scheduled(self.delayed, self.timers, redirect),
            state=self.tables.channels,
            events=events,
            announcer=self,
        )
        self.features = {
            feature.name: feature.build(self.kernel, self.states[feature.name])
            for feature in self.feature_list
        }
        for part in self.features.values():
            self.sender.preparations += part.prepare_send.items()
            if part.divert_send is not None:
                self.sender.diversions.append(part.divert_send)
        store.scrub.others.append(self.tables)
        self.parts = Parts(
            self.tables,
            self.consumers,
            self.producers,
            self.locks,
            Contents(store, self.tables, self.consumers, stats),
            self.positions,
            *self.features.values(),
            self.delayed,
            self.timers,
            self.kernel.cluster.brokers,
            self.cluster_queues,
            self.filter_turns,
            self.long_polling,
            UnusedGroups(
                self.groups,
                topics,
                self.offsets,
                self.consumers,
                store,
                self.features.values(),
            ),
        )

    def expire(self) -> None:
        """Drop clients that are silent, and state that is no longer used."""
        self.parts.expire()

    async def sample(self) -> None:
        """Take the samples of the statistics that are due."""
        if await run_in_slices(self.stats.sample_in_steps()):
            self.store.put_times.begin_period()

    def _may_notify(self, group: str) -> bool:
        settings = self.groups.get(group)
        return self.config.live.notify_consumers_changed and (
            settings is None or settings.notify_consumer_ids_changed_enable
        )
