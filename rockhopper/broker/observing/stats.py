"""Statistics of messages and bytes in and out: for code 28, code 315 and /metrics.

The hot path only adds to the integers of a Traffic; there is one for each topic and one for each
topic and group. Everything else is computed from samples that a timer takes. Every 10 s it samples
the totals, for the rates over 10, 60 and 600 s. For each Traffic it takes the samples of RocketMQ's
StatsItem: one every 10 s (7 of them, "minute"), every 10 min (7, "hour") and every hour (25,
"day"). A Traffic that has not changed since its last sample is skipped, so ten thousand quiet
topics cost nothing.

There may be hundreds of thousands of counters, so work on all of them runs in steps
(server/loop/cooperative_work.py).
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from rockhopper.protocol.names import LMQ_PREFIX, is_system_topic
from rockhopper.protocol.store.light_queues import is_light

SAMPLE_INTERVAL_MS = 10_000
TPS_WINDOWS_S = (10, 60, 600)

HISTORIES_PER_STEP = 2048

_Result = TypeVar("_Result")

_TOTALS_KEPT = TPS_WINDOWS_S[-1] * 1000 // SAMPLE_INTERVAL_MS + 1

_MINUTE, _HOUR, _DAY = 0, 1, 2
_SAMPLES_KEPT = (7, 7, 25)
_SAMPLE_EVERY_MS = (10_000, 600_000, 3_600_000)
_SPANS_MS = (60_000, 3_600_000, 86_400_000)


class Traffic:
    """Messages and bytes in one direction, since the broker started; *calls* counts the requests.

    Bytes are those of stored records, as in RocketMQ.
    """

    __slots__ = ("bytes", "calls", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.calls = 0

    def count_request(self, messages: int, size_bytes: int) -> None:
        """Count one request."""
        self.messages += messages
        self.bytes += size_bytes
        self.calls += 1

    def counts(self) -> tuple[int, int, int]:
        """Return the messages, bytes and calls."""
        return self.messages, self.bytes, self.calls


class CallTimes:
    """How many calls there were since the broker started, and how long they took in total."""

    __slots__ = ("calls", "took_ms")

    def __init__(self) -> None:
        self.took_ms = 0
        self.calls = 0

    def count_call(self, took_ms: int) -> None:
        """Count one call."""
        self.took_ms += took_ms
        self.calls += 1

    def counts(self) -> tuple[int, int, int]:
        """Return the milliseconds and calls in the places of a Traffic's counts."""
        return self.took_ms, 0, self.calls


class QueueReads(CallTimes):
    """How long a group's reads of one queue took, and how far they came.

    *next_offset* is after the message that was delivered last, *furthest_offset* after the newest
    one, committed or not.
    """

    __slots__ = ("furthest_offset", "next_offset")

    def __init__(self) -> None:
        super().__init__()
        self.next_offset = 0
        self.furthest_offset = 0

    def come_to(self, next_offset: int) -> None:
        """Record that messages before an offset were delivered."""
        self.next_offset = next_offset
        if next_offset > self.furthest_offset:
            self.furthest_offset = next_offset


