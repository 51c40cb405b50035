"""The time in which the event loop was busy with other work, while something was waited for."""

import asyncio

_TICK_S = 0.25
_STALL_NOTED_S = 0.05


class StallMeter:
    """Counts from its making to `stop`; what is shorter than 50 ms is no stall."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stalled_s = 0.0
        self._tick()

    def stop(self) -> float:
        """Return the seconds that were lost."""
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
