"""The age of the oldest message that a follower lacks, from samples of the log's end."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

SAMPLES_MAX = 3600


class Lags:
    """The samples of a master; call ``sample`` about once a second."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ends: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        """Ends of the log and when each was first seen; the latest last."""

    def sample(self, log_end: int) -> None:
        """Record the current end of the log."""
        if self._ends and self._ends[-1][0] > log_end:
            self._ends.clear()
        if not self._ends or self._ends[-1][0] < log_end:
            self._ends.append((log_end, self._now_ms()))

    def seconds(self, acknowledgeable_offset: int) -> float:
        """Return how long ago the log first exceeded *acknowledgeable_offset*; 0 if it does not.

        For a follower that is further behind than the samples reach, it is the samples' age.

            samples    end 100 at 0 s, end 200 at 1 s, end 300 at 2 s
            at 5 s     a follower with 200 lacks what was first seen at 2 s: 3.0
        """
        if not self._ends or acknowledgeable_offset >= self._ends[-1][0]:
            return 0.0
        found = bisect_right(self._ends, acknowledgeable_offset, key=lambda sample: sample[0])
        return (self._now_ms() - self._ends[found][1]) / 1000
