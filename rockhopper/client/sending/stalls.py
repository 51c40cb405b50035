"""StallMeter: measures how long the event loop was busy with other work during a wait.

A timer is due every 0.25 s. If it fires at 3.25 s, it was 3 s late: the loop stalled for 3 s and
could read no answer, so the deadline of the wait is extended by 3 s.
"""

import asyncio

_TICK_S = 0.25
_STALL_NOTED_S = 0.05


class StallMeter:
    """Measures from its creation to `stop`; delays below 50 ms do not count."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stalled_s = 0.0
        self._tick()

    def stop(self) -> float:
        """Stop, and return how many seconds the loop stalled."""
        self._timer.cancel()
        self._count()
        return self._stalled_s

    def _tick(self) -> None:
        self._due_s = self._loop.time() + _TICK_S
        self._timer = self._loop.call_at(self._due_s, self._ticked)

    def _ticked(self) -> None:
        self._count()
        self._tick()

    def _count(self) -> None:
        late_s = self._loop.time() - self._due_s
        if late_s >= _STALL_NOTED_S:
            self._stalled_s += late_s
