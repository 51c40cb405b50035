"""CooperativeWork: long requests work in slices; each iteration of the loop runs one slice.

However many long requests there are, other work is delayed by one slice at most. Their work in
threads runs one after the other, because each computing thread takes the interpreter from the loop
for as long as the others.
"""

import asyncio
import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

NAMES_PER_PIECE = 4096

_Result = TypeVar("_Result")


class _SliceQueue:
    """The requests that wait for a slice of one loop, and the locks of threads by kind of work."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.threads: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def wait(self) -> asyncio.Future[None]:
        if not self._waiting:
            self._loop.call_soon(self._next)
        future = self._loop.create_future()
        self._waiting.append(future)
        return future

    def _next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                break
        if self._waiting:
            self._loop.call_soon(self._next)


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _SliceQueue] = WeakKeyDictionary()


def _slice_queue() -> _SliceQueue:
    loop = asyncio.get_running_loop()
    found = _of_loop.get(loop)
    if found is None:
        found = _of_loop[loop] = _SliceQueue(loop)
    return found


async def next_slice() -> None:
    """Return in an iteration of the loop in which no other long request runs."""
    await _slice_queue().wait()


class CooperativeWork(Generic[_Result]):
    """Work that any caller can do in steps; at its end it has a ``result``."""

    __slots__ = ("_steps", "is_done", "result")

    result: _Result

    def __init__(self, steps: Generator[None, None, _Result]) -> None:
        self._steps = steps
        self.is_done = False

    def step(self) -> bool:
        """Run one step; return whether the work is done."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.result = end.value
            self.is_done = True
        return self.is_done


def run_at_once(steps: Generator[None, None, _Result]) -> _Result:
    """Run all *steps* at once and return their result; for a few steps."""
    work = CooperativeWork(steps)
    while not work.step():
        pass
    return work.result


async def run_in_slices(
    steps: Generator[None, None, _Result] | CooperativeWork[_Result],
) -> _Result:
    """Run each of *steps* in a slice of its own and return their result."""
    work = steps if isinstance(steps, CooperativeWork) else CooperativeWork(steps)
    while not work.step():
        await next_slice()
    return work.result


async def run_in_thread(kind: str, function: Callable[[], _Result]) -> _Result:
    """Run *function* in a thread, after others of its *kind*, and return its result."""
    slices = _slice_queue()
    async with slices.threads[kind]:
        result = await asyncio.to_thread(function)
    await slices.wait()
    return result


def sort_in_pieces(names: Iterable[str]) -> list[str]:
    """Return *names* sorted, for a thread: one sort of them all would block the loop."""
    left = iter(names)
    pieces = iter(lambda: sorted(islice(left, NAMES_PER_PIECE)), [])
    return list(heapq.merge(*pieces))
