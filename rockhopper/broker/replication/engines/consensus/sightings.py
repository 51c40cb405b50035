"""Whether something that is renewed still is, by this process's clock alone.

A lease is over when its mark has not changed for as long as it lasts, counted from when that mark
was seen first: clocks of other machines, and times that they write down, decide nothing. So whoever
has just begun to look takes everything for alive, for as long as a lease lasts.
"""

from collections.abc import Callable, Hashable


class Sightings:
    """What one process has seen, and when; the clock never goes back."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def is_alive(self, name: str, mark: Hashable, lease_ms: float) -> bool:
        """Take note of the *mark* under a *name*; False if it has been the same for so long."""
        now_ms = self._now_ms()
        before = self._seen.get(name)
        if before is None or before[0] != mark:
            self._seen[name] = mark, now_ms
            return True
        return now_ms - before[1] < lease_ms
