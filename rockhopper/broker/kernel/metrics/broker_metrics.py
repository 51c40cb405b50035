"""/metrics: the broker's numbers under RocketMQ's metric names, in Prometheus' text format.

The numbers are read at each request, on the event loop, with pauses for other work. docs/metrics.md
lists them; metrics_page.py generates that page from this code.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.kernel.families import (
    SAMPLES_PER_TURN,
    Family,
    counter,
    gauge,
    histogram,
    render,
)
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.metrics.lag_metrics import LagAges, lag_families
from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.log import count_dropped
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.latencies import PULLS, SENDS, Latencies, RequestTimes
from rockhopper.broker.server.loop.stalls import STALL_S, StallWatchdog
from rockhopper.broker.server.remoting.http import Page
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.live_settings import LiveStoreSettings
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.compiled import MISSING
from rockhopper.protocol.names import is_retry_topic
from rockhopper.version import own_version

RPC_BOUNDS_S = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0)
"""The bounds that RocketMQ uses."""


class MetricsPage:
    """The page of one broker in any role, and what it counts and caches between two scrapes."""

    def __init__(self) -> None:
        self.stalls = StallWatchdog()
        self._ages = LagAges()

    def start(self) -> None:
        """Begin to count the stalls of the event loop."""
        self.stalls.start()

    def stop(self) -> None:
        """Count no more stalls."""
        self.stalls.stop()

    async def render_serving(
        self,
        kernel: Kernel,
        features: Iterable[FeaturePart],
        connections: Mapping[str, int],
        others: Iterable[Family],
        *,
        is_ready: bool,
    ) -> Page:
        """Return the page of a broker that serves clients, with *others* at its end."""
        own = families(kernel, features, self.stalls, connections, self._ages, is_ready=is_ready)
        return await _render(kernel.config, chain(own, others))

    async def render_following(
        self, config: BrokerConfig, others: Iterable[Family], *, is_ready: bool
    ) -> Page:
        """Return the page of a replica that follows, with *others* at its end."""
        return await _render(config, chain((build_info(), readiness(is_ready=is_ready)), others))


async def _render(config: BrokerConfig, shown: Iterable[Family | None]) -> Page:
    body, content_type = await render(config, shown)
    return Page(body, content_type=content_type)


def families(
    kernel: Kernel,
    features: Iterable[FeaturePart],
    stalls: StallWatchdog,
    connections: Mapping[str, int],
    ages: LagAges,
    *,
    is_ready: bool,
) -> Iterator[Family | None]:
    """Yield every metric of a broker; *connections* are counted by port."""
    yield build_info()
    store, topics = kernel.store, kernel.tables.topics
    stats, consumers = kernel.stats, kernel.consumers
    permission = kernel.config.live.broker_permission
    yield gauge("rocketmq_broker_permission", "4 read, 2 write, 6 both").add_sample(permission)
    yield gauge("rocketmq_topic_number", "Topics, including system and retry topics").add_sample(
        len(topics)
    )
    yield gauge(
        "rocketmq_consumer_group_number", "Consumer groups, including system groups"
    ).add_sample(len(kernel.tables.groups))
    yield readiness(is_ready=is_ready)
    yield counter(
        "rockhopper_log_lines_dropped_total", "Log lines that could not be written"
    ).add_sample(count_dropped())
    yield from _waiting(stalls, kernel.scheduled.timers)
    yield gauge("rockhopper_parked_pulls", "Pulls that wait for a message").add_sample(
        len(kernel.long_polling)
    )
    yield (
        counter(
            "rockhopper_pulls_total", "Pulls, by whether they found a message at once", "result"
        )
        .add_sample(stats.get_found, "found")
        .add_sample(stats.get_missed, "missed")
    )
    yield None
    yield from _traffic_in(stats, topics)
    yield None
    yield from _traffic_out(stats, topics)
    yield None
    yield from latency_families(kernel.request_times, kernel.flush_times)
    yield from _storage(kernel)
    yield from _disks(store, kernel.config.store.live)
    yield from _clients(connections, consumers, kernel.producers)
    for part in features:
        yield from part.metrics()
    yield None
    yield from lag_families(kernel, ages)


def readiness(*, is_ready: bool) -> Family:
    """Return the state of /readyz, for a broker in any role."""
    return gauge("rockhopper_ready", "1 when /readyz reports ready").add_sample(is_ready)


def _waiting(stalls: StallWatchdog, timers: Timers) -> Iterator[Family]:
    yield counter(
        "rockhopper_stalls_total", f"Event loop stalls: waits over {STALL_S:g} s"
    ).add_sample(stalls.count)
    yield counter(
        "rockhopper_stall_seconds_total", "Total time of all event loop stalls"
    ).add_sample(stalls.total_s)
    yield gauge("rockhopper_stall_longest_seconds", "Longest event loop stall").add_sample(
        stalls.longest_s
    )
    yield gauge(
        "rockhopper_timers_pending", "Timer messages that wait for their delivery time"
    ).add_sample(timers.pending_count)
    yield gauge(
        "rocketmq_timer_enqueue_lag", "Timer messages stored and not yet sorted by time"
    ).add_sample(max(timers.queue.range[1] - timers.queue.offset, 0))
    yield gauge(
        "rocketmq_timer_dequeue_latency", "How overdue the first timer message is"
    ).add_sample(timers.delivery.behind_ms)
    delivered = counter(
        "rocketmq_timer_dequeue_total", "Timer messages delivered to their topics", "topic"
    )
    for topic, count in timers.delivery.delivered.items():
        delivered.add_sample(count, topic)
    yield delivered
    yield counter(
        "rockhopper_timers_late_total", "Timer messages delivered over a second late"
    ).add_sample(timers.delivery.late_count)


def _traffic_in(stats: BrokerStats, topics: TopicTable) -> Iterator[Family | None]:
    labels = ("topic", "is_system")
    messages = counter("rocketmq_messages_in_total", "Messages taken", *labels)
    size = counter("rocketmq_throughput_in_total", "Bytes of records stored", *labels)
    for index, (topic, traffic) in enumerate(stats.iterate_by_key("put")):
        is_system = _text(topics.is_system(topic))
        messages.add_sample(traffic.messages, topic, is_system)
        size.add_sample(traffic.bytes, topic, is_system)
        if index % SAMPLES_PER_TURN == 0:
            yield None
    yield messages
    yield size
    yield counter("rockhopper_send_failures_total", "Sends refused").add_sample(stats.put_failed)


def _traffic_out(stats: BrokerStats, topics: TopicTable) -> Iterator[Family | None]:
    labels = ("topic", "consumer_group", "is_retry", "is_system")
    messages = counter("rocketmq_messages_out_total", "Messages sent to consumers", *labels)
    size = counter("rocketmq_throughput_out_total", "Bytes sent to consumers", *labels)
    for index, (key, traffic) in enumerate(stats.iterate_by_key("get")):
        topic, _, group = key.partition("@")
        values = (
            topic,
            group,
            _text(is_retry_topic(topic)),
            _text(topics.is_system(topic)),
        )
        messages.add_sample(traffic.messages, *values)
        size.add_sample(traffic.bytes, *values)
        if index % SAMPLES_PER_TURN == 0:
            yield None
    yield messages
    yield size
    dead = counter(
        "rocketmq_send_to_dlq_messages_total",
        "Messages moved to the dead letters",
        "topic",
        "consumer_group",
    )
    for key, traffic in stats.iterate_by_key("dead"):
        topic, _, group = key.partition("@")
        dead.add_sample(traffic.messages, topic, group)
    yield dead


def build_info() -> Family:
    """Return a metric whose value is always 1; its labels describe this build."""
    labels = ("version", "python", "compiled")
    compiled_parts = "all" if not MISSING else "some"
    python = platform.python_version()
    return gauge(
        "rockhopper_build_info", "Always 1: the labels name the version", *labels
    ).add_sample(1, own_version(), python, compiled_parts)


def _disks(store: MessageStore, live: LiveStoreSettings) -> Iterator[Family]:
    used = gauge(
        "rockhopper_disk_used_ratio",
        "Used share of the disk that holds the log or the queues",
        "holds",
    )
    for holds, percent in zip(
        ("commit_log", "consume_queues"), store.retention.space.used_percents, strict=True
    ):
        if percent >= 0:
            used.add_sample(percent / 100, holds)
    yield used
    yield gauge(
        "rockhopper_disk_refusing_ratio", "Disk usage above which sends are refused"
    ).add_sample(live.disk_warning_percent / 100)


def _storage(kernel: Kernel) -> Iterator[Family]:
    store = kernel.store
    end, oldest_ms = store.log.written_offset, store.reading.earliest_time_ms
    yield gauge(
        "rocketmq_storage_message_reserve_time", "Age of the oldest stored message"
    ).add_sample(max(kernel.clock.steady_ms() - oldest_ms, 0) if oldest_ms >= 0 else 0)
    yield gauge("rocketmq_storage_size", "Size of the commit log").add_sample(
        end - store.log.min_offset
    )
    yield gauge(
        "rocketmq_storage_flush_behind_bytes", "Bytes appended and not yet flushed to disk"
    ).add_sample(end - store.log.flushed_offset)
    yield gauge(
        "rocketmq_storage_dispatch_behind_bytes", "Bytes of the log not yet dispatched to queues"
    ).add_sample(end - store.dispatch.offset)
    yield counter(
        "rockhopper_filter_tests_total", "Messages evaluated by SQL92 filters"
    ).add_sample(store.reading.reader.tested_count)
    yield counter(
        "rockhopper_damaged_messages_total", "Damaged messages found in the store"
    ).add_sample(store.reading.reader.damaged_count)
    yield counter(
        "rockhopper_mended_entries_total", "Queue and index entries repaired from the log"
    ).add_sample(store.scrub.mended_count)
    yield counter(
        "rockhopper_altered_tables_total", "Table files found changed since they were saved"
    ).add_sample(kernel.tables.altered_count)
    yield counter(
        "rockhopper_index_faults_total", "Index entries and keys that disagree with the log"
    ).add_sample(store.scrub.index_fault_count)
    yield gauge("rockhopper_store_writable", "1 when the store accepts messages").add_sample(
        store.is_writable
    )


def _clients(
    connections: Mapping[str, int], consumers: ConsumerGroups, producers: ProducerTable
) -> Iterator[Family]:
    opened = gauge("rockhopper_connections", "Open connections", "server")
    for name, count in connections.items():
        opened.add_sample(count, name)
    yield opened
    consuming = gauge("rocketmq_consumer_connections", "Consumers online", "consumer_group")
    shared = gauge(
        "rockhopper_shared_client_ids", "Client ids that several members share", "consumer_group"
    )
    differing = gauge(
        "rockhopper_differing_subscriptions",
        "Different subscriptions among the members of a group",
        "consumer_group",
    )
    unread = gauge(
        "rockhopper_topics_without_reader",
        "Topics that no member reads, because no member subscribes to all that the group wants",
        "consumer_group",
    )
    for group in consumers:
        consuming.add_sample(len(group.members), group.name)
        if group.shared_ids:
            shared.add_sample(len(group.shared_ids), group.name)
        if count := group.kind_count:
            differing.add_sample(count, group.name)
            unread.add_sample(sum(not ids for ids in group.readers.by_topic.values()), group.name)
    yield consuming
    yield shared
    yield differing
    yield unread
    producing = gauge("rocketmq_producer_connections", "Producers online", "producer_group")
    for name, clients in producers.groups().items():
        producing.add_sample(len(clients), name)
    yield producing


def _text(value: bool) -> str:
    return "true" if value else "false"


def latency_families(times: RequestTimes, flushes: Latencies) -> Iterator[Family]:
    """Yield the histograms; there is one series for each kind of request and answer seen so far."""
    rpc = histogram(
        "rocketmq_rpc_latency",
        "From reading a request to writing its answer",
        *("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    )
    for kind, taken in times.rows():
        waited = "true" if kind.has_waited else "false"
        result = "oneway" if kind.is_oneway else "success"
        values = (kind.protocol, kind.request, kind.response, waited, result)
        rpc.observe(taken, *values, bounds_s=RPC_BOUNDS_S, per_second=1000)
    yield rpc
    for name, help_text, taken in (
        ("send", "From reading a send, or a batch, to writing its answer", times.combine(SENDS)),
        (
            "pull",
            "From reading a pull that finds messages at once to writing its answer",
            times.combine(PULLS),
        ),
        ("flush", "Flushes of the commit log that wrote something", flushes),
    ):
        yield histogram(f"rockhopper_{name}_latency_seconds", help_text).observe(taken)
