"""How long messages took to be written into the log, as code 28 reports it.

Counted once per pass, for all its messages. Nearly all take less than a millisecond: one counter,
``quick``, covers them, and the store adds to it directly. The others are counted by RocketMQ's
ranges (StoreStatsService) and by powers of two of a microsecond, from which percentiles are
estimated.
"""

from bisect import bisect_right

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
