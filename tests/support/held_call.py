"""HeldCall: a function that blocks the thread that calls it, until a test releases it."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from tests.support.hang import HANG_S

_TURNS = 20


class HeldCall:
    """Create it in the event loop, and put it in the place of a function that threads call."""

    def __init__(self, error: Exception | None = None, result: object = None) -> None:
        """A call raises *error*, or returns *result*, when it is released."""
        self._error, self._result = error, result
        self._may_end = threading.Event()
        self.has_begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, *_: object) -> Any:
        """Block."""
        self._loop.call_soon_threadsafe(self.has_begun.set)
        self._may_end.wait(HANG_S)
        if self._error is not None:
            raise self._error
        return self._result

    def release(self) -> None:
        """Let the call end."""
        self._may_end.set()

    async def is_awaited_by(self, ending: Coroutine[Any, Any, object]) -> bool:
        """Return whether *ending* is not done before the call is released."""
        await self.has_begun.wait()
        task = asyncio.ensure_future(ending)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        was_waiting = not task.done()
        self.release()
        await task
        return was_waiting
