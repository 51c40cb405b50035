"""The broker's clocks: the wall clock for points in time, a steady one for durations.

Operators, NTP steps and suspended machines set the wall clock forward and back. A point in time
that a client names is on the wall clock (``wall_ms``). All durations are counted by ``steady_ms``:
store times, delay levels, invisible and lease times, transaction checks. It runs with the monotonic
clock and never goes back:

    set forward   it follows: time has passed, as for a machine that was suspended
    set back      it continues from its present time, so that nothing happens earlier or later
    at a start    it begins no earlier than the store's newest time (``not_before``)

So it shows the wall clock's time, or is ahead of it by as much as that was set back since the
start. Durations that must not end before their holder expects it, queue locks and consumer
membership, are counted by ``passed_ms``.
"""

import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("broker.clock")

JUMP_MS = 1000
_NS_PER_MS = 1_000_000
_JUMP_NS = JUMP_MS * _NS_PER_MS


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // _NS_PER_MS


class BrokerClock:
    """Both clocks of one process; logs when the wall clock was set."""

    def __init__(
        self,
        wall_ms: Callable[[], int] = wall_clock_ms,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.wall_ms = wall_ms
        self._monotonic_ns = monotonic_ns
        # How far the wall clock, and the steady clock, are ahead of the monotonic clock.
        self._seen_ns = self._ahead_ns = wall_ms() * _NS_PER_MS - monotonic_ns()

    def steady_ms(self) -> int:
        """Return milliseconds since 1970 that never go back."""
        # In this order a pause between the two makes the wall clock look slow, never fast.
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
        """Return milliseconds of the monotonic clock alone: for what must not end too early."""
        return self._monotonic_ns() // _NS_PER_MS

    def not_before(self, time_ms: int) -> None:
        """Continue from *time_ms* if that is later than now, because data was written then."""
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
