"""Detects whether the process that reads standard output through a pipe exists and keeps up."""

import array
import asyncio
import os
import select
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rockhopper.client.commands.output import flush

try:
    import fcntl
    import termios
except ImportError:  # Windows: a closed pipe is noticed at the next write
    fcntl = None  # type: ignore[assignment]

_STDOUT = 1
# A running reader takes the written data within a few iterations of the event loop.
_TURNS = 20
_PAUSE_S = 0.001
_PAUSE_S_MAX = 0.05


class OutputReader:
    """The reader of standard output; files and terminals accept every write."""

    def __init__(self) -> None:
        mode = os.fstat(_STDOUT).st_mode
        self._is_socket = stat.S_ISSOCK(mode) and fcntl is not None
        self._is_pipe = (stat.S_ISFIFO(mode) and fcntl is not None) or self._is_socket

    async def takes(self, write: Callable[[], None]) -> bool:
        """Write, and wait until the pipe is empty; return False if the reader went away before."""
        try:
            write()
            flush()
        except BrokenPipeError:
            return False
        if not self._is_pipe:
            return True
        turns, pause_s = 0, _PAUSE_S
        while self._unread_bytes():
            if self._is_gone():
                return not self._unread_bytes()  # it may have read the rest just before
            if turns < _TURNS:
                turns += 1
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        return True

    @contextmanager
    def watched(self, gone: Callable[[], None]) -> Iterator[None]:
        """Call `gone` when the reader goes away, even while nothing is written."""
        if not self._is_pipe:
            yield
            return
        loop = asyncio.get_running_loop()

        def looked_at() -> None:
            loop.remove_reader(_STDOUT)
            # A socket may be readable, or half closed, while its reader still exists.
            if self._is_gone():
                gone()

        # Standard output has nothing to read, so it becomes ready only when the reader goes away.
        loop.add_reader(_STDOUT, looked_at)
        try:
            yield
        finally:
            loop.remove_reader(_STDOUT)

    def _is_gone(self) -> bool:
        poll = select.poll()
        poll.register(_STDOUT, 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))

    def _unread_bytes(self) -> int:
        """Return how many bytes are in the pipe; 0 if the system does not report it."""
        count = array.array("i", [0])
        try:
            fcntl.ioctl(_STDOUT, termios.TIOCOUTQ if self._is_socket else termios.FIONREAD, count)
        except OSError:
            return 0
        return count[0]
