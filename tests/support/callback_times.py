"""Measure how long callbacks block an event loop, in processor time, also on a busy machine."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock


class CallbackTimes:
    """The longest callback so far, and its description."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.what = ""

    def reset(self) -> None:
        """Start again."""
        self.longest_s, self.what = 0.0, ""

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure every callback of every asyncio loop of the calling thread."""
        run: Callable[[asyncio.Handle], None] = asyncio.Handle._run

        def measured_run(handle: asyncio.Handle) -> None:
            begun_s = time.thread_time()
            run(handle)
            took_s = time.thread_time() - begun_s
            if took_s > self.longest_s:
                self.longest_s, self.what = took_s, repr(handle)

        with mock.patch.object(asyncio.Handle, "_run", measured_run):
            yield
