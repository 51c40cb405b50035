"""Stalls: how often and how long one callback blocked the event loop.

A timer that is due every ``TICK_S`` records its delay. The measured stall is up to one tick shorter
than the real one; a machine that does not run this process counts as a stall too.
"""

import asyncio
import time
from collections.abc import Callable

TICK_S = 0.01
STALL_S = 0.02


class StallWatchdog:
    """Counts the stalls of the loop in which ``start`` was called."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """*clock* is in seconds. Not the loop's own, which uvloop reads once per iteration."""
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self.count = 0
        """Stalls longer than ``STALL_S``."""
        self.longest_s = 0.0
        """The longest of them."""
        self.total_s = 0.0
        """Their sum."""

    def start(self) -> None:
        """Begin to measure; needs a running event loop."""
        self._wait(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = self._clock() + TICK_S
        self._timer = loop.call_later(TICK_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        late_s = self._clock() - self._due_s
        if late_s > STALL_S:
            self.count += 1
            self.total_s += late_s
            self.longest_s = max(self.longest_s, late_s)
        self._wait(loop)