class GroupTraffic(Traffic):
    """What a group received of one topic, also by queue."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, QueueReads] = {}

    def read(self, queue_id: int, next_offset: int, elapsed_s: float) -> None:
        """Record how far a queue was pulled, and how long that took."""
        reads = self.record_delivery(queue_id, next_offset)
        reads.count_call(int(elapsed_s * 1000))

    def record_delivery(self, queue_id: int, next_offset: int) -> QueueReads:
        """Record how far a queue was delivered, by pull or pop."""
        reads = self.queues.get(queue_id)
        if reads is None:
            reads = self.queues[queue_id] = QueueReads()
        reads.come_to(next_offset)
        return reads


_Counts = TypeVar("_Counts", bound=Traffic | CallTimes)


class Totals(NamedTuple):
    """The totals for computing rates, at one moment."""

    time_ms: int
    put_messages: int
    get_messages: int
    get_found: int
    get_missed: int


class StatsWindow(NamedTuple):
    """One of the three windows of BrokerStatsData: the sum, per second, and per request."""

    sum: int
    tps: float
    average_per_call: float


class _Samples(Generic[_Counts]):
    """Samples of one Traffic or CallTimes in the three windows, as (time, *counts)."""

    __slots__ = ("samples", "traffic")

    def __init__(self, traffic: _Counts, now_ms: int) -> None:
        self.traffic = traffic
        # Not deques: an empty one has 600 bytes, and there is a history for each topic.
        self.samples = tuple([(now_ms, 0, 0, 0)] for _ in _SAMPLES_KEPT)

    def sample(self, window: int, now_ms: int) -> None:
        samples = self.samples[window]
        if samples[-1][3] != self.traffic.calls:
            samples.append((now_ms, *self.traffic.counts()))
            del samples[: -_SAMPLES_KEPT[window]]

    def start_now(self, now_ms: int) -> None:
        """Ignore everything counted until now."""
        for samples in self.samples:
            samples[0] = (now_ms, *self.traffic.counts())

    def window(self, window: int, now_ms: int, *, of_bytes: bool = False) -> StatsWindow:
        value, size_bytes, calls = self.traffic.counts()
        samples, begin_ms = self.samples[window], now_ms - _SPANS_MS[window]
        first = next((one for one in reversed(samples) if one[0] <= begin_ms), samples[0])
        total = size_bytes - first[2] if of_bytes else value - first[1]
        calls -= first[3]
        # Nothing was counted between an old sample and the time of the one after it.
        since_ms = max(first[0], begin_ms - _SAMPLE_EVERY_MS[window])
        return StatsWindow(
            total,
            _per_second(total, now_ms - since_ms),
            total / calls if calls > 0 else 0.0,
        )


# RocketMQ's item names in code 315: the table, and whether bytes are counted.
_ITEMS = {
    "TOPIC_PUT_NUMS": ("put", False),
    "TOPIC_PUT_SIZE": ("put", True),
    "GROUP_GET_NUMS": ("get", False),
    "GROUP_GET_SIZE": ("get", True),
    "GROUP_ACK_NUMS": ("ack", False),
    "GROUP_CK_NUMS": ("checkpoint", False),
    "SNDBCK_PUT_NUMS": ("back", False),
    "DLQ_PUT_NUMS": ("dead", False),
}
_GROUP_TABLES = ("get", "back", "dead", "ack", "checkpoint")
# The items of code 315 for the name of the cluster: the table that is summed up.
_BROKER_ITEMS = {
    "BROKER_PUT_NUMS": "put",
    "BROKER_GET_NUMS": "get",
    "BROKER_ACK_NUMS": "ack",
    "BROKER_CK_NUMS": "checkpoint",
}
_WITHOUT_SYSTEM = "_WITHOUT_SYSTEM_TOPIC"
_LATENCY = "GROUP_GET_LATENCY"


class BrokerStats:
    """The counters of one broker. All methods belong to the event loop's thread."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.booted_ms = now_ms()
        self.put_failed = 0
        self.get_found = 0
        self.get_missed = 0
        self.tables: dict[str, dict[str, _Samples[Traffic]]] = {
            name: {} for name in ("put", *_GROUP_TABLES)
        }
        self._of_broker: dict[str, _Samples[Traffic | CallTimes]] = {}
        self.producer_registrations = CallTimes()
        self.consumer_registrations = CallTimes()
        self._latencies: dict[tuple[str, int], _Samples[QueueReads]] = {}
        self._of_system: dict[str, set[str]] = {name: set() for name in self.tables}
        # The counts of deleted topics and groups, so that totals never decrease.
        self._retired = {name: Traffic() for name in self.tables}
        self._totals: deque[Totals] = deque(
            maxlen=TPS_WINDOWS_S[-1] * 1000 // SAMPLE_INTERVAL_MS + 1
        )
        self._next_sample_ms = [0, 0, 0]
        self._next_minute_ms = 0
        self._day = self._local_day(self.booted_ms)
        self.put_total_yesterday_morning = self.put_total_today_morning = 0
        self.get_total_yesterday_morning = self.get_total_today_morning = 0
        self.sample()

    def puts_refused(self, count: int) -> None:
        """Count messages that were not stored."""
        self.put_failed += count

    def get_send_traffic(self, topic: str) -> Traffic:
        """Return the counters of sends to *topic*; the hot path keeps the object."""
        return self._traffic("put", topic)

    def get_pull_traffic(self, topic: str, group: str) -> GroupTraffic:
        """Return the counters of *group*'s pulls from *topic*; the hot path keeps the object."""
        traffic = self._traffic("get", f"{topic}@{group}")
        assert isinstance(traffic, GroupTraffic)
        return traffic

    def get_pulled_offset(self, topic: str, group: str, queue_id: int) -> int:
        """Return the offset that *group* last received up to; 0 if nothing since the start."""
        reads = self._reads(topic, group, queue_id)
        return 0 if reads is None else reads.next_offset

    def furthest_offset(self, topic: str, group: str, queue_id: int) -> int:
        """Return the furthest offset that *group* received up to; 0 if nothing since the start."""
        reads = self._reads(topic, group, queue_id)
        return 0 if reads is None else reads.furthest_offset

    def _reads(self, topic: str, group: str, queue_id: int) -> QueueReads | None:
        history = self.tables["get"].get(f"{topic}@{group}")
        if history is None or not isinstance(history.traffic, GroupTraffic):
            return None
        return history.traffic.queues.get(queue_id)

    def get_ack_traffic(self, topic: str, group: str) -> Traffic:
        """Return the counters of *group*'s acknowledgements of popped messages."""
        return self._traffic("ack", f"{topic}@{group}")

    def get_checkpoint_traffic(self, topic: str, group: str) -> Traffic:
        """Return the counters of pops of *group* that are journaled, to be acknowledged singly."""
        return self._traffic("checkpoint", f"{topic}@{group}")

    def get_send_back_traffic(self, topic: str, group: str) -> Traffic:
        """Return the counters of messages that *group* sends back to retry."""
        return self._traffic("back", f"{topic}@{group}")

    def dead(self, topic: str, group: str) -> Traffic:
        """Return the counters of messages that *group* moved to its dead letter queue."""
        return self._traffic("dead", f"{topic}@{group}")

    def _traffic(self, table: str, key: str) -> Traffic:
        history = self.tables[table].get(key)
        if history is None and is_light(key):
            # One entry for all light queues: there may be any number.
            key = LMQ_PREFIX if "@" not in key else f"{LMQ_PREFIX}@{LMQ_PREFIX}"
            history = self.tables[table].get(key)
        if history is None:
            traffic = GroupTraffic() if table == "get" else Traffic()
            history = self.tables[table][key] = _Samples(traffic, self._now_ms())
            if is_system_topic(key.partition("@")[0]):
                self._of_system[table].add(key)
        return history.traffic

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic; the totals keep its counts."""
        prefix = f"{topic}@"
        self._retire("put", [topic] if topic in self.tables["put"] else [])
        for table in _GROUP_TABLES:
            self._retire(table, [key for key in self.tables[table] if key.startswith(prefix)])

    def forget_group(self, group: str) -> None:
        """Drop the counters of a deleted group."""
        suffix = f"@{group}"
        for table in _GROUP_TABLES:
            self._retire(table, [key for key in self.tables[table] if key.endswith(suffix)])

    def _retire(self, table: str, keys: list[str]) -> None:
        retired = self._retired[table]
        for key in keys:
            traffic = self.tables[table].pop(key).traffic
            if isinstance(traffic, GroupTraffic):
                for queue_id in traffic.queues:
                    self._latencies.pop((key, queue_id), None)
            retired.messages += traffic.messages
            retired.bytes += traffic.bytes
            retired.calls += traffic.calls

    def total(self, table: str) -> Traffic:
        """Run ``total_in_steps`` at once."""
        return _run_to_end(self.total_in_steps(table))

    def total_in_steps(self, table: str) -> Generator[None, None, Traffic]:
        """Return the sum over all keys of a table: ``put``, ``get``, ``back``, ``dead``, …."""
        retired = self._retired[table]
        messages, size_bytes, calls = retired.messages, retired.bytes, retired.calls
        # Counters retired meanwhile are still in this copy.
        for number, history in enumerate(tuple(self.tables[table].values()), 1):
            if number % HISTORIES_PER_STEP == 0:
                yield
            traffic = history.traffic
            messages += traffic.messages
            size_bytes += traffic.bytes
            calls += traffic.calls
        total = Traffic()
        total.messages, total.bytes, total.calls = messages, size_bytes, calls
        return total

    def _count_user_topics(self, table: str, total: Traffic) -> Traffic:
        rest = Traffic()
        rest.messages, rest.calls = total.messages, total.calls
        for key in self._of_system[table]:
            history = self.tables[table].get(key)
            if history is not None:
                rest.messages -= history.traffic.messages
                rest.calls -= history.traffic.calls
        return rest

    def _sum_up(self) -> Generator[None, None, tuple[Traffic, Traffic]]:
        """Update the counters of the whole broker; return the totals of sends and pulls."""
        sums: dict[str, Traffic] = {}
        for item, table in _BROKER_ITEMS.items():
            sums[item] = yield from self.total_in_steps(table)
            if table in ("put", "get"):
                sums[item + _WITHOUT_SYSTEM] = self._count_user_topics(table, sums[item])
        totals: dict[str, Traffic | CallTimes] = {
            "PRODUCER_REGISTER_TIME": self.producer_registrations,
            "CONSUMER_REGISTER_TIME": self.consumer_registrations,
            **sums,
        }
        for item, total in totals.items():
            history = self._of_broker.get(item)
            if history is None:
                history = self._of_broker[item] = _Samples(Traffic(), self._now_ms())
            history.traffic = total
        return sums["BROKER_PUT_NUMS"], sums["BROKER_GET_NUMS"]

    def iterate_by_key(self, table: str) -> Iterator[tuple[str, Traffic]]:
        """Yield every counter of a table: by topic, or by ``topic@group``."""
        histories = self.tables[table]
        for key in tuple(histories):
            if (history := histories.get(key)) is not None:
                yield key, history.traffic

    def sample(self) -> bool:
        """Run ``sample_in_steps`` at once."""
        return _run_to_end(self.sample_in_steps())

    def sample_in_steps(self) -> Generator[None, None, bool]:
        """Take the samples that are due; return whether a new minute has begun.

        The broker's timer calls it every 10 s.
        """
        now_ms = self._now_ms()
        totals = self._now(now_ms, *(yield from self._sum_up()))
        self._totals.append(totals)
        due = [
            window for window in (_MINUTE, _HOUR, _DAY) if now_ms >= self._next_sample_ms[window]
        ]
        for window in due:
            self._next_sample_ms[window] = now_ms + _SAMPLE_EVERY_MS[window]
        histories: list[_Samples[Any]] = [*self._latencies.values()]
        for table in self.tables.values():
            histories += table.values()
        histories += self._of_broker.values()
        for number, history in enumerate(histories, 1):
            if number % HISTORIES_PER_STEP == 0:
                yield
            for window in due:
                history.sample(window, now_ms)
        self._roll_day(now_ms, totals)
        if now_ms < self._next_minute_ms:
            return False
        self._next_minute_ms = now_ms + _SPANS_MS[_MINUTE]
        return True

    def _now(self, now_ms: int, put: Traffic, got: Traffic) -> Totals:
        return Totals(now_ms, put.messages, got.messages, self.get_found, self.get_missed)

    def totals(self, put: Traffic | None = None, got: Traffic | None = None) -> Totals:
        """Return the present totals for rates; *put* and *got* are those already known."""
        return self._now(self._now_ms(), put or self.total("put"), got or self.total("get"))

    @staticmethod
    def _local_day(now_ms: int) -> tuple[int, int]:
        local = time.localtime(now_ms / 1000)
        return local.tm_year, local.tm_yday

    def _roll_day(self, now_ms: int, totals: Totals) -> None:
        day = self._local_day(now_ms)
        if day != self._day:
            self._day = day
            self.put_total_yesterday_morning = self.put_total_today_morning
            self.get_total_yesterday_morning = self.get_total_today_morning
            self.put_total_today_morning = totals.put_messages
            self.get_total_today_morning = totals.get_messages

    def tps(self, name: str, now: Totals | None = None) -> list[float]:
        """Return the rates per second over the last 10, 60 and 600 s, or since the start.

        The shortest time is 10 s. *name* is a field of Totals, or ``get_total`` for all pulls, with
        and without messages. *now* is the result of ``totals()``, for callers that need several
        rates.
        """
        now = now or self.totals()
        return [self._rate(name, now, seconds) for seconds in TPS_WINDOWS_S]

    def _rate(self, name: str, now: Totals, seconds: int) -> float:
        # The youngest sample that is at least this old, else the oldest one.
        then = self._totals[0]
        for sample in reversed(self._totals):
            if now.time_ms - sample.time_ms >= seconds * 1000:
                then = sample
                break
        grown = self._value(now, name) - self._value(then, name)
        return _per_second(grown, now.time_ms - then.time_ms)

    @staticmethod
    def _value(totals: Totals, name: str) -> int:
        if name == "get_total":
            return totals.get_found + totals.get_missed
        value = getattr(totals, name)
        assert isinstance(value, int)
        return value

    def windows(self, item: str, key: str) -> tuple[StatsWindow, StatsWindow, StatsWindow] | None:
        """Return minute, hour and day of a StatsItem of RocketMQ; None if nothing was counted."""
        if item == _LATENCY:
            return self._latency_windows(key)
        found = _ITEMS.get(item)
        if found is None:
            return None
        table, of_bytes = found
        history = self.tables[table].get(key)
        if history is None:
            return None
        return self._all_windows(history, of_bytes=of_bytes)

    def _all_windows(
        self, history: _Samples[Any], *, of_bytes: bool = False
    ) -> tuple[StatsWindow, StatsWindow, StatsWindow]:
        now_ms = self._now_ms()
        return (
            history.window(_MINUTE, now_ms, of_bytes=of_bytes),
            history.window(_HOUR, now_ms, of_bytes=of_bytes),
            history.window(_DAY, now_ms, of_bytes=of_bytes),
        )

    def windows_of_broker(self, item: str) -> tuple[StatsWindow, StatsWindow, StatsWindow] | None:
        """Run ``windows_of_broker_in_steps`` at once."""
        return _run_to_end(self.windows_of_broker_in_steps(item))

    def windows_of_broker_in_steps(
        self, item: str
    ) -> Generator[None, None, tuple[StatsWindow, StatsWindow, StatsWindow] | None]:
        """Return the windows of an item that RocketMQ counts for the cluster's name."""
        yield from self._sum_up()
        history = self._of_broker.get(item)
        if history is None or not history.traffic.calls:
            return None
        return self._all_windows(history)

    def _latency_windows(self, key: str) -> tuple[StatsWindow, StatsWindow, StatsWindow] | None:
        """Return the windows of ``queue@topic@group``; sampled from the first query on."""
        queue, _, rest = key.partition("@")
        group = self.tables["get"].get(rest)
        if group is None or not isinstance(group.traffic, GroupTraffic) or not queue.isdecimal():
            return None
        reads = group.traffic.queues.get(int(queue[:10]))
        if reads is None or not reads.calls:
            return None
        history = self._latencies.get((rest, int(queue[:10])))
        if history is None:
            history = self._latencies[rest, int(queue[:10])] = _Samples(reads, self._now_ms())
            if group.window(_MINUTE, self._now_ms()).sum < group.traffic.messages:
                history.start_now(self._now_ms())
        return self._all_windows(history)

    def topic_put_tps(self, topic: str) -> float:
        """Return the messages per second sent to *topic* over the last minute."""
        windows = self.windows("TOPIC_PUT_NUMS", topic)
        return windows[0].tps if windows is not None else 0.0

    def group_get_tps(self, topic: str, group: str) -> float:
        """Return the messages per second that *group* pulls from *topic* over the last minute."""
        windows = self.windows("GROUP_GET_NUMS", f"{topic}@{group}")
        return windows[0].tps if windows is not None else 0.0


def _per_second(count: int, elapsed_ms: int) -> float:
    """Return a rate; three messages in the first 16 ms of a topic are not 183 per second."""
    return count * 1000 / max(elapsed_ms, SAMPLE_INTERVAL_MS)


def _run_to_end(steps: Generator[None, None, _Result]) -> _Result:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: _Result = end.value
    return result
