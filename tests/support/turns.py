"""Waiting for a state of a broker in this event loop that no event announces."""

import asyncio
import time
from collections.abc import Callable

_TURNS_AT_ONCE = 100
_PAUSE_S = 0.002


async def until(condition: Callable[[], bool]) -> None:
    """Give the other tasks turns until the condition holds; the test's timeout bounds it.

    What takes longer than some turns waits for a socket, a thread or a clock: leave them the
    processor. In a thread, for the loop's own clock may be held (held_clock.py).
    """
    turns = 0
    while not condition():
        if turns < _TURNS_AT_ONCE:
            await asyncio.sleep(0)
        else:
            await asyncio.to_thread(time.sleep, _PAUSE_S)
        turns += 1
