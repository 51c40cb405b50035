"""The composition of a broker: its store, the kernel over it, and the features.

Broker adds the rest: ports, connections, name server, registration, the process.
"""

from collections.abc import Sequence

from rockhopper.broker.feature import Feature, FeaturePart
from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.kernel import Kernel, Scheduled
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
from rockhopper.broker.kernel.scheduled.delays import build_delay_redirect
from rockhopper.broker.kernel.scheduled.timers.recall import TimerRecall
from rockhopper.broker.kernel.send.send_back import SendBack
from rockhopper.broker.kernel.send.sender import SendChecks, Sender
from rockhopper.broker.kernel.store_protection import protect_store
from rockhopper.broker.kernel.unused_groups import UnusedGroups
from rockhopper.broker.name_server.cluster_queues import Cluster
from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.cooperative_work import run_in_slices
from rockhopper.broker.server.loop.latencies import Latencies, RequestTimes
from rockhopper.broker.server.loop.part import Parts
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.mapped_file import MAPPED_FILES_MAX
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.opening import Extent
from rockhopper.broker.users.access import AccessRules


class BrokerCore:
    """The store of a broker, and what is built over it; both anew with each change of role."""

    feature_list: Sequence[Feature] = ()
    """The features, in the order in which they are built."""
    config: BrokerConfig
    access: AccessRules
    clock: BrokerClock
    stats: BrokerStats
    tables: Tables
    store: MessageStore
    kernel: Kernel
    features: dict[str, FeaturePart]
    """The part of each feature, by its name."""
    parts: Parts

    async def announce(self) -> None:
        """Return when other name servers have the current topics, or are unreachable."""
        raise NotImplementedError

    def change_config(self, config: BrokerConfig) -> None:
        """Apply changed run-time settings."""
        raise NotImplementedError

    def load_tables(self) -> None:
        """Read the tables; the store needs some of them to recover. Raises StoreError, OSError."""
        layout = StoreLayout.from_config(self.config.store)
        states = {feature.name: feature.state(layout, self.clock) for feature in self.feature_list}
        self.tables = Tables(self.config, self.clock, states)
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
            now_ms=self.clock.steady_ms,
            wall_ms=self.clock.wall_ms,
            batch_topic=self.tables.topics.is_batch,
            known_offsets=self.tables.known_offsets,
            delay_ms=self.tables.delays.levels.delay_ms,
            store_host=store_host,
            extent=Extent(mapped_files_max, cut_at),
        )
        protect_store(self.config)
        self.clock.not_before(self.store.log.store_time_ms)
        self.tables.agree_with(self.store)

    def build(
        self,
        store_host: bytes,
        *,
        name_service: NameService | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        """Make everything over tables and store; no I/O."""
        parts = Parts()
        kernel = self.kernel = build_kernel(self, parts, store_host, name_service, call_later)
        self.features = {
            feature.name: parts.register(feature.build(kernel, self.tables.features[feature.name]))
            for feature in self.feature_list
        }
        for part in self.features.values():
            kernel.sender.preparations += part.prepare_send.items()
            if part.divert_half is not None:
                kernel.sender.diversions.append(part.divert_half)
        self.store.scrub.others.append(self.tables)
        parts.register_last(
            UnusedGroups(self.tables, kernel.consumers, self.store, self.features.values())
        )
        self.parts = parts

    async def sample(self) -> None:
        """Take the samples of the statistics that are due."""
        if await run_in_slices(self.stats.sample_in_steps()):
            self.store.put_times.begin_period()


def build_kernel(
    broker: BrokerCore,
    parts: Parts,
    store_host: bytes,
    name_service: NameService | None,
    call_later: CallLater | None,
) -> Kernel:
    """Make the kernel over tables and store of *broker*, and register its parts; no I/O."""
    config, clock, stats = broker.config, broker.clock, broker.stats
    tables, store = broker.tables, broker.store
    topics, groups, offsets = tables.topics, tables.groups, tables.offsets
    now_ms, steady_ms, passed_ms = clock.wall_ms, clock.steady_ms, clock.passed_ms

    def may_notify(group: str) -> bool:
        settings = groups.get(group)
        return config.live.notify_consumers_changed and (
            settings is None or settings.notify_consumer_ids_changed_enable
        )

    # Before the parts begin to write by themselves.
    log_end_at_start = store.log.written_offset
    flush_times = Latencies()
    store.flush_service.times = flush_times
    listeners: list[KernelListener] = []
    parts.register(tables)
    consumers = parts.register(
        ConsumerGroups(
            now_ms=passed_ms,
            may_notify=may_notify,
            call_later=call_later,
            remembered=tables.subscriptions,
            listeners=listeners,
        )
    )
    producers = parts.register(ProducerTable(now_ms=steady_ms, listeners=listeners))
    locks = parts.register(
        QueueLocks(tables.locks, now_ms=passed_ms, other_connection=consumers.connection_of)
    )
    parts.register(Contents(store, tables, consumers, stats))
    positions = parts.register(
        ReaderPositions(store, consumers, offsets, stats, tables.catalog.history)
    )
    long_polling = LongPolling(store)
    delayed = parts.register_last(
        DelayedDelivery(store, topics, long_polling, stats, tables.delays, now_ms=steady_ms)
    )
    timers = parts.register_last(tables.timers.build(store, long_polling, stats, listeners))
    cluster = parts.register_last(Cluster(config, topics, name_service))
    puller = parts.register_last(
        Puller(config, store, topics, groups, consumers, offsets, long_polling, stats)
    )
    puller.positions, puller.listeners = positions, listeners
    sender = Sender(
        config,
        store,
        SendChecks(
            config, store, topics, groups, now_ms=now_ms, consumes_in_order=locks.is_held_by
        ),
        stats,
        store_host=store_host,
        now_ms=now_ms,
        delay_levels=delayed.levels,
        timers=timers,
    )
    retry_owners = RetryOwners(topics, groups, offsets)
    return Kernel(
        config=config,
        clock=clock,
        stats=stats,
        access=broker.access,
        store=store,
        store_host=store_host,
        log_end_at_start=log_end_at_start,
        tables=tables,
        consumers=consumers,
        producers=producers,
        locks=locks,
        sender=sender,
        sends=SendProcessor(config, store, sender, listeners),
        topic_admin=TopicAdminProcessors(
            config,
            store,
            topics,
            groups,
            tables.deletions,
            tables.catalog.topic_ends,
            offsets,
            consumers,
            stats,
            listeners,
            retry_owners,
            broker,
        ),
        send_back=SendBack(config, store, topics, groups, delayed, stats),
        timer_recall=TimerRecall(config, topics, timers),
        retry_owners=retry_owners,
        cluster=cluster,
        long_polling=long_polling,
        puller=puller,
        positions=positions,
        delay_levels=delayed.levels,
        unique_ids=sender.unique_ids,
        scheduled=Scheduled(delayed, timers, build_delay_redirect(delayed.levels, timers, now_ms)),
        state=tables.channels,
        listeners=listeners,
        request_times=RequestTimes(),
        flush_times=flush_times,
        announcer=broker,
    )
