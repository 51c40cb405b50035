"""Watchdog: a round that hangs ends the run with the stack of every task, not with silence."""

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from typing import Self

from tests.support.hang import HANG_S

LIMIT_S = 2 * HANG_S
"""More than any one wait of a round may take."""
EXIT_CODE = 3


class Watchdog:
    """A thread that ends the process unless it is told of an outcome every so often."""

    def __init__(
        self, what: str, limit_s: float = LIMIT_S, end: Callable[[int], object] = os._exit
    ) -> None:
        self._what = what
        self._limit_s = limit_s
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._fed = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._fed.set()
        self._thread.join()

    def reset(self) -> None:
        """There was an outcome: the time begins anew."""
        self._fed.set()

    def _watch(self) -> None:
        while not self._is_over:
            if not self._fed.wait(self._limit_s):
                print(f"{self._what} hangs for {self._limit_s:g} s:", file=sys.stderr)
                for task in asyncio.all_tasks(self._loop):
                    task.print_stack(file=sys.stderr)
                faulthandler.dump_traceback(file=sys.stderr)
                self._end(EXIT_CODE)
                return
            self._fed.clear()
