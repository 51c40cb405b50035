"""Waits, on the event loop's clock, for a time of another clock.

The loop's clock is never set and does not count a suspension; both happen to the wall clock, and
the steady clock follows it forward (broker.clock). So no wait is longer than ``WAIT_S_MAX``, and a
change of the clock is noticed within that time. If the other clock runs faster than the loop's, as
a faked one may, waits become shorter by as much.
"""

import asyncio
from collections.abc import Callable

WAIT_S_MAX = 0.25
_SAMPLE_S_MIN = 0.02
_RATE_MAX = 1000.0


class WallWaits:
    """Computes waits, by the latest measured rate of the wall clock."""

    __slots__ = ("_loop_s", "_now_ms", "_rate", "_wall_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._wall_ms: int | None = None
        self._loop_s = 0.0
        self._rate = 1.0

    def seconds(self, due_ms: int, loop_s: float) -> float:
        """Return how long to wait for *due_ms* if the loop's clock shows *loop_s*."""
        now_ms = self._now_ms()
        passed_s = loop_s - self._loop_s
        if self._wall_ms is None:
            self._wall_ms, self._loop_s = now_ms, loop_s
        elif passed_s >= _SAMPLE_S_MIN:
            rate = (now_ms - self._wall_ms) / 1000 / passed_s
            self._rate = min(max(rate, 1.0), _RATE_MAX)
            self._wall_ms, self._loop_s = now_ms, loop_s
        return min(max(due_ms - now_ms, 0) / 1000, WAIT_S_MAX) / self._rate


class WallTimer:
    """One timer for the earliest of many times; the call checks which have come.

    As with the loop's own timers, each method gets the function to call, and its arguments.
    """

    __slots__ = ("_due_ms", "_handle", "_waits")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._waits = WallWaits(now_ms)
        self._handle: asyncio.Handle | None = None
        # None: no due time replaces the scheduled call.
        self._due_ms: int | None = None

    def arm(self, due_ms: int, look: Callable[..., None], *arguments: object) -> None:
        """Make sure that *look* is called by *due_ms*, or before."""
        if self._handle is not None:
            if self._due_ms is None or self._due_ms <= due_ms:
                return
            self._handle.cancel()
        self._due_ms = due_ms
        loop = asyncio.get_running_loop()
        wait_s = self._waits.seconds(due_ms, loop.time())
        self._handle = loop.call_later(wait_s, self._run, look, arguments)

    def soon(self, look: Callable[..., None], *arguments: object) -> None:
        """Call *look* in the next iteration of the loop, in place of any other call."""
        self.cancel()
        self._handle = asyncio.get_running_loop().call_soon(self._run, look, arguments)

    def retry(self, pause_s: float, look: Callable[..., None], *arguments: object) -> None:
        """Call *look* after *pause_s* of the loop's clock, and not before for any due time."""
        self.cancel()
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(pause_s, self._run, look, arguments)

    def cancel(self) -> None:
        """Cancel the call."""
        self._due_ms = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self, look: Callable[..., None], arguments: tuple[object, ...]) -> None:
        self._handle = self._due_ms = None
        look(*arguments)
