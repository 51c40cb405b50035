"""How far this machine's clock is ahead of its master's, measured from the time in each heartbeat.

A heartbeat shows the difference plus its transmission time. The smallest value of some seconds is
the difference to a few milliseconds, even if some heartbeats were delayed. Delayed messages,
retention and timeouts follow the master's clock: if a follower's differs, a failover makes them
early or late.

    the master's clock is 3.000 s behind this one
    heartbeats show       3.002, 3.050 and 4.800 s; the last one was delayed by 1.8 s
    the result            3.002 s ahead
"""

from collections import deque
from collections.abc import Callable

WINDOW_MS = 5000
DIFFERENCE_MS_MAX = 2000


class ClockDifference:
    """The clock difference of one replica while it follows."""

    def __init__(self, now_ms: Callable[[], int], wall_ms: Callable[[], int]) -> None:
        """*now_ms* is monotonic; *wall_ms* is the clock to compare."""
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._seen: deque[tuple[int, int]] = deque()
        """When each heartbeat arrived, and how far its time was behind this clock."""

    def wall_ms(self) -> int:
        """Return this machine's time."""
        return self._wall_ms()

    def beat(self, sent_at_ms: int) -> None:
        """Record a heartbeat of the master."""
        now_ms = self._now_ms()
        self._forget_old(now_ms)
        self._seen.append((now_ms, self._wall_ms() - sent_at_ms))

    @property
    def ahead_ms(self) -> int | None:
        """The difference; negative if behind. None: no heartbeat in the last seconds."""
        self._forget_old(self._now_ms())
        return min((behind_ms for _, behind_ms in self._seen), default=None)

    @property
    def problem(self) -> str:
        """A description of a large difference; blank otherwise."""
        ahead_ms = self.ahead_ms
        if ahead_ms is None or abs(ahead_ms) < DIFFERENCE_MS_MAX:
            return ""
        side = "ahead of" if ahead_ms > 0 else "behind"
        return (
            f"this machine's clock is {abs(ahead_ms) / 1000:.1f} s {side} the master's: after a "
            "failover, delayed messages come early or late, and retention is off by as much; "
            "synchronize both (NTP, chrony)"
        )

    def _forget_old(self, now_ms: int) -> None:
        while self._seen and self._seen[0][0] < now_ms - WINDOW_MS:
            self._seen.popleft()
