"""Daemon threads that run plain handlers; a process can exit without joining them.

At exit the interpreter joins the threads of concurrent.futures. A handler that never returns would
therefore keep a process alive after `close_timeout_s`, or after a second Ctrl-C.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from rockhopper.tasks import ApplicationCodeError, describe_error

_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class HandlerThreads:
    """The handler threads of one consumer, started on demand. Use `call` only on its event loop."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._forget()

    def _forget(self) -> None:
        self._count = 0
        self._calls: _Calls = SimpleQueue()
        self._idle = threading.Semaphore(0)

    async def call(
        self, function: Callable[_P, _Result], *args: _P.args, **kwargs: _P.kwargs
    ) -> _Result:
        """Call a function in a thread, with the context variables of the caller.

        The call waits while all threads are busy. Cancelling does not stop a function that has
        begun.
        """
        outcome: Future[_Result] = Future()
        in_context = partial(copy_context().run, function, *args, **kwargs)
        self._calls.put((outcome, in_context))
        if not self._idle.acquire(blocking=False) and self._count < self._count_max:
            self._count += 1
            threading.Thread(
                target=_serve,
                args=(self._calls, self._idle),
                name=f"rockhopper-handler-{self._count}",
                daemon=True,
            ).start()
        return await asyncio.wrap_future(outcome)

    def stop(self) -> None:
        """End the threads after their queued calls; a later call starts new threads."""
        calls, count = self._calls, self._count
        self._forget()
        for _ in range(count):
            calls.put(None)


def _serve(calls: _Calls, idle: threading.Semaphore) -> None:
    while (call := calls.get()) is not None:
        outcome, function = call
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(_as_failure(error))
        del call, outcome, function  # an idle thread must not keep a message alive
        idle.release()


def _as_failure(error: BaseException) -> Exception:
    """Return an exception that a future accepts.

    CancelledError, StopIteration and exceptions that would end the event loop (SystemExit,
    KeyboardInterrupt) are wrapped in ApplicationCodeError.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration | CancelledError):
        return error
    failure = ApplicationCodeError(f"the handler raised {describe_error(error)}")
    failure.__cause__ = error
    return failure
