"""The lag of groups in /metrics: in messages and in time.

Unlike RocketMQ's, all of it is computed from committed offsets, so a group whose consumers have
crashed is still shown; the label ``online`` shows whether it has consumers. A queue without a
committed offset counts from its beginning, as in the answer to 208.

The cost is bounded. A queue costs some dictionary lookups. A queue with lag also costs a read of
the next message's store time, once for each position. The event loop continues in between. At most
metricsQueuesMax queues have their own series, those with lag first.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rockhopper.broker.kernel.families import SAMPLES_PER_TURN, Family, gauge
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.members.followed_topics import iterate_followed_topics
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.names import is_retry_topic

# Each lookup may read a page from disk.
LOOKS_PER_TURN = 20

_Place = tuple[str, int, int]


class LagAges:
    """The store times of the messages at the groups' positions, cached between scrapes."""

    def __init__(self) -> None:
        self._known: dict[_Place, int] = {}
        self._seen: dict[_Place, int] = {}
        self.looks = 0
        """The number of reads from the log."""

    def read_store_time_ms(
        self, store: MessageStore, topic: str, queue_id: int, offset: int
    ) -> int:
        """Return the store time of a message, −1 if it was deleted."""
        place = (topic, queue_id, offset)
        stored_ms = self._seen.get(place) or self._known.get(place)
        if stored_ms is None:
            self.looks += 1
            stored_ms = store.reading.store_time(topic, queue_id, offset)
        self._seen[place] = stored_ms
        return stored_ms

    def scraped(self) -> None:
        """Drop the times of positions that no group has any more."""
        self._known, self._seen = self._seen, {}


class _Queue(NamedTuple):
    """A group's position in one queue."""

    topic: str
    group: str
    queue_id: int
    behind: int
    age_s: float


class _TopicLag:
    """A group's lag in one topic, over its queues."""

    def __init__(self) -> None:
        self.behind = self.in_flight = self.ready = 0
        self.age_ms = self.queueing_ms = 0


class _Lag:
    """Collects the queues of every group and topic during one scrape."""

    def __init__(self, kernel: Kernel, ages: LagAges) -> None:
        self._store = kernel.store
        self._stats = kernel.stats
        self._ages = ages
        self._now_ms = kernel.clock.steady_ms
        self.lagging: list[_Queue] = []
        self.level: list[_Queue] = []

    def look_at(self, sums: _TopicLag, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Add one queue, in which *group* has committed *offset*."""
        low, high = self._store.reading.queue_range(topic, queue_id)
        position = max(offset, low)
        behind = max(0, high - position)
        pulled = min(max(self._stats.get_pulled_offset(topic, group, queue_id), position), high)
        age_ms = self._age_ms(topic, queue_id, position) if behind else 0
        sums.behind += behind
        sums.in_flight += max(0, pulled - position)
        sums.ready += high - pulled if behind else 0
        sums.age_ms = max(sums.age_ms, age_ms)
        if behind and pulled < high:
            queueing_ms = age_ms if pulled == position else self._age_ms(topic, queue_id, pulled)
            sums.queueing_ms = max(sums.queueing_ms, queueing_ms)
        queue = _Queue(topic, group, queue_id, behind, age_ms / 1000)
        (self.lagging if behind else self.level).append(queue)

    def _age_ms(self, topic: str, queue_id: int, offset: int) -> int:
        stored_ms = self._ages.read_store_time_ms(self._store, topic, queue_id, offset)
        return max(self._now_ms() - stored_ms, 0) if stored_ms > 0 else 0


def lag_families(kernel: Kernel, ages: LagAges) -> Iterator[Family | None]:
    """Yield the lag of every group, online or not, by topic and by queue."""
    lag = _Lag(kernel, ages)
    sums_of: list[tuple[str, str, _TopicLag]] = []
    queues_seen, looks = 0, ages.looks
    names = list(kernel.tables.topics.configs)
    followed = iterate_followed_topics(
        kernel.tables.offsets,
        kernel.consumers,
        names,
        kernel.store.reading.has_messages,
        kernel.retry_owners.groups,
    )
    for topic, group, offsets in followed:
        settings = kernel.tables.topics.get(topic)
        if settings is None or (not offsets and _is_broadcast(kernel.consumers, group)):
            continue
        sums = _TopicLag()
        sums_of.append((topic, group, sums))
        for queue_id in range(settings.read_queue_nums):
            if queues_seen % SAMPLES_PER_TURN == 0 or ages.looks - looks >= LOOKS_PER_TURN:
                looks = ages.looks
                yield None
            queues_seen += 1
            lag.look_at(sums, topic, group, queue_id, offsets.get(queue_id, 0))
    ages.scraped()
    yield from _build_topic_families(sums_of, kernel.consumers)
    yield from _build_queue_families(lag, kernel.config.live.metrics_queues_max)


def _build_topic_families(
    sums_of: list[tuple[str, str, _TopicLag]], consumers: ConsumerGroups
) -> Iterator[Family | None]:
    labels = ("topic", "consumer_group", "is_retry", "online")
    told = (
        (gauge(f"rocketmq_consumer_{name}", help_text, *labels), field)
        for name, help_text, field in (
            (
                "lag_messages",
                "Messages that a group has not acknowledged",
                "behind",
            ),
            (
                "lag_latency",
                "Age of the oldest message that a group has not acknowledged",
                "age_ms",
            ),
            (
                "inflight_messages",
                "Messages in flight: handed out and not acknowledged",
                "in_flight",
            ),
            ("ready_messages", "Messages not yet handed out", "ready"),
            (
                "queueing_latency",
                "Age of the oldest message not yet handed out",
                "queueing_ms",
            ),
        )
    )
    for family, field in told:
        for number, (topic, group, sums) in enumerate(sums_of):
            if number % SAMPLES_PER_TURN == 0:
                yield None
            online = _text(consumers.get(group) is not None)
            value = float(getattr(sums, field))
            family.add_sample(value, topic, group, _text(is_retry_topic(topic)), online)
        yield family


def _build_queue_families(lag: _Lag, queues_max: int) -> Iterator[Family | None]:
    labels = ("topic", "consumer_group", "queue_id")
    messages = gauge(
        "rockhopper_queue_lag_messages",
        "Messages of one queue that a group has not acknowledged",
        *labels,
    )
    age = gauge(
        "rockhopper_queue_lag_seconds",
        "Age of the oldest message of a queue that a group has not acknowledged; 0 without one",
        *labels,
    )
    shown = (lag.lagging + lag.level)[:queues_max]
    for number, queue in enumerate(shown):
        if number % SAMPLES_PER_TURN == 0:
            yield None
        values = (queue.topic, queue.group, str(queue.queue_id))
        messages.add_sample(queue.behind, *values)
        age.add_sample(queue.age_s, *values)
    yield messages
    yield age
    left_out = len(lag.lagging) + len(lag.level) - len(shown)
    yield gauge("rockhopper_queue_lag_left_out", "Queues without their own series").add_sample(
        left_out
    )


def _is_broadcast(consumers: ConsumerGroups, group: str) -> bool:
    online = consumers.get(group)
    return online is not None and online.is_broadcasting


def _text(value: bool) -> str:
    return "true" if value else "false"
