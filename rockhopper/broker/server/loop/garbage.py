"""Short garbage collections: if one takes long, the surviving objects are frozen.

Python's oldest generation holds every topic and every connection. With 100,000 topics a collection
stops the loop for a tenth of a second, again and again, and finds nothing. Frozen objects are still
freed when their last reference goes; only cycles among them are not. Connections, the only objects
that come and go in large numbers, leave no cycles when they close.

An object outside the processor's caches costs 0.4 us, so a pause under 5 ms may examine 12,000 of
them. The thresholds make Python examine objects in pieces of that size even if a million are added.
Python subtracts freed objects from new ones, which makes a piece two to five times as large as the
thresholds.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping

PAUSE_MAX_S = 0.002
_OLDEST = 2
THRESHOLDS = (300, 4, 1)
"""Of gc.set_threshold: a full collection after 3,000 new objects that survive."""


@contextlib.contextmanager
def pause_collections() -> Iterator[None]:
    """Collect no garbage within the context, which makes many objects that stay, and no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class ShortCollections:
    """Watches the collector of this process."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Freeze all objects, and begin to watch."""
        self.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._note)

    @staticmethod
    def freeze() -> None:
        """Exclude all present objects from collections."""
        gc.freeze()
        # Of nothing: else Python would wait until the new objects are a quarter of all it has seen.
        gc.collect()

    def stop(self) -> None:
        """Stop watching; objects stay frozen, so that the process exits without examining them."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)
            gc.set_threshold(*self._thresholds)

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = self._clock()
        elif info["generation"] == _OLDEST and self._clock() - self._began_s > PAUSE_MAX_S:
            gc.freeze()
