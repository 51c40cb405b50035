"""An event loop whose time passes only when a test advances it: timers fire without waiting."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

# Iterations in which ready tasks, and tasks that these make ready, run.
SETTLING_TURNS = 50


class SteppedLoop(asyncio.SelectorEventLoop):
    """Runs ready tasks; ``advance`` moves its clock."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 1000.0

    def time(self) -> float:
        """Return the time that timers see."""
        return self._now_s

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run *coroutine* to its end, and everything that it made ready."""

        async def settle() -> Result:
            result = await coroutine
            for _ in range(SETTLING_TURNS):
                await asyncio.sleep(0)
            return result

        return self.run_until_complete(settle())

    def advance(self, seconds: float) -> None:
        """Advance the time in one step, and run what is due."""
        self._now_s += seconds

        async def nothing() -> None:
            pass

        self.run(nothing())
