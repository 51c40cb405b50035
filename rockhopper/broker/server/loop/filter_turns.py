"""FilterTurns: readers whose filters have to wait for the budget that all of them share.

    A read of connection 1 begins with 8 ms in the budget, and stops after 9: one message took long.
    Connections 2 to 20 ask for reads in the same turn of the loop. They wait, and cost nothing.
    12 ms later 4 ms are in it: connection 2 reads, in the next turn 3, until it is empty again.

Who waits has a turn in the order of coming, each connection once, one in a turn of the event loop.
So a turn of the loop filters for one budget and one message at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from rockhopper.broker.server.loop.part import Part

WAITING_MAX = 65_536
WAITING_PER_OWNER_MAX = 4096


class Budget(Protocol):
    """``store.reading.filter_budget.FilterBudget``, as far as turns go."""

    is_awaited: bool

    def wait_s(self) -> float:
        """How long nobody should begin."""

    def has_room(self) -> bool:
        """Whether a read may begin now, in front of nobody."""

    def pays(self) -> AbstractContextManager[None]:
        """What work goes on in that it pays for."""


class FilterTurns(Part):
    """Who waits for a budget. Belongs to the event loop's thread."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        # What resumes the reads of an owner, those who wait longest first.
        self._waiting: dict[object, deque[Callable[[], None]]] = {}
        self._count = 0
        self._next_turn: asyncio.Handle | None = None
        self.is_closed = False

    def __len__(self) -> int:
        """How many reads wait."""
        return self._count

    def wait(self, owner: object, resume: Callable[[], None]) -> bool:
        """Call *resume* in *owner*'s turn; False, and never, when too many wait."""
        mine = self._waiting.get(owner, ())
        if self.is_closed or self._count >= WAITING_MAX or len(mine) >= WAITING_PER_OWNER_MAX:
            return False
        self._waiting.setdefault(owner, deque()).append(resume)
        self._count += 1
        self.budget.is_awaited = True
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._next)
        return True

    async def turn(self, owner: object) -> bool:
        """Return in *owner*'s turn; False at once when too many wait."""
        come = asyncio.get_running_loop().create_future()

        def resume() -> None:
            if not come.done():
                come.set_result(True)

        return self.wait(owner, resume) and await come

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self.budget.wait_s()
        if wait_s > 0:
            self._next_turn = loop.call_later(wait_s, self._next)
            return
        self._next_turn = None
        owner = next(iter(self._waiting))
        mine = self._waiting.pop(owner)
        resume = mine.popleft()
        self._count -= 1
        if mine:
            # Behind the others.
            self._waiting[owner] = mine
        self.budget.is_awaited = bool(self._waiting)
        try:
            resume()
        finally:
            if self._waiting and self._next_turn is None:
                self._next_turn = loop.call_soon(self._next)

    def stop(self) -> None:
        """Resume everybody now, and let nobody wait any more."""
        self.is_closed = True
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        waiting, self._waiting = self._waiting, {}
        self._count = 0
        self.budget.is_awaited = False
        for mine in waiting.values():
            for resume in mine:
                resume()
