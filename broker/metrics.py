"""/metrics: the broker's numbers under RocketMQ's metric names, in Prometheus' text format.

The numbers are read when somebody asks, on the event loop, which gets its turn between pieces;
importing prometheus_client (40 ms) and writing the text happen in a thread.

Unlike RocketMQ, lag is computed from committed offsets, so that a group whose consumers have
crashed still shows; the label ``online`` says whether anybody consumes. A queue in which a group
has not committed counts whole, as in the answer to 208.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rockhopper.broker.loop.stalls import STALL_S
from rockhopper.broker.members.consumer_groups import BROADCASTING
from rockhopper.broker.remoting.http import Page
from rockhopper.protocol.names import is_retry_topic

if TYPE_CHECKING:
    from rockhopper.broker.broker import Broker

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


async def metrics_page(broker: "Broker") -> Page:
    """The page that Prometheus scrapes."""
    families = []
    for family in _families(broker):
        if family is None:
            await asyncio.sleep(0)
        else:
            families.append(family)
    config = broker.config
    common = {
        "cluster": config.cluster_name,
        "node_type": "broker",
        "node_id": config.broker_name,
    }
    body, content_type = await asyncio.to_thread(_render, families, common)
    return Page(body, content_type=content_type)


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


def _families(broker: "Broker") -> Iterator[Family | None]:
    """Every metric; None where the event loop should get its turn."""
    yield from _state(broker)
    yield None
    yield from _traffic_in(broker)
    yield None
    yield from _traffic_out(broker)
    yield None
    yield from _storage(broker)
    yield from _transactions(broker)
    yield from _clients(broker)
    yield from _pop(broker)
    yield None
    yield from _lag(broker)


def _gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family("gauge", name, help_text, *labels)


def _counter(name: str, help_text: str, *labels: str) -> Family:
    return Family("counter", name, help_text, *labels)


def _state(broker: "Broker") -> Iterator[Family]:
    permission = broker.config.live.broker_permission
    yield _gauge("rocketmq_broker_permission", "4 read, 2 write, 6 both").add(permission)
    yield _gauge("rocketmq_topic_number", "Topics").add(len(broker.topics))
    yield _gauge("rocketmq_consumer_group_number", "Consumer groups").add(len(broker.groups))
    is_ready = broker.why_not_ready() is None
    yield _gauge("rockhopper_ready", "1 when /readyz says so").add(is_ready)
    parked = len(broker.long_polling)
    stalls = broker.stalls
    yield _counter("rockhopper_stalls_total", f"Waits of the event loop over {STALL_S:g} s").add(
        stalls.count
    )
    yield _gauge("rockhopper_stall_longest_seconds", "The longest of them").add(stalls.longest_s)
    timers = broker.timers
    yield _gauge("rockhopper_timers_pending", "Messages that wait for their time").add(
        timers.pending_count
    )
    yield _counter("rockhopper_timers_delivered_total", "Messages brought to their topics").add(
        timers.delivery.delivered_count
    )
    yield _counter("rockhopper_timers_late_total", "Of them, more than a second late").add(
        timers.delivery.late_count
    )
    yield _gauge("rockhopper_parked_pulls", "Pulls that wait").add(parked)


def _traffic_in(broker: "Broker") -> Iterator[Family | None]:
    labels = ("topic", "is_system")
    messages = _counter("rocketmq_messages_in_total", "Messages taken", *labels)
    size = _counter("rocketmq_throughput_in_total", "Bytes of records taken", *labels)
    for index, (topic, traffic) in enumerate(broker.stats.by_key("put").items()):
        is_system = _text(broker.topics.is_system(topic))
        messages.add(traffic.messages, topic, is_system)
        size.add(traffic.bytes, topic, is_system)
        if index % SAMPLES_PER_TURN == 0:
            yield None
    yield messages
    yield size
    yield _counter("rockhopper_send_failures_total", "Sends refused").add(broker.stats.put_failed)


def _traffic_out(broker: "Broker") -> Iterator[Family | None]:
    labels = ("topic", "consumer_group", "is_retry", "is_system")
    messages = _counter("rocketmq_messages_out_total", "Messages handed out", *labels)
    size = _counter("rocketmq_throughput_out_total", "Bytes handed out", *labels)
    for index, (key, traffic) in enumerate(broker.stats.by_key("get").items()):
        topic, _, group = key.partition("@")
        values = (
            topic,
            group,
            _text(is_retry_topic(topic)),
            _text(broker.topics.is_system(topic)),
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
    for key, traffic in broker.stats.by_key("dead").items():
        topic, _, group = key.partition("@")
        dead.add(traffic.messages, topic, group)
    yield dead


def _storage(broker: "Broker") -> Iterator[Family]:
    store = broker.store
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
        broker.tables.altered_count
    )
    yield _counter("rockhopper_index_faults_total", "Index entries and keys that do not fit").add(
        store.index_fault_count
    )
    yield _gauge("rockhopper_store_writable", "1 when messages are taken").add(store.is_writable)


def _transactions(broker: "Broker") -> Iterator[Family]:
    transactions, ends = broker.transactions, broker.transactions.ends
    halves = transactions.halves
    yield _gauge("rocketmq_half_messages", "Transactions that are open").add(len(halves))
    yield _gauge(
        "rockhopper_half_messages_without_producer", "Those whose producers are all away"
    ).add(halves.waiting_count())
    first = halves.first()
    age_ms = 0 if first is None else max(broker.steady_ms() - first.stored_ms, 0)
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


def _clients(broker: "Broker") -> Iterator[Family]:
    connections = _gauge("rockhopper_connections", "Open connections", "server")
    for name, count in broker.connection_counts().items():
        connections.add(count, name)
    yield connections
    consumers = _gauge("rocketmq_consumer_connections", "Consumers online", "consumer_group")
    for group in broker.consumers:
        consumers.add(len(group.members), group.name)
    yield consumers
    producers = _gauge("rocketmq_producer_connections", "Producers online", "producer_group")
    for name, clients in broker.producers.groups().items():
        producers.add(len(clients), name)
    yield producers


def _pop(broker: "Broker") -> Iterator[Family]:
    pop = broker.pop
    yield _gauge("rockhopper_pop_in_flight", "Messages popped and not settled").add(
        pop.lanes.in_flight
    )
    yield _gauge("rockhopper_pop_waiting", "Pops and notifications that wait").add(len(pop.polling))
    yield _counter("rockhopper_pop_revived_total", "Popped messages delivered again").add(
        pop.reviving.revived
    )
    yield _counter("rockhopper_pop_dead_total", "Popped messages given up").add(pop.reviving.buried)


def _lag(broker: "Broker") -> Iterator[Family | None]:
    lag = _gauge(
        "rocketmq_consumer_lag_messages",
        "Messages that a group has not acknowledged",
        "topic",
        "consumer_group",
        "is_retry",
        "online",
    )
    looked_at = 0
    for topic, group, queues in _followed(broker):
        settings = broker.topics.get(topic)
        if settings is None:
            continue
        behind = 0
        for queue_id in range(settings.read_queue_nums):
            if looked_at % SAMPLES_PER_TURN == 0:
                yield None
            looked_at += 1
            low, high = broker.store.queue_range(topic, queue_id)
            behind += max(0, high - max(queues.get(queue_id, 0), low))
        online = _text(broker.consumers.get(group) is not None)
        lag.add(behind, topic, group, _text(is_retry_topic(topic)), online)
    yield lag


def _followed(broker: "Broker") -> Iterator[tuple[str, str, Mapping[int, int]]]:
    """Each topic in which a group has committed, or is about to; the group, and its offsets.

    A broadcast group commits nothing: its members keep their offsets themselves.
    """
    yield from broker.offsets.entries()
    for group in list(broker.consumers):
        if group.settings.message_model == BROADCASTING:
            continue
        for topic in group.subscriptions():
            if not broker.offsets.queues(topic, group.name):
                yield topic, group.name, {}


def _text(value: bool) -> str:
    return "true" if value else "false"
