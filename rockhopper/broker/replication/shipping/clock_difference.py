"""How far this machine's clock is ahead of its master's, by the time that each beat carries.

What a beat shows is the difference and its way: the smallest of some seconds is the difference to a
few milliseconds, whatever was held up meanwhile. Delayed messages, retention and time-outs follow
the master's clock: if a follower's differs, a failover makes them early or late.

Example: a follower is 3 s behind. Its beats come with 2.998, 2.950 and 1.200 s (one was held up
for 1.8 s) more than its own clock shows: it is 2.998 s behind.
"""

from collections import deque
from collections.abc import Callable

WINDOW_MS = 5000
DIFFERENCE_MS_MAX = 2000


class ClockDifference:
    """Of one replica, while it follows."""

    def __init__(self, now_ms: Callable[[], int], wall_ms: Callable[[], int]) -> None:
        """*now_ms* never goes back; *wall_ms* is the clock that is compared."""
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._seen: deque[tuple[int, int]] = deque()
        """When a beat came, and by how much it was behind this clock."""

    def wall_ms(self) -> int:
        """What this machine's clock shows."""
        return self._wall_ms()

    def beat(self, sent_at_ms: int) -> None:
        """Take note of a beat of the master's."""
        now_ms = self._now_ms()
        self._forget_old(now_ms)
        self._seen.append((now_ms, self._wall_ms() - sent_at_ms))

    @property
    def ahead_ms(self) -> int | None:
        """Negative: behind. None: no master was heard in the last seconds."""
        self._forget_old(self._now_ms())
        return min((behind_ms for _, behind_ms in self._seen), default=None)

    @property
    def problem(self) -> str:
        """What is wrong, if it is much; blank otherwise."""
        ahead_ms = self.ahead_ms
        if ahead_ms is None or abs(ahead_ms) < DIFFERENCE_MS_MAX:
            return ""
        side = "ahead of" if ahead_ms > 0 else "behind"
        return (
            f"this machine's clock is {abs(ahead_ms) / 1000:.1f} s {side} the master's: delayed "
            "messages come early or late with a failover, and retention with them; have both "
            "follow one time (NTP, chrony)"
        )

    def _forget_old(self, now_ms: int) -> None:
        while self._seen and self._seen[0][0] < now_ms - WINDOW_MS:
            self._seen.popleft()
