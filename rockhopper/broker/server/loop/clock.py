"""The broker's time: the wall clock for points in time, a steady one for how long something lasts.

The wall clock is set, forward and back, by operators, by NTP's steps and by machines that were
suspended. A point in time that a client names is the wall clock's (``wall_ms``). Everything that
lasts is counted by ``steady_ms``: store times, delay levels, invisible and leased times, looks at
transactions. That one runs with the monotonic clock and never goes back:

    set forward   it follows: time has passed, as it has for a machine that was suspended
    set back      it goes on from where it is, so nothing comes earlier or later for it
    at a start    it begins no earlier than what the store was written at (``not_before``)

So it is the wall clock's time or ahead of it, by what that was set back since the start. What must
not end before its holder thinks so, the locks of queues and the membership of consumers, is counted
by ``passed_ms``.
"""

import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("broker.clock")

JUMP_MS = 1000
_NS_PER_MS = 1_000_000
_JUMP_NS = JUMP_MS * _NS_PER_MS


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // _NS_PER_MS


class BrokerClock:
    """Both clocks of one process, and the note in the log when the wall's was set."""

    def __init__(
        self,
        wall_ms: Callable[[], int] = wall_clock_ms,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.wall_ms = wall_ms
        self._monotonic_ns = monotonic_ns
        # How far the wall clock, and the steady time, are ahead of the monotonic clock.
        self._seen_ns = self._ahead_ns = wall_ms() * _NS_PER_MS - monotonic_ns()

    def steady_ms(self) -> int:
        """Milliseconds since 1970 that never go back."""
        # In this order a wait between the two makes the wall clock look slow, never fast.
        wall_ns = self.wall_ms() * _NS_PER_MS
        monotonic_ns = self._monotonic_ns()
        ahead_ns = wall_ns - monotonic_ns
        if ahead_ns > self._ahead_ns:
            self._ahead_ns = ahead_ns
        if not -_JUMP_NS < ahead_ns - self._seen_ns < _JUMP_NS:
            self._note_jump(ahead_ns - self._seen_ns)
            self._seen_ns = ahead_ns
        return (monotonic_ns + self._ahead_ns) // _NS_PER_MS

    def passed_ms(self) -> int:
        """Milliseconds of the monotonic clock alone: for what must not be over too early."""
        return self._monotonic_ns() // _NS_PER_MS

    def not_before(self, time_ms: int) -> None:
        """Go on from *time_ms* if that is later than now: something was written then."""
        behind_ms = time_ms - self.steady_ms()
        if behind_ms <= 0:
            return
        self._ahead_ns += behind_ms * _NS_PER_MS
        if behind_ms >= JUMP_MS:
            log.warning(
                "the store was written at a later time than the clock shows: delays, leases and "
                "store times continue from that time; set the clock if it is wrong",
                ahead_s=round(behind_ms / 1000),
            )

    def _note_jump(self, jump_ns: int) -> None:
        jump_s = round(jump_ns / 1e9, 1)
        if jump_ns > 0:
            log.warning(
                "the clock was set forward: everything due by its new time is due now", by_s=jump_s
            )
        else:
            log.warning(
                "the clock was set back: delays, leases and store times continue from the time "
                "before; timer messages wait for the clock",
                by_s=-jump_s,
            )
