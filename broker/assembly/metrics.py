"""/metrics: the broker's numbers under RocketMQ's metric names, in Prometheus' text format.

The numbers are read when somebody asks, on the event loop, which gets its turn between pieces;
importing prometheus_client (40 ms) and writing the text happen in a thread.

Unlike RocketMQ, lag is computed from committed offsets, so that a group whose consumers have
crashed still shows; the label ``online`` says whether anybody consumes. A queue in which a group
has not committed counts whole, as in the answer to 208.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rockhopper.broker.assembly.parts import ServingParts
from rockhopper.broker.later.timers.timers import Timers
from rockhopper.broker.loop.stalls import STALL_S, StallWatchdog
from rockhopper.broker.members.consumer_groups import BROADCASTING, ConsumerGroups
from rockhopper.broker.members.producers import ProducerTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.pop.service import PopService
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.tables.topics import TopicTable
from rockhopper.broker.transactions.transactions import Transactions
from rockhopper.protocol.names import is_retry_topic

SAMPLES_PER_TURN = 500


class Family:
    """One metric: its samples are (label values, number)."""

    def __init__(self, kind: str, name: str, help_text: str, *labels: str) -> None:
        self.kind = kind
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self.samples: list[tuple[tuple[str, ...], float]] = []

    def add(self, value: float, *labels: str) -> "Family":
        """Note one number."""
        self.samples.append((labels, value))
        return self


async def rendered(config: BrokerConfig, families: Iterable[Family | None]) -> tuple[bytes, str]:
    """The page that Prometheus scrapes, and its type.

    None among *families* is where the event loop should get its turn.
    """
    shown = []
    for family in families:
        if family is None:
            await asyncio.sleep(0)
        else:
            shown.append(family)
    common = {
        "cluster": config.cluster_name,
        "node_type": "broker",
        "node_id": config.broker_name,
    }
    return await asyncio.to_thread(_render, shown, common)


def _render(families: Iterable[Family], common: dict[str, str]) -> tuple[bytes, str]:
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def collect(self) -> Iterator[Any]:
            for family in families:
                yield _prometheus_family(family, common)

    registry = CollectorRegistry()
    registry.register(Collected())
    # The process's own numbers (memory, processor time, open files) come with the default registry.
    return generate_latest(registry) + generate_latest(REGISTRY), CONTENT_TYPE_LATEST


def _prometheus_family(family: Family, common: dict[str, str]) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind: Any = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help_text, labels=[*common, *family.labels])
    for labels, value in family.samples:
        metric.add_metric([*common.values(), *labels], value)
    return metric


def families(
    parts: ServingParts,
    stalls: StallWatchdog,
    connections: Mapping[str, int],
    *,
    is_ready: bool,
) -> Iterator[Family | None]:
    """Every metric of a broker; *connections* are counted by port."""
    store, topics, stats, consumers = parts.store, parts.topics, parts.stats, parts.consumers
    permission = parts.config.live.broker_permission
    yield _gauge("rocketmq_broker_permission", "4 read, 2 write, 6 both").add(permission)
    yield _gauge("rocketmq_topic_number", "Topics").add(len(topics))
    yield _gauge("rocketmq_consumer_group_number", "Consumer groups").add(len(parts.groups))
    yield readiness(is_ready=is_ready)
    yield from _waiting(stalls, parts.timers)
    yield _gauge("rockhopper_parked_pulls", "Pulls that wait").add(len(parts.long_polling))
    yield None
    yield from _traffic_in(stats, topics)
    yield None
    yield from _traffic_out(stats, topics)
    yield None
    yield from _storage(store, parts.tables.altered_count)
    yield from _transactions(parts.transactions, parts.steady_ms())
    yield from _clients(connections, consumers, parts.producers)
    yield from _pop(parts.pop)
    yield None
    yield from _lag(store, topics, parts.offsets, consumers)


def readiness(*, is_ready: bool) -> Family:
    """What /readyz says, of a broker under any role."""
    return _gauge("rockhopper_ready", "1 when /readyz says so").add(is_ready)


def _gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family("gauge", name, help_text, *labels)


def _counter(name: str, help_text: str, *labels: str) -> Family:
    return Family("counter", name, help_text, *labels)


def _waiting(stalls: StallWatchdog, timers: Timers) -> Iterator[Family]:
    yield _counter("rockhopper_stalls_total", f"Waits of the event loop over {STALL_S:g} s").add(
        stalls.count
    )
    yield _gauge("rockhopper_stall_longest_seconds", "The longest of them").add(stalls.longest_s)
    yield _gauge("rockhopper_timers_pending", "Messages that wait for their time").add(
        timers.pending_count
    )
    yield _counter("rockhopper_timers_delivered_total", "Messages brought to their topics").add(
        timers.delivery.delivered_count
    )
    yield _counter("rockhopper_timers_late_total", "Of them, more than a second late").add(
        timers.delivery.late_count
    )


def _traffic_in(stats: BrokerStats, topics: TopicTable) -> Iterator[Family | None]:
    labels = ("topic", "is_system")
    messages = _counter("rocketmq_messages_in_total", "Messages taken", *labels)
    size = _counter("rocketmq_throughput_in_total", "Bytes of records taken", *labels)
    for index, (topic, traffic) in enumerate(stats.by_key("put")):
        is_system = _text(topics.is_system(topic))
        messages.add(traffic.messages, topic, is_system)
        size.add(traffic.bytes, topic, is_system)
        if index % SAMPLES_PER_TURN == 0:
            yield None
    yield messages
    yield size
    yield _counter("rockhopper_send_failures_total", "Sends refused").add(stats.put_failed)


def _traffic_out(stats: BrokerStats, topics: TopicTable) -> Iterator[Family | None]:
    labels = ("topic", "consumer_group", "is_retry", "is_system")
    messages = _counter("rocketmq_messages_out_total", "Messages handed out", *labels)
    size = _counter("rocketmq_throughput_out_total", "Bytes handed out", *labels)
    for index, (key, traffic) in enumerate(stats.by_key("get")):
        topic, _, group = key.partition("@")
        values = (
            topic,
            group,
            _text(is_retry_topic(topic)),
            _text(topics.is_system(topic)),
        )
        messages.add(traffic.messages, *values)
        size.add(traffic.bytes, *values)
        if index % SAMPLES_PER_TURN == 0:
            yield None
    yield messages
    yield size
    dead = _counter(
        "rocketmq_send_to_dlq_messages_total", "Messages given up", "topic", "consumer_group"
    )
    for key, traffic in stats.by_key("dead"):
        topic, _, group = key.partition("@")
        dead.add(traffic.messages, topic, group)
    yield dead


def _storage(store: MessageStore, altered_count: int) -> Iterator[Family]:
    end = store.max_commit_log_offset
    yield _gauge("rocketmq_storage_size", "Bytes of the commit log that are kept").add(
        end - store.min_commit_log_offset
    )
    yield _gauge("rocketmq_storage_flush_behind_bytes", "Bytes not known to be on disk").add(
        end - store.flushed_offset
    )
    yield _gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes not in queues yet").add(
        end - store.dispatched_offset
    )
    yield _counter("rockhopper_filter_tests_total", "Messages that SQL92 filters looked into").add(
        store.tested_count
    )
    yield _counter("rockhopper_damaged_messages_total", "Stored messages found damaged").add(
        store.damaged_count
    )
    yield _counter("rockhopper_mended_entries_total", "Entries set right from the log").add(
        store.mended_count
    )
    yield _counter("rockhopper_altered_tables_total", "Files of tables found not as saved").add(
        altered_count
    )
    yield _counter("rockhopper_index_faults_total", "Index entries and keys that do not fit").add(
        store.index_fault_count
    )
    yield _gauge("rockhopper_store_writable", "1 when messages are taken").add(store.is_writable)


def _transactions(transactions: Transactions, now_ms: int) -> Iterator[Family]:
    halves, ends = transactions.halves, transactions.ends
    yield _gauge("rocketmq_half_messages", "Transactions that are open").add(len(halves))
    yield _gauge(
        "rockhopper_half_messages_without_producer", "Those whose producers are all away"
    ).add(halves.waiting_count())
    first = halves.first()
    age_ms = 0 if first is None else max(now_ms - first.stored_ms, 0)
    yield _gauge("rockhopper_half_message_oldest_seconds", "Age of the oldest").add(age_ms / 1000)
    for name, help_text, counts in (
        ("rocketmq_commit_messages_total", "Transactions committed", ends.committed),
        ("rocketmq_rollback_messages_total", "Transactions rolled back", ends.rolled_back),
    ):
        family = _counter(name, help_text, "topic")
        for topic, count in counts.items():
            family.add(count, topic)
        yield family
    yield _counter("rockhopper_transaction_checks_total", "Questions to producers").add(
        transactions.check_back.check_count
    )
    yield _counter("rockhopper_transactions_held_total", "Transactions given to operators").add(
        transactions.held_count
    )


def _clients(
    connections: Mapping[str, int], consumers: ConsumerGroups, producers: ProducerTable
) -> Iterator[Family]:
    opened = _gauge("rockhopper_connections", "Open connections", "server")
    for name, count in connections.items():
        opened.add(count, name)
    yield opened
    consuming = _gauge("rocketmq_consumer_connections", "Consumers online", "consumer_group")
    for group in consumers:
        consuming.add(len(group.members), group.name)
    yield consuming
    producing = _gauge("rocketmq_producer_connections", "Producers online", "producer_group")
    for name, clients in producers.groups().items():
        producing.add(len(clients), name)
    yield producing


def _pop(pop: PopService) -> Iterator[Family]:
    yield _gauge("rockhopper_pop_in_flight", "Messages popped and not settled").add(
        pop.lanes.in_flight
    )
    yield _gauge("rockhopper_pop_waiting", "Pops and notifications that wait").add(len(pop.polling))
    yield _counter("rockhopper_pop_revived_total", "Popped messages delivered again").add(
        pop.reviving.revived
    )
    yield _counter("rockhopper_pop_dead_total", "Popped messages given up").add(pop.reviving.buried)


def _lag(
    store: MessageStore,
    topics: TopicTable,
    offsets: ConsumerOffsetTable,
    consumers: ConsumerGroups,
) -> Iterator[Family | None]:
    lag = _gauge(
        "rocketmq_consumer_lag_messages",
        "Messages that a group has not acknowledged",
        "topic",
        "consumer_group",
        "is_retry",
        "online",
    )
    looked_at = 0
    for topic, group, queues in _followed(offsets, consumers):
        settings = topics.get(topic)
        if settings is None:
            continue
        behind = 0
        for queue_id in range(settings.read_queue_nums):
            if looked_at % SAMPLES_PER_TURN == 0:
                yield None
            looked_at += 1
            low, high = store.queue_range(topic, queue_id)
            behind += max(0, high - max(queues.get(queue_id, 0), low))
        online = _text(consumers.get(group) is not None)
        lag.add(behind, topic, group, _text(is_retry_topic(topic)), online)
    yield lag


def _followed(
    offsets: ConsumerOffsetTable, consumers: ConsumerGroups
) -> Iterator[tuple[str, str, Mapping[int, int]]]:
    """Each topic in which a group has committed, or is about to; the group, and its offsets.

    A broadcast group commits nothing: its members keep their offsets themselves.
    """
    yield from offsets.entries()
    for group in list(consumers):
        if group.settings.message_model == BROADCASTING:
            continue
        for topic in group.subscriptions():
            if not offsets.queues(topic, group.name):
                yield topic, group.name, {}


def _text(value: bool) -> str:
    return "true" if value else "false"
