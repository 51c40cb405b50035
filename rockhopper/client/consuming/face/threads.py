"""Threads that call plain handlers, and that nothing waits for when a process ends.

The interpreter joins those of concurrent.futures when it exits: a handler that does not return
would keep a process that has waited for `close_timeout_s`, or was interrupted twice.
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
    """The threads of one consumer, begun as they are needed; `call` belongs to its event loop."""

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
        """Call it in a thread, with the context variables of the caller.

        When all are busy the call waits. A cancelled one that has begun goes on.
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

    def end(self) -> None:
        """Let the threads end after what they have; a call later begins others."""
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
        del call, outcome, function  # while it waits it keeps no message
        idle.release()


def _as_failure(error: BaseException) -> Exception:
    """What a future can hold: neither what ends an event loop or a task, nor a StopIteration."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | CancelledError):
        return error
    failure = ApplicationCodeError(f"the handler raised {describe_error(error)}")
    failure.__cause__ = error
    return failure
