"""How old what a follower lacks is, of samples of where its master's log ended."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

SAMPLES_MAX = 3600


class Lags:
    """Of a master; ``sample`` is to be called about once a second."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ends: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        """Where the log ended, and since when; the latest last."""

    def sample(self, log_end: int) -> None:
        """Take note of where the log ends now."""
        if self._ends and self._ends[-1][0] > log_end:
            self._ends.clear()
        if not self._ends or self._ends[-1][0] < log_end:
            self._ends.append((log_end, self._now_ms()))

    def seconds(self, held_offset: int) -> float:
        """How long ago the log was first seen to be longer than *held_offset*: 0 if it is not.

        Of a follower that is further behind than the samples reach, it is their age.
        """
        if not self._ends or held_offset >= self._ends[-1][0]:
            return 0.0
        found = bisect_right(self._ends, held_offset, key=lambda sample: sample[0])
        return (self._now_ms() - self._ends[found][1]) / 1000
