"""Waiting for a state of a broker in this event loop that no event announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool]) -> None:
    """Give the other tasks turns until the condition holds; the test's timeout bounds it."""
    while not condition():  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(0)
