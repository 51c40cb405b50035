"""Short collections: often, and what one found alive, and took long for, is not looked at again.

Python's oldest generation holds every topic and every connection; with 100,000 topics to look at a
collection stops the loop for a tenth of a second, again and again, and finds nothing. What is
frozen is still freed when nobody refers to it any more; only cycles among it are not. Connections,
the one thing that comes and goes in great numbers, leave none when they close.

An object that is not in the processor's caches costs 0.4 us, so a pause under 5 ms may look at
12,000 of them: what grows by a million objects has them looked at in pieces of that size. Python
counts what is freed against what is made, which makes a piece two to five times as large as the
thresholds say.
"""

import gc
import time
from collections.abc import Callable, Mapping

PAUSE_MAX_S = 0.002
_OLDEST = 2
THRESHOLDS = (300, 4, 1)
"""Of gc.set_threshold: a collection of everything after 3,000 new objects, where those stay."""


class ShortCollections:
    """Watches the collector of this process."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Freeze what there is, and begin to watch."""
        self.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._noted)

    @staticmethod
    def freeze() -> None:
        """Look no more at what there is."""
        gc.freeze()
        # Of nothing: or Python would wait until a quarter as much has come as it has seen so far.
        gc.collect()

    def stop(self) -> None:
        """Watch no more; what is frozen stays so, or the end of a process would look at it all."""
        if self._noted in gc.callbacks:
            gc.callbacks.remove(self._noted)
            gc.set_threshold(*self._thresholds)

    def _noted(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = self._clock()
        elif info["generation"] == _OLDEST and self._clock() - self._began_s > PAUSE_MAX_S:
            gc.freeze()
