"""Durations of requests and flushes, in ranges: the histograms of /metrics.

A pass that serves many requests of one kind counts them all at once, with the time from reading
them to writing their responses. So one more message in a pass costs nothing here.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import NamedTuple

from rockhopper.protocol.codes import NO_NAME, request_name, response_name

BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.003, 0.005, 0.007, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.0, 3.0, 10.0),
)
"""Upper bounds; they include those of RocketMQ's rocketmq_rpc_latency."""

SENDS = frozenset({"send_message", "send_message_v2", "send_batch_message"})
PULLS = frozenset({"pull_message", "lite_pull_message"})
_SUCCESS = 0
_UNKNOWN = (-1, -1, False, False)


class Latencies:
    """One histogram. One thread adds to it, any may read it."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def record(self, elapsed_s: float, count: int = 1) -> None:
        """Count *count* events with this duration."""
        self.counts[bisect_left(BOUNDS_S, elapsed_s)] += count
        self.sum_s += elapsed_s * count

    def merge(self, other: "Latencies") -> None:
        """Add the counts of another one."""
        for index, count in enumerate(other.counts):
            self.counts[index] += count
        self.sum_s += other.sum_s


class RequestLabels(NamedTuple):
    """The labels in /metrics of requests that are counted together."""

    request: str
    response: str
    has_waited: bool = False
    is_oneway: bool = False
    protocol: str = "remoting"


class RequestTimes:
    """The requests of one server, by code and outcome."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.now_s = clock
        self._rows: dict[tuple[int, int, bool, bool], Latencies] = {}
        # Successful requests of a hot pass, by code alone.
        self._served: dict[int, Latencies] = {}
        self._named: dict[RequestLabels, Latencies] = {}

    def served(self, counts: Mapping[int, int], began_s: float) -> None:
        """Count requests, by code, that succeed now and were all read at *began_s*."""
        elapsed_s = self.now_s() - began_s
        for code, count in counts.items():
            row = self._served.get(code)
            if row is None:
                row = self._served[code] = self._row((code, _SUCCESS, False, False))
            row.record(elapsed_s, count)

    def record_requests(
        self,
        code: int,
        response_code: int,
        began_s: float,
        count: int = 1,
        *,
        has_waited: bool = False,
        is_oneway: bool = False,
    ) -> None:
        """Count *count* requests answered now and read at *began_s* of ``now_s``."""
        row = self._row((code, response_code, has_waited, is_oneway))
        row.record(self.now_s() - began_s, count)

    def add_named(self, kind: RequestLabels, began_s: float) -> None:
        """Count a request of another protocol, which has no codes but names."""
        row = self._named.get(kind)
        if row is None:
            row = self._named[kind] = Latencies()
        row.record(self.now_s() - began_s)

    def _row(self, key: tuple[int, int, bool, bool]) -> Latencies:
        row = self._rows.get(key)
        if row is None:
            # Codes that a peer invents must not make rows without limit.
            is_known = request_name(key[0]) != NO_NAME
            row = self._rows.setdefault(key if is_known else _UNKNOWN, Latencies())
        return row

    def rows(self) -> Iterator[tuple[RequestLabels, Latencies]]:
        """Yield every kind that was counted, and its times."""
        for (code, response_code, has_waited, is_oneway), times in list(self._rows.items()):
            names = request_name(code), response_name(response_code)
            yield RequestLabels(*names, has_waited, is_oneway), times
        yield from list(self._named.items())

    def combine(self, requests: frozenset[str]) -> Latencies:
        """Return the times of some requests together, without those that have waited."""
        total = Latencies()
        for kind, times in self.rows():
            if kind.request in requests and not kind.has_waited:
                total.merge(times)
        return total
