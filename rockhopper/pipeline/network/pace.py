"""When a batch of a stream is worth its while: minOffsetsPerTrigger and maxTriggerDelay."""

import time
from collections.abc import Callable

MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
"""Kafka's."""


class Pace:
    """Holds batches back while little waits; one for each reader, so that a query begins at once.

    The delay counts from the batch before, as in Kafka's source: what comes after a long silence
    does not wait.
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
        """Whether a batch of *waiting* messages is to wait for more; else it counts as planned."""
        now_s = self._now_s()
        is_due = self._last_s is None or now_s - self._last_s >= self._delay_max_s
        if waiting < self._offsets_min and not (is_due and waiting):
            return True
        if waiting:
            self._last_s = now_s
        return False
