"""Waiting for a state of a broker in this event loop that no event announces."""

import asyncio
from collections.abc import Callable

_TURNS_AT_ONCE = 100
_PAUSE_S = 0.002


async def until(condition: Callable[[], bool]) -> None:
    """Give the other tasks turns until the condition holds; the test's timeout bounds it.

    What takes longer than some turns waits for a socket, a thread or a clock: leave them the
    processor.
    """
    turns = 0
    while not condition():
        await asyncio.sleep(0 if turns < _TURNS_AT_ONCE else _PAUSE_S)
        turns += 1
