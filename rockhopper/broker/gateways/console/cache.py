"""A 10-second cache for results that need many requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rockhopper.tasks import start_request

_Found = TypeVar("_Found")

KEPT_S = 10.0
KEPT_MAX = 16


class ResultCache:
    """The cache. Concurrent callers wait for the same result. Belongs to the event loop."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._found: dict[Any, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Any, find: Callable[[], Awaitable[_Found]]) -> _Found:
        """Return the cached result for *key*, or call *find*.

        *key* must include the user who may see the result.
        """
        now_s = self._now_s()
        for old in [each for each, (until_s, _) in self._found.items() if until_s <= now_s]:
            del self._found[old]
        if key not in self._found:
            while len(self._found) >= KEPT_MAX:
                del self._found[next(iter(self._found))]
            self._found[key] = (now_s + KEPT_S, start_request(find()))
        task = self._found[key][1]
        try:
            found: _Found = await asyncio.shield(task)
        except BaseException:
            self._found.pop(key, None)
            raise
        return found
