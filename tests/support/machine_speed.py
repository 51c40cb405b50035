"""How slow this machine is, for bounds of processor time."""

from __future__ import annotations

import functools
import time

# What `_work` takes on the machine where the bounds were chosen.
_USUAL_S = 0.0025
_TRIES = 5


@functools.cache
def slowness() -> float:
    """Return how many times as long as usual this machine takes; at least 1."""
    return max(1.0, min(_work() for _ in range(_TRIES)) / _USUAL_S)


def _work() -> float:
    began_s = time.thread_time()
    table: dict[str, int] = {}
    for number in range(20_000):
        table[f"{number % 1000:x}"] = number
    return time.thread_time() - began_s
