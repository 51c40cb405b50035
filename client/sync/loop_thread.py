"""The one thread of a process in which the synchronous clients have their event loop.

It is begun by the first call and ends with the interpreter, after all clients were closed. A
forked child has none of its parent's threads: it begins its own, and never touches the parent's
loop, whose selector it shares with the parent.
"""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar

from rockhopper.client.errors import ClientError, ClientStateError

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_JOIN_S = 5.0


class Closable(Protocol):
    """A client that is open."""

    closes_last: bool

    def close(self) -> None:
        """Close it."""


class LoopThread:
    """An event loop in a thread of its own, which serves calls from all other threads."""

    def __init__(self) -> None:
        self.open_clients: set[Closable] = set()
        self._loop = asyncio.new_event_loop()
        self._waiting: set[Future[Any]] = set()
        self._exits: dict[Future[Any], BaseException] = {}
        self._thread = threading.Thread(target=self._serve, name="rockhopper-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop; a callback's sys.exit() ends the calls that wait, and not the loop."""
        while True:
            try:
                self._loop.run_forever()
            except BaseException as error:
                waiting = list(self._waiting)
                if not waiting:
                    log.error("%r was raised for a client while nobody waited for it", error)
                for future in waiting:
                    self._exits[future] = error
                    future.cancel()
            else:
                return

    def call(
        self,
        coroutine: Coroutine[Any, Any, _Result],
        *,
        interrupted: Callable[[], object] | None = None,
    ) -> _Result:
        """Run a coroutine there and return what it returns.

        An exception that interrupts the waiting cancels it; or calls `interrupted` there, and waits
        until the coroutine has ended by that: another exception cancels it.

        Raises:
            ClientStateError: asked from that loop itself, which would wait for ever.
            SystemExit: something that runs there has called sys.exit().
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClientStateError(
                "a synchronous client was called in the event loop that serves it: what is a "
                "coroutine function uses the asynchronous clients of rockhopper"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        # An exception of a signal handler leaves a Condition unusable, and a plain lock as it was.
        is_done = threading.Lock()
        is_done.acquire()
        future.add_done_callback(lambda _: is_done.release())
        self._waiting.add(future)
        try:
            _wait(future, is_done)
            return future.result()
        except BaseException as error:
            if isinstance(error, CancelledError) and future in self._exits:
                raise self._exits[future] from None
            if isinstance(error, ClientError):
                raise error.with_traceback(None) from error.__cause__  # without the other thread's
            if interrupted is not None and not future.done():
                self._loop.call_soon_threadsafe(interrupted)
                _wait(future, is_done)
            raise
        finally:
            future.cancel()  # nothing to one that is done
            self._waiting.discard(future)
            self._exits.pop(future, None)

    def look(self, function: Callable[[], _Result]) -> _Result:
        """Call a plain function there."""

        async def called() -> _Result:
            return function()

        return self.call(called())

    def end(self) -> None:
        """Close what is open, then the loop."""
        for client in sorted(self.open_clients, key=lambda each: each.closes_last):
            try:
                client.close()
            except Exception as error:
                log.warning("%r did not close well at exit: %s", client, error)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._loop.close()


def _wait(future: Future[Any], is_done: threading.Lock) -> None:
    """Wait until *future* is done, which releases *is_done* once."""
    if not future.done():
        is_done.acquire()


_lock = threading.RLock()  # a signal handler may meet it in its own thread
_running: LoopThread | None = None
# Kept, for a loop that is collected closes what the parent process still uses.
_of_the_parent: list[LoopThread] = []


def loop_thread() -> LoopThread:
    """Return the loop's thread of this process."""
    global _running
    if _running is not None:
        return _running
    with _lock:
        if _running is None:
            _running = LoopThread()
        return _running


def _end() -> None:
    global _running
    if _running is not None:
        _running.end()
        _running = None


def _after_fork() -> None:
    global _lock, _running
    _lock = threading.RLock()
    if _running is not None:
        _of_the_parent.append(_running)
        _running = None


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
