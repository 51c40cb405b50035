"""Decide when a stream starts a batch: minOffsetsPerTrigger and maxTriggerDelay."""

import time
from collections.abc import Callable

MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
"""The default of Kafka's source."""


class Pace:
    """Delays batches while few messages wait; one for each reader, so a query begins at once.

    The delay counts from the previous batch, as in Kafka's source. So a message that arrives after
    a long pause does not wait.
    """

    def __init__(
        self,
        offsets_min: int | None,
        delay_max_ms: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offsets_min = offsets_min or 0
        self._delay_max_s = delay_max_ms / 1000
        self._now_s = now_s
        self._last_s: float | None = None

    def is_too_soon(self, waiting: int) -> bool:
        """Return whether a batch of *waiting* messages must wait; if not, it counts as started."""
        now_s = self._now_s()
        is_due = self._last_s is None or now_s - self._last_s >= self._delay_max_s
        if waiting < self._offsets_min and not (is_due and waiting):
            return True
        if waiting:
            self._last_s = now_s
        return False
