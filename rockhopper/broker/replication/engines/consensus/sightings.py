"""Whether a lease is still renewed, by this process's clock alone.

A lease has expired when its mark has not changed for the lease's duration, counted from when this
process first saw the mark. Neither clocks nor stored times of other machines matter. So a process
that has just started to observe regards every lease as alive for one duration.
"""

from collections.abc import Callable, Hashable


class Sightings:
    """The marks that one process has observed, and when; the clock is monotonic."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def is_alive(self, name: str, mark: Hashable, lease_ms: float) -> bool:
        """Record the *mark* of a *name*; return False if it has not changed for *lease_ms*."""
        now_ms = self._now_ms()
        before = self._seen.get(name)
        if before is None or before[0] != mark:
            self._seen[name] = mark, now_ms
            return True
        return now_ms - before[1] < lease_ms
