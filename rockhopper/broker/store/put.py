"""What is put into the store: single messages, where they are stored, and how long that took.

``PutTimes`` counts how long messages took to be written into the log, as code 28 reports it; once
per pass, for all its messages. Nearly all take less than a millisecond: one counter, ``quick``,
covers them, and the store adds to it directly. The others are counted by RocketMQ's ranges
(StoreStatsService) and by powers of two of a microsecond, from which percentiles are estimated.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from rockhopper.protocol.message import StoredMessage

# Topic, queue and properties (changed in place) of a message -> its final topic and queue.
Redirect = Callable[[str, int, dict[str, str]], tuple[str, int]]
RANGES = (
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
)
QUICK_S = 0.001
_BOUNDS_S = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10)
_POWERS = 40


class PutResult(NamedTuple):
    """The place of a message; once the log is flushed up to ``end_offset``, it is durable."""

    commit_log_offset: int
    queue_offset: int
    end_offset: int
    store_time_ms: int


class Copy(NamedTuple):
    """A stored message to be stored again elsewhere, with its original birth time and host."""

    topic: str
    queue_id: int
    message: StoredMessage
    properties: dict[str, str]
    sys_flag: int | None = None
    """None: the message's."""
    reconsume_times: int | None = None
    """None: the message's."""
    prepared_offset: int = 0


class MessageToStore(NamedTuple):
    """One message as ``put`` accepts it; *born_host* is 8 or 20 bytes as in the record."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    flag: int = 0
    sys_flag: int = 0
    born_time_ms: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class PutTimes:
    """Counts of the present and the previous period, so that a new period does not look idle."""

    def __init__(self) -> None:
        self.quick = 0
        """Messages of the present period that took less than QUICK_S."""
        self._quick_before = 0
        self._ranges, self._powers = [0] * len(RANGES), [0] * _POWERS
        self._ranges_before, self._powers_before = self._ranges[:], self._powers[:]

    def record(self, elapsed_s: float, messages: int) -> None:
        """Count the messages of a pass that took *elapsed_s*."""
        if elapsed_s < QUICK_S:
            self.quick += messages
            return
        self._ranges[bisect_right(_BOUNDS_S, elapsed_s)] += messages
        self._powers[min(int(elapsed_s * 1e6).bit_length(), _POWERS - 1)] += messages

    def begin_period(self) -> None:
        """Begin a new period, and forget the one before the last."""
        self._quick_before, self.quick = self.quick, 0
        self._ranges_before, self._powers_before = self._ranges, self._powers
        self._ranges, self._powers = [0] * len(RANGES), [0] * _POWERS

    def distribution(self) -> str:
        """Return ``[<=0ms]:1 [0~10ms]:0 …``, as RocketMQ writes it, with a blank at the end."""
        counts = [a + b for a, b in zip(self._ranges, self._ranges_before, strict=True)]
        counts[0] += self.quick + self._quick_before
        return "".join(f"[{name}]:{n} " for name, n in zip(RANGES, counts, strict=True))

    def percentile_ms(self, share: float) -> float:
        """Return the time that *share* of the messages did not exceed, up to a power of two.

        Returns 0 if that is less than a millisecond.
        """
        counts = [a + b for a, b in zip(self._powers, self._powers_before, strict=True)]
        seen = self.quick + self._quick_before
        wanted = (seen + sum(counts)) * share
        if seen >= wanted:
            return 0.0
        for power, count in enumerate(counts):
            seen += count
            if seen >= wanted:
                return float((1 << power) - 1) / 1000
        return 0.0
