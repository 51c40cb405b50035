"""Ending tasks, and requests that nobody waits for any more."""

import asyncio
from collections.abc import Iterable
from typing import Any


def end_tasks(tasks: Iterable[asyncio.Future[Any] | None]) -> asyncio.Future[list[Any]]:
    """Cancel tasks now; the future is done when they have ended, however they did.

    Who is cancelled while waiting for it has cancelled them all the same.
    """
    ending = [task for task in tasks if task is not None]
    for task in ending:
        task.cancel()
    return asyncio.gather(*ending, return_exceptions=True)


def let_go(request: asyncio.Future[Any]) -> None:
    """Give up waiting for a request, whatever becomes of it."""
    if not request.cancel() and not request.cancelled():
        request.exception()  # else asyncio tells that nobody looked at it
