"""Wait for a state of a broker in this event loop that no event announces."""

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.support.hang import HANG_S

_TURNS_AT_ONCE = 100
_PAUSE_S = 0.002


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds; the test's timeout bounds it.

    A longer wait is for a socket, a thread or a clock, so leave them the processor. The pause is in
    a thread, because the loop's own clock may be stopped (held_clock.py).
    """
    turns = 0
    while not condition():
        if turns < _TURNS_AT_ONCE:
            await asyncio.sleep(0)
        else:
            await asyncio.to_thread(time.sleep, _PAUSE_S)
        turns += 1


async def until_logged(
    caplog: pytest.LogCaptureFixture,
    text: str,
    count: int = 1,
    patience_s: float = HANG_S,
) -> None:
    """Let other tasks run until *text* was logged *count* times.

    Raises:
        AssertionError: it was not; the texts that were logged may be reworded ones.
    """
    try:
        async with asyncio.timeout(patience_s):
            await until(lambda: caplog.text.count(text) >= count)
    except TimeoutError:
        raise AssertionError(f"not logged {count} times: {text!r}, but:\n{caplog.text}") from None
