"""Part: a component with the broker's life cycle; Parts: all of them, in the order of building.

Each part is registered where it is built, so it follows those that it uses: parts start in this
order and stop in the reverse one. A part that acts on what every other keeps, such as the delivery
of delayed messages, is registered as one of the last: it starts behind parts that are built later,
and stops before them.

    open      read the data on disk, and finish interrupted work; no client is served yet
    start     begin to act on its own
    expire    drop silent clients and abandoned state; called every few seconds
    purge     forget everything, for the next test
    stop      act no more, and answer waiting clients; begun work may still be queried
    close     save, and release files and connections
    abandon   instead of close if the start failed: release them and save nothing
"""

import contextlib
from collections.abc import Awaitable, Iterator
from typing import TypeVar


class Part:
    """One part; it overrides the steps that it needs."""

    __slots__ = ()

    def open(self) -> Awaitable[None] | None:
        """Read the data on disk. Raises StoreError, OSError."""

    def start(self) -> None:
        """Begin to act; needs a running event loop."""

    def expire(self) -> None:
        """Drop expired state."""

    def purge(self) -> None:
        """Return to the initial state. Raises StoreError, OSError."""

    def stop(self) -> None:
        """Act no more."""

    def close(self) -> Awaitable[None] | None:
        """Save everything. Raises OSError."""

    def abandon(self) -> Awaitable[None] | None:
        """Release everything, because ``open`` failed or was not called, for this or another part.

        A part that saves its state on close must not do so here: it has not read all of it.
        """
        return self.close()


AnyPart = TypeVar("AnyPart", bound=Part)


class Parts:
    """The parts of one broker."""

    def __init__(self) -> None:
        self._first: list[Part] = []
        self._last: list[Part] = []
        self._has_begun = False

    def __iter__(self) -> Iterator[Part]:
        """Iterate over them in the order in which they open and start."""
        return iter([*self._first, *self._last])

    def register(self, part: AnyPart) -> AnyPart:
        """Append a part that was just built, and return it."""
        self._first.append(part)
        return part

    def register_last(self, part: AnyPart) -> AnyPart:
        """Append a part that follows all of ``register``, also later ones, and return it."""
        self._last.append(part)
        return part

    async def open(self) -> None:
        """Open each. Raises StoreError, OSError; then later parts are not opened."""
        for part in self:
            await _await_work(part.open())

    def start(self) -> None:
        """Start each."""
        for part in self:
            part.start()
        self._has_begun = True

    def expire(self) -> None:
        """Let each drop expired state."""
        for part in self:
            part.expire()

    def purge(self) -> None:
        """Return each to its initial state. Raises StoreError, OSError."""
        for part in self:
            part.purge()

    def stop(self) -> None:
        """Stop all, the last first; an error is raised after all were called."""
        with contextlib.ExitStack() as stack:
            for part in self:
                stack.callback(part.stop)

    async def close(self) -> None:
        """Close all, the last first; an error is raised after all were called.

        Nothing is saved unless all were started: a rejected start changes nothing.
        """
        async with contextlib.AsyncExitStack() as stack:
            for part in self:
                stack.push_async_callback(_close if self._has_begun else _abandon, part)


async def _close(part: Part) -> None:
    await _await_work(part.close())


async def _abandon(part: Part) -> None:
    await _await_work(part.abandon())


async def _await_work(work: Awaitable[None] | None) -> None:
    if work is not None:
        await work
