"""FilterBudget: the time that property filters of all connections together may take.

A client's request decides what one step costs: the length of the expression, and of the properties
that it reads. So the limit is on time, not on messages. It is a token bucket: at most ``BUDGET_S``,
refilled with ``SHARE`` of the elapsed time; each filtered read takes from it. Reads that must wait
take turns (server/loop/filter_turns.py).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BUDGET_S = 0.008
SHARE = 0.4
# Waiting reads continue once it is filled this far, because each check has a cost.
REFILLED_S = BUDGET_S / 2


class FilterBudget:
    """The remaining time."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._left_s = BUDGET_S
        self._at_s = clock()
        self._depth = 0
        self.is_awaited = False
        """Whether reads wait for the budget; others must not overtake them."""

    def has_room(self) -> bool:
        """Return whether a read may begin now without overtaking a waiting one."""
        return not self.is_awaited and self.left_s() > 0

    def left_s(self) -> float:
        """Return the time left for a new read; negative after one that took too long."""
        now_s = self.clock()
        if not self._depth:
            self._left_s = min(self._left_s + (now_s - self._at_s) * SHARE, BUDGET_S)
            self._at_s = now_s
        return self._left_s

    def wait_s(self) -> float:
        """Return how long waiting reads must wait; 0 if time is left."""
        left_s = self.left_s()
        return (REFILLED_S - left_s) / SHARE if left_s <= 0 else 0.0

    def start_work(self) -> None:
        """Begin work that uses the budget; nested calls are allowed."""
        if not self._depth:
            self.left_s()
        self._depth += 1

    def finish_work(self) -> None:
        """End the work, and subtract its time from the budget."""
        self._depth -= 1
        if not self._depth:
            now_s = self.clock()
            self._left_s -= now_s - self._at_s
            self._at_s = now_s

    @contextmanager
    def pays(self) -> Iterator[None]:
        """A context manager for ``start_work`` and ``finish_work``."""
        self.start_work()
        try:
            yield
        finally:
            self.finish_work()

    def is_spent(self) -> bool:
        """Return whether the current work should stop."""
        return self.clock() - self._at_s >= self._left_s
