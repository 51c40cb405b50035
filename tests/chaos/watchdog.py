"""Watchdog: a round that hangs ends the run with the stacks of all tasks, not with silence."""

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from typing import Self

from tests.support.hang import HANG_S

LIMIT_S = 2 * HANG_S
"""Longer than any single wait of a round."""
EXIT_CODE = 3


class Watchdog:
    """Ends the process unless an outcome is reported, or it is closed, within the limit."""

    def __init__(
        self, what: str, limit_s: float = LIMIT_S, end: Callable[[int], object] = os._exit
    ) -> None:
        self._what = what
        self._limit_s = limit_s
        self._end = end

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()

    def reset(self) -> None:
        """Restart the time, because there was an outcome."""
        self._timer.cancel()
        self._start()

    def _start(self) -> None:
        self._timer = threading.Timer(self._limit_s, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def _give_up(self) -> None:
        print(f"{self._what} hangs for {self._limit_s:g} s:", file=sys.stderr)
        for task in asyncio.all_tasks(self._loop):
            task.print_stack(file=sys.stderr)
        faulthandler.dump_traceback(file=sys.stderr)
        self._end(EXIT_CODE)
