"""Part: what begins, acts and ends with a broker; Parts: all of them, in the order of building.

Each stands behind those that it uses, so they begin in this order and end in the reverse one.

    open      read what it keeps on disk, and finish what was cut off; nobody is served yet
    start     begin to act by itself
    expire    forget who has gone silent and what nobody came back for; every few seconds
    purge     forget everything, for the next test
    stop      act no more, and answer who waits; what was begun may still be asked for
    close     save, and let go of files and connections
    abandon   instead of close when the start failed: let go of them and save nothing
"""

import contextlib
from collections.abc import Awaitable


class Part:
    """One part; it leaves out what it has no need of."""

    __slots__ = ()

    def open(self) -> Awaitable[None] | None:
        """Read what is kept on disk. Raises StoreError, OSError."""

    def start(self) -> None:
        """Begin to act; needs a running event loop."""

    def expire(self) -> None:
        """Forget what has become too old."""

    def purge(self) -> None:
        """Be as if new. Raises StoreError, OSError."""

    def stop(self) -> None:
        """Act no more."""

    def close(self) -> Awaitable[None] | None:
        """Save everything. Raises OSError."""

    def abandon(self) -> Awaitable[None] | None:
        """Let go of everything; ``open`` failed or never was, or another part's did.

        A part that saves what it holds must not do so here: it has not read all of it.
        """
        return self.close()


class Parts:
    """The parts of one broker."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts
        self._has_begun = False

    async def open(self) -> None:
        """Open each. Raises StoreError, OSError; those behind it are not opened then."""
        for part in self._parts:
            await _done(part.open())

    def start(self) -> None:
        """Start each."""
        for part in self._parts:
            part.start()
        self._has_begun = True

    def expire(self) -> None:
        """Have each forget what has become too old."""
        for part in self._parts:
            part.expire()

    def purge(self) -> None:
        """Have each be as if new. Raises StoreError, OSError."""
        for part in self._parts:
            part.purge()

    def stop(self) -> None:
        """Stop all, the last first; what one raises is raised when all were asked."""
        with contextlib.ExitStack() as stack:
            for part in self._parts:
                stack.callback(part.stop)

    async def close(self) -> None:
        """Close all, the last first; what one raises is raised when all were asked.

        Nothing is saved if they never all began: a start that refused changes nothing.
        """
        async with contextlib.AsyncExitStack() as stack:
            for part in self._parts:
                stack.push_async_callback(_close if self._has_begun else _abandon, part)


async def _close(part: Part) -> None:
    await _done(part.close())


async def _abandon(part: Part) -> None:
    await _done(part.abandon())


async def _done(work: Awaitable[None] | None) -> None:
    if work is not None:
        await work
