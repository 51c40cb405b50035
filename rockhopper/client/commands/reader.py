"""Whoever reads our standard output through a pipe: whether it is there, and took what we wrote."""

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
except ImportError:  # Windows: who reads a pipe is seen to have gone at the next write
    fcntl = None  # type: ignore[assignment]

_STDOUT = 1
# A reader that is awake takes what is written within a few turns of the event loop.
_TURNS = 20
_PAUSE_S = 0.001
_PAUSE_S_MAX = 0.05


class OutputReader:
    """The reader of our standard output; files and terminals always take what is written."""

    def __init__(self) -> None:
        mode = os.fstat(_STDOUT).st_mode
        self._is_socket = stat.S_ISSOCK(mode) and fcntl is not None
        self._is_pipe = (stat.S_ISFIFO(mode) and fcntl is not None) or self._is_socket

    async def takes(self, write: Callable[[], None]) -> bool:
        """Write, and wait until nothing is left in the pipe; False when the reader went before."""
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
                return False
            if turns < _TURNS:
                turns += 1
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        return True

    @contextmanager
    def watched(self, gone: Callable[[], None]) -> Iterator[None]:
        """Call `gone` when the reader goes away, also while nothing is written."""
        if not self._is_pipe:
            yield
            return
        loop = asyncio.get_running_loop()

        def looked_at() -> None:
            loop.remove_reader(_STDOUT)
            # A socket may also have something to read, or be closed in that direction alone.
            if self._is_gone():
                gone()

        # There is nothing to read: it becomes ready when the other end goes.
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
        """Return how much lies in the pipe; 0 where the system does not say."""
        count = array.array("i", [0])
        try:
            fcntl.ioctl(_STDOUT, termios.TIOCOUTQ if self._is_socket else termios.FIONREAD, count)
        except OSError:
            return 0
        return count[0]
