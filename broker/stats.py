"""How much goes in and out: what code 28, code 315 and /metrics report.

The hot path only adds to the integers of a Traffic, one for each topic and one for each topic and
group.  Everything else is worked out from samples that a timer takes: every 10 s the totals, from
which come the rates over 10, 60 and 600 s; and for each Traffic what RocketMQ's StatsItem keeps, a
sample every 10 s (7 of them, "minute"), every 10 min (7, "hour") and every hour (25, "day").
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from protocol.light_queues import is_light
from protocol.names import LMQ_PREFIX

SAMPLE_INTERVAL_MS = 10_000
TPS_WINDOWS_S = (10, 60, 600)

_TOTALS_KEPT = TPS_WINDOWS_S[-1] * 1000 // SAMPLE_INTERVAL_MS + 1

_MINUTE, _HOUR, _DAY = 0, 1, 2
_SAMPLES_KEPT = (7, 7, 25)
_SAMPLE_EVERY_MS = (10_000, 600_000, 3_600_000)


class Traffic:
    """Messages and bytes one way, since the broker started; *calls* counts the requests."""

    __slots__ = ("bytes", "calls", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.calls = 0

    def add(self, messages: int, size_bytes: int) -> None:
        """Count one request."""
        self.messages += messages
        self.bytes += size_bytes
        self.calls += 1


class Totals(NamedTuple):
    """The sums that rates are made of, at one moment."""

    time_ms: int
    put_messages: int
    get_messages: int
    get_found: int
    get_missed: int


class Window(NamedTuple):
    """One of the three windows of BrokerStatsData: what came, per second, and per request."""

    sum: int
    tps: float
    average_per_call: float


class _History:
    """Samples of one Traffic in the three windows, as (time, messages, bytes, calls)."""

    __slots__ = ("samples", "traffic")

    def __init__(self, traffic: Traffic, now_ms: int) -> None:
        self.traffic = traffic
        self.samples: tuple[deque[tuple[int, int, int, int]], ...] = tuple(
            deque([(now_ms, 0, 0, 0)], maxlen=kept) for kept in _SAMPLES_KEPT
        )

    def sample(self, window: int, now_ms: int) -> None:
        t = self.traffic
        self.samples[window].append((now_ms, t.messages, t.bytes, t.calls))

    def window(self, window: int, now_ms: int, *, of_bytes: bool) -> Window:
        t = self.traffic
        first = self.samples[window][0]
        value, first_value = (t.bytes, first[2]) if of_bytes else (t.messages, first[1])
        total, calls = value - first_value, t.calls - first[3]
        elapsed_ms = now_ms - first[0]
        return Window(
            total,
            total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            total / calls if calls > 0 else 0.0,
        )


# RocketMQ's names of what code 315 may ask for: the table, and whether bytes are counted.
_ITEMS = {
    "TOPIC_PUT_NUMS": ("put", False),
    "TOPIC_PUT_SIZE": ("put", True),
    "GROUP_GET_NUMS": ("get", False),
    "GROUP_GET_SIZE": ("get", True),
    "SNDBCK_PUT_NUMS": ("back", False),
    "DLQ_PUT_NUMS": ("dead", False),
}


class BrokerStats:
    """The counters of one broker.  All methods belong to the event loop's thread."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.booted_ms = now_ms()
        self.put_failed = 0
        self.get_found = 0
        self.get_missed = 0
        self._tables: dict[str, dict[str, _History]] = {
            name: {} for name in ("put", "get", "back", "dead")
        }
        # What deleted topics and groups had counted, so that totals never go back.
        self._retired = {name: Traffic() for name in self._tables}
        self._totals: deque[Totals] = deque(
            maxlen=TPS_WINDOWS_S[-1] * 1000 // SAMPLE_INTERVAL_MS + 1
        )
        self._next_sample_ms = [0, 0, 0]
        self._day = self._local_day(self.booted_ms)
        self.put_total_yesterday_morning = self.put_total_today_morning = 0
        self.get_total_yesterday_morning = self.get_total_today_morning = 0
        self.sample()

    def put(self, topic: str) -> Traffic:
        """The counters of what is sent to *topic*; the hot path keeps the object."""
        return self._traffic("put", topic)

    def got(self, topic: str, group: str) -> Traffic:
        """The counters of what *group* pulls from *topic*; the hot path keeps the object."""
        return self._traffic("get", f"{topic}@{group}")

    def sent_back(self, topic: str, group: str) -> Traffic:
        """The counters of what *group* sends back for another try."""
        return self._traffic("back", f"{topic}@{group}")

    def dead(self, topic: str, group: str) -> Traffic:
        """The counters of what *group* gave up, into its dead letter queue."""
        return self._traffic("dead", f"{topic}@{group}")

    def _traffic(self, table: str, key: str) -> Traffic:
        history = self._tables[table].get(key)
        if history is None and is_light(key):
            # One entry for all of them: there may be any number.
            key = LMQ_PREFIX if "@" not in key else f"{LMQ_PREFIX}@{LMQ_PREFIX}"
            history = self._tables[table].get(key)
        if history is None:
            history = self._tables[table][key] = _History(Traffic(), self._now_ms())
        return history.traffic

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic; the totals keep what they counted."""
        prefix = f"{topic}@"
        self._retire("put", [key for key in self._tables["put"] if key == topic])
        for table in ("get", "back", "dead"):
            self._retire(table, [key for key in self._tables[table] if key.startswith(prefix)])

    def forget_group(self, group: str) -> None:
        """Drop the counters of a deleted group."""
        suffix = f"@{group}"
        for table in ("get", "back", "dead"):
            self._retire(table, [key for key in self._tables[table] if key.endswith(suffix)])

    def _retire(self, table: str, keys: list[str]) -> None:
        retired = self._retired[table]
        for key in keys:
            traffic = self._tables[table].pop(key).traffic
            retired.messages += traffic.messages
            retired.bytes += traffic.bytes
            retired.calls += traffic.calls

    def total(self, table: str) -> Traffic:
        """The sum over all keys of ``put``, ``get``, ``back`` or ``dead``."""
        total, retired = Traffic(), self._retired[table]
        total.messages, total.bytes, total.calls = retired.messages, retired.bytes, retired.calls
        for history in self._tables[table].values():
            total.messages += history.traffic.messages
            total.bytes += history.traffic.bytes
            total.calls += history.traffic.calls
        return total

    def by_key(self, table: str) -> dict[str, Traffic]:
        """Every counter of a table: by topic, or by ``topic@group``."""
        return {key: history.traffic for key, history in self._tables[table].items()}

    def sample(self) -> None:
        """Take the samples that are due.  The broker's timer calls it every 10 s."""
        now_ms = self._now_ms()
        totals = self._now(now_ms)
        self._totals.append(totals)
        due = [
            window for window in (_MINUTE, _HOUR, _DAY) if now_ms >= self._next_sample_ms[window]
        ]
        for window in due:
            self._next_sample_ms[window] = now_ms + _SAMPLE_EVERY_MS[window]
        for table in self._tables.values():
            for history in table.values():
                for window in due:
                    history.sample(window, now_ms)
        self._roll_day(now_ms, totals)

    def _now(self, now_ms: int) -> Totals:
        return Totals(
            now_ms,
            self.total("put").messages,
            self.total("get").messages,
            self.get_found,
            self.get_missed,
        )

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

    def tps(self, name: str) -> list[float]:
        """Per second over the last 10, 60 and 600 s, or since the start if that is less.

        *name* is a field of Totals, or ``get_total`` for pulls that found something or nothing.
        """
        now_ms = self._now_ms()
        now = self._now(now_ms)
        return [self._rate(name, now, seconds) for seconds in TPS_WINDOWS_S]

    def _rate(self, name: str, now: Totals, seconds: int) -> float:
        # The youngest sample that is at least this old, else the oldest there is.
        then = self._totals[0]
        for sample in reversed(self._totals):
            if now.time_ms - sample.time_ms >= seconds * 1000:
                then = sample
                break
        elapsed_ms = now.time_ms - then.time_ms
        if elapsed_ms <= 0:
            return 0.0
        return (self._value(now, name) - self._value(then, name)) * 1000 / elapsed_ms

    @staticmethod
    def _value(totals: Totals, name: str) -> int:
        if name == "get_total":
            return totals.get_found + totals.get_missed
        value = getattr(totals, name)
        assert isinstance(value, int)
        return value

    def windows(self, item: str, key: str) -> tuple[Window, Window, Window] | None:
        """Minute, hour and day of a StatsItem by RocketMQ's name; None if nothing was counted."""
        found = _ITEMS.get(item)
        if found is None:
            return None
        table, of_bytes = found
        history = self._tables[table].get(key)
        if history is None:
            return None
        now_ms = self._now_ms()
        return (
            history.window(_MINUTE, now_ms, of_bytes=of_bytes),
            history.window(_HOUR, now_ms, of_bytes=of_bytes),
            history.window(_DAY, now_ms, of_bytes=of_bytes),
        )

    def topic_put_tps(self, topic: str) -> float:
        """Messages per second sent to *topic* over the last minute."""
        windows = self.windows("TOPIC_PUT_NUMS", topic)
        return windows[0].tps if windows is not None else 0.0

    def group_get_tps(self, topic: str, group: str) -> float:
        """Messages per second that *group* pulls from *topic* over the last minute."""
        windows = self.windows("GROUP_GET_NUMS", f"{topic}@{group}")
        return windows[0].tps if windows is not None else 0.0
