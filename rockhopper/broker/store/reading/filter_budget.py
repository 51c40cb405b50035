"""FilterBudget: the time that filters over properties may take, of all connections together.

A reader chooses what one step costs: how long an expression is, and what it looks for in how long
properties. So what is bounded is time, not messages. It runs as a bucket does: full with
``BUDGET_S``, it fills by ``SHARE`` of the time that goes by, and whoever filters takes from it. Who
has to wait for it has turns (server/loop/filter_turns.py).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BUDGET_S = 0.008
SHARE = 0.4
# Those who wait go on when it is filled so far: each look at it has its price.
REFILLED_S = BUDGET_S / 2


class FilterBudget:
    """What is left."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._left_s = BUDGET_S
        self._at_s = clock()
        self._depth = 0
        self.is_awaited = False
        """Whether somebody waits for it, whom nobody should pass."""

    def has_room(self) -> bool:
        """Whether a read may begin now, in front of nobody."""
        return not self.is_awaited and self.left_s() > 0

    def left_s(self) -> float:
        """How much is left for what begins now; less than nothing after one that took too long."""
        now_s = self.clock()
        if not self._depth:
            self._left_s = min(self._left_s + (now_s - self._at_s) * SHARE, BUDGET_S)
            self._at_s = now_s
        return self._left_s

    def wait_s(self) -> float:
        """How long those who wait should go on to; 0 when there is something left."""
        left_s = self.left_s()
        return (REFILLED_S - left_s) / SHARE if left_s <= 0 else 0.0

    def begin(self) -> None:
        """Work begins that this pays for; what it calls may begin and end in it again."""
        if not self._depth:
            self.left_s()
        self._depth += 1

    def end(self) -> None:
        """It is over."""
        self._depth -= 1
        if not self._depth:
            now_s = self.clock()
            self._left_s -= now_s - self._at_s
            self._at_s = now_s

    @contextmanager
    def pays(self) -> Iterator[None]:
        """As ``begin`` and ``end``."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def is_spent(self) -> bool:
        """Whether the work that has begun should stop."""
        return self.clock() - self._at_s >= self._left_s
