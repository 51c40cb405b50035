"""The thread with the event loop of all synchronous clients of a process.

The first call starts it. It ends with the interpreter, after all clients were closed. A forked
child has none of its parent's threads: it starts its own, and never touches the parent's loop,
because the two processes share its selector.

At exit, the `atexit` functions registered after the import run first, then the clients are closed.
Functions registered before it, such as `logging.shutdown`, run later. For them a producer is opened
again, and the calling thread runs the loop itself, because Python starts no threads by then.

A logging handler may send with a synchronous client while it holds its lock. So nothing is logged
in the loop's thread, which would wait for that lock: another thread logs its records.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar

from rockhopper.client.errors import ClientError, ClientStateError
from rockhopper.tasks import start_task

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_JOIN_S = 5.0
_RECORDS_MAX = 10_000
_SIGNALS_CHECK_S = 1.0


class Closable(Protocol):
    """A client that is open."""

    closes_last: bool

    def close_at_exit(self) -> None:
        """Close the client; it may be opened again."""


class LoopThread:
    """An event loop in its own thread, which serves calls from all other threads."""

    def __init__(self) -> None:
        self.open_clients: set[Closable] = set()
        self.is_inherited = False
        """Whether this process is a forked child and the loop thread is its parent's."""
        self._loop = asyncio.new_event_loop()
        self._waiting: set[Future[Any]] = set()
        self._exits: dict[Future[Any], BaseException] = {}
        self._caller_serves = threading.RLock()
        self._thread: threading.Thread | None = None
        self.log_records = LogRecords()
        if not _is_exiting:
            thread = threading.Thread(target=self._serve, name="rockhopper-sync", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # Python 3.12 starts no thread at exit
                return
            self._thread = thread
            self.log_records.start(thread.ident)

    def _serve(self) -> None:
        """Run the loop; sys.exit() in a callback ends the waiting calls, but not the loop."""
        while True:
            try:
                self._loop.run_forever()
            except BaseException as error:
                waiting = list(self._waiting)
                if not waiting:
                    log.error("%r was raised for a client, and no caller waited for it", error)
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
        """Run a coroutine in the loop and return its result.

        An exception that interrupts the waiting cancels the coroutine. With `interrupted`, it calls
        that function in the loop instead and waits for the coroutine to end; a second exception
        cancels it.

        Raises:
            ClientStateError: called from the loop itself, which would wait forever.
            SystemExit: code in the loop has called sys.exit().
        """
        if self._thread is None:
            with self._caller_serves:
                if not self._loop.is_running():
                    return self._loop.run_until_complete(coroutine)
        if self._is_in_loop():
            coroutine.close()
            raise ClientStateError(
                "a synchronous client was called in the event loop that serves it: in coroutine "
                "functions use the asynchronous clients of rockhopper"
            )
        future: Future[_Result] = Future()
        # An exception in a signal handler breaks a Condition, but not a plain lock.
        is_done = threading.Lock()
        is_done.acquire()
        future.add_done_callback(lambda _: is_done.release())
        self._waiting.add(future)
        try:
            # From here on, an interrupt ends the coroutine.
            self._loop.call_soon_threadsafe(self._begin, coroutine, future)
            _wait(future, is_done)
            return future.result()
        except BaseException as error:
            if isinstance(error, CancelledError) and future in self._exits:
                raise self._exits[future] from None
            if isinstance(error, ClientError):
                raise error.with_traceback(None) from error.__cause__  # omit the loop's traceback
            if interrupted is not None and not future.done():
                self._loop.call_soon_threadsafe(interrupted)
                _wait(future, is_done)
            raise
        finally:
            future.cancel()  # no effect if done
            self._waiting.discard(future)
            self._exits.pop(future, None)

    def _is_in_loop(self) -> bool:
        """Whether the calling thread runs the loop."""
        return self._thread is None or threading.current_thread() is self._thread

    def _begin(self, coroutine: Coroutine[Any, Any, _Result], future: Future[_Result]) -> None:
        """Run a coroutine for a future of another thread; cancelling the future cancels it."""
        if future.cancelled():
            coroutine.close()
            return
        task = start_task(coroutine)

        def settle(task: asyncio.Task[_Result]) -> None:
            if task.cancelled():
                future.cancel()
                return
            error = task.exception()
            if not future.set_running_or_notify_cancel():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def end(future: Future[_Result]) -> None:
            if future.cancelled():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(settle)
        future.add_done_callback(end)

    def look(self, function: Callable[[], _Result]) -> _Result:
        """Call a plain function in the loop."""

        async def run() -> _Result:
            return function()

        return self.call(run())

    def close_all(self) -> None:
        """Close all open clients, then the loop."""
        for client in sorted(self.open_clients, key=lambda each: each.closes_last):
            try:
                client.close_at_exit()
            except Exception as error:
                log.warning("closing %r at exit failed: %s", client, error)
        if self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._loop.close()
        self.log_records.drain(_JOIN_S)


class LogRecords(logging.Filter):
    """Intercepts log records made in the loop's thread, and logs them in another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._records: queue.SimpleQueue[logging.LogRecord | threading.Event] = queue.SimpleQueue()
        self._loop_ident: int | None = None
        self._dropped_count = 0

    def start(self, loop_ident: int | None) -> None:
        """Start the logging thread."""
        self._loop_ident = loop_ident
        threading.Thread(target=self._serve, name="rockhopper-sync-log", daemon=True).start()
        self.watch()

    def watch(self) -> None:
        """Filter asyncio's logger and all current loggers of the client."""
        for name in ("asyncio", *list(logging.root.manager.loggerDict)):
            if name == "asyncio" or name.split(".", 1)[0] == "rockhopper":
                logging.getLogger(name).addFilter(self)  # no effect if added before

    def forget(self) -> None:
        """Stop intercepting in a child: the thread is the parent's, and its id may be reused."""
        self._loop_ident = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Queue a record of the loop's thread for the logging thread; pass all others."""
        if threading.get_ident() != self._loop_ident:
            return True
        if self._records.qsize() < _RECORDS_MAX:
            self._records.put(record)
        else:
            self._dropped_count += 1
        return False

    def drain(self, timeout_s: float) -> None:
        """Wait until all intercepted records are logged."""
        logged = threading.Event()
        self._records.put(logged)
        logged.wait(timeout_s)

    def _serve(self) -> None:
        while True:
            record = self._records.get()
            if isinstance(record, threading.Event):
                self._report_dropped()
                record.set()
                continue
            try:
                logging.getLogger(record.name).handle(record)
            except Exception:  # of a filter or a handler: no caller could catch it
                sys.excepthook(*sys.exc_info())
            if self._records.empty():
                self._report_dropped()

    def _report_dropped(self) -> None:
        if self._dropped_count:
            count, self._dropped_count = self._dropped_count, 0
            log.warning("%d log records were dropped: a logging handler is too slow", count)


def _wait(future: Future[Any], is_done: threading.Lock) -> None:
    """Wait until *future* is done; its callback releases *is_done* once.

    A signal that arrives in the moment before the lock waits does not interrupt it: its handler,
    for Ctrl-C for example, would only run after the next signal.
    """
    if not future.done():
        while not is_done.acquire(timeout=_SIGNALS_CHECK_S):
            pass


_lock = threading.RLock()  # a signal handler may need it in the same thread
_running: LoopThread | None = None
_is_exiting = False
# Referenced forever: collecting a loop would close what the parent process still uses.
_of_the_parent: list[LoopThread] = []


def get_loop_thread() -> LoopThread:
    """Return this process's loop thread."""
    global _running
    if _running is not None:
        return _running
    with _lock:
        if _running is None:
            _running = LoopThread()
        return _running


def _end() -> None:
    global _running, _is_exiting
    with _lock:
        _is_exiting = True
        ended, _running = _running, None
    if ended is not None:
        ended.close_all()


def is_exiting() -> bool:
    """Whether the interpreter is exiting and closes the clients, or has closed them."""
    return _is_exiting


def _after_fork() -> None:
    global _lock, _running
    _lock = threading.RLock()
    if _running is not None:
        _of_the_parent.append(_running)
        _running.log_records.forget()
        _running.is_inherited = True
        _running = None


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
