"""FilterTurns: filtered reads that wait for the budget that all of them share.

Example: connection 1 begins a read with 8 ms in the budget, and stops after 9 ms, because one
message took long. Connections 2 to 20 request reads in the same iteration of the loop. They wait,
at no cost. 12 ms later the budget has 4 ms: connection 2 reads, in the next iteration connection 3,
until the budget is empty again.

Waiting connections take turns in the order of arrival, one per iteration of the event loop. So an
iteration filters for one budget and one message at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

WAITING_MAX = 65_536
WAITING_PER_OWNER_MAX = 4096


class Budget(Protocol):
    """The methods of ``store.reading.property_stage.FilterBudget`` that are needed here."""

    is_awaited: bool

    def wait_s(self) -> float:
        """Return how long no read should begin."""

    def has_room(self) -> bool:
        """Return whether a read may begin now without overtaking a waiting one."""

    def pays(self) -> AbstractContextManager[None]:
        """Return a context manager whose duration is charged to the budget."""


class FilterTurns:
    """Reads that wait for a budget. Belongs to the event loop's thread."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        # The callbacks that resume an owner's reads, the longest-waiting first.
        self._waiting: dict[object, deque[Callable[[], None]]] = {}
        self._count = 0
        self._next_turn: asyncio.Handle | None = None
        self.is_closed = False

    def __len__(self) -> int:
        """How many reads wait."""
        return self._count

    def wait(self, owner: object, resume: Callable[[], None]) -> bool:
        """Call *resume* in *owner*'s turn; return False, and never call it, if too many wait."""
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
        """Return in *owner*'s turn; return False at once if too many wait."""
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
            # After the others.
            self._waiting[owner] = mine
        self.budget.is_awaited = bool(self._waiting)
        try:
            resume()
        finally:
            if self._waiting and self._next_turn is None:
                self._next_turn = loop.call_soon(self._next)

    def stop(self) -> None:
        """Resume all reads now, and accept no more."""
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
