"""All tasks of client and broker start here, so that none ends unnoticed.

    start_task             the caller awaits it, and gets its exception
    run_in_background      not awaited: its failure is logged, and its owner is notified
    keep_running           the same, and it restarts after a failure
    complete_in_thread     a function that blocks: its thread is awaited even by a cancelled caller
    run_apart              application code, in a task and a context of its own
    leave_behind           for code that swallows its cancellation: nothing waits for it any more
    gather_some_at_a_time  for many requests, of which a few run at a time

A task may end because its work is done, or because `end_tasks` has cancelled it. Everything else is
a failure, including a cancellation by other code of the process.
"""

import asyncio
import logging
import traceback
from asyncio.tasks import _unregister_task
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
OnFailure = Callable[[BaseException], object]

AT_A_TIME = 32
_RESTART_PAUSE_S = 1.0
# A program that ends cancels all tasks: if the loop has stopped by then, nothing is reported.
_REPORT_AFTER_S = 0.1
# These end the program: the event loop raises them at once, from any task.
_ENDS_PROGRAM = (SystemExit, KeyboardInterrupt)

_running: set[asyncio.Task[Any]] = set()
_ended: WeakSet[asyncio.Future[Any]] = WeakSet()


class ApplicationCodeError(Exception):
    """Application code raised something that is no Exception, or was cancelled; see the cause."""


def start_task(
    work: Coroutine[Any, Any, _Result], *, name: str | None = None
) -> asyncio.Task[_Result]:
    """Start a task that the caller awaits."""
    return asyncio.get_running_loop().create_task(work, name=name)


def start_request(request: Awaitable[_Result]) -> asyncio.Future[_Result]:
    """Start an awaitable, perhaps a future; the caller awaits it, or gives it up (`let_go`)."""
    return asyncio.ensure_future(request)


def run_in_background(
    work: Coroutine[Any, Any, _Result], what: str, *, on_failure: OnFailure | None = None
) -> asyncio.Task[_Result]:
    """Start a task that is not awaited; `what` names it in the log.

    `on_failure` gets its exception: a CancelledError if other code has cancelled it.
    """
    task = asyncio.get_running_loop().create_task(work, name=what)
    _running.add(task)  # the event loop itself keeps no task alive
    task.add_done_callback(_running.discard)
    task.add_done_callback(lambda done: _report(done, what, on_failure))
    return task


def keep_running(
    work: Callable[[], Coroutine[Any, Any, None]],
    what: str,
    *,
    on_failure: OnFailure | None = None,
    pause_s: float = _RESTART_PAUSE_S,
) -> asyncio.Task[None]:
    """Run `work` in the background, and again after a pause whenever it fails.

    Only a cancellation by other code ends it; `on_failure` then gets the CancelledError.
    """
    return run_in_background(_repeat(work, what, pause_s), what, on_failure=on_failure)


async def complete_in_thread(
    function: Callable[_P, _Result], *args: _P.args, **kwargs: _P.kwargs
) -> _Result:
    """Call `function` in a thread, and return its result.

    If the caller is cancelled, it still waits for the thread. So when its task has ended, the files
    that the thread used can be closed.
    """
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        let_go(running)
        raise


async def run_apart(
    function: Callable[_P, Awaitable[_Result]], *args: _P.args, **kwargs: _P.kwargs
) -> _Result:
    """Call application code, and await it in a task of its own.

    Changes to its task or its context variables do not reach the caller. A CancelledError is raised
    if the caller was cancelled, and only then. But if the code returns despite the cancellation,
    so does this function: a caller that would wait again must check its own `cancelling()`.

    Raises:
        ApplicationCodeError: it raised something that is no Exception, or its task was cancelled.
    """
    caller = asyncio.current_task()
    assert caller is not None
    before = caller.cancelling()
    task = asyncio.get_running_loop().create_task(_settle(function, *args, **kwargs))
    try:
        result, error = await task
    except (asyncio.CancelledError, *_ENDS_PROGRAM) as raised:
        result, error = None, raised
    if error is None:
        return result  # type: ignore[return-value]
    if caller.cancelling() > before:
        raise asyncio.CancelledError from error
    if isinstance(error, Exception):
        raise error
    if isinstance(error, _ENDS_PROGRAM):
        # The loop has raised it, and its runner cancels waiting tasks: the caller is cancelled
        # here.
        await asyncio.sleep(0)
    if isinstance(error, asyncio.CancelledError):
        raise ApplicationCodeError("the task was cancelled, and not by this client") from error
    raise ApplicationCodeError(describe_error(error)) from error


def describe_error(error: BaseException) -> str:
    """Return an error's type and message, even if its `__str__` raises."""
    return "".join(traceback.format_exception_only(error)).strip()


def leave_behind(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Let the program end although some cancelled tasks keep running.

    `asyncio.run` cancels all remaining tasks, and waits for them. It would wait without end for
    these, and for application code that they started with `run_apart`. They run as long as the
    event loop does; asyncio does not log that they are destroyed then.
    """
    settling = _settle.__code__
    for task in (*tasks, *asyncio.all_tasks()):
        code = getattr(task.get_coro(), "cr_code", None)
        if task.cancelling() and (code is settling or task in tasks):
            _unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]


def end_tasks(tasks: Iterable[asyncio.Future[Any] | None]) -> asyncio.Future[list[Any]]:
    """Cancel tasks now; the returned future is done when they have ended, in whatever way.

    If the caller is cancelled while it waits, they are cancelled all the same.
    """
    ending = [task for task in tasks if task is not None]
    for task in ending:
        end_task(task)
    return asyncio.gather(*ending, return_exceptions=True)


def end_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task now, without waiting for it."""
    _ended.add(task)
    task.cancel()


def is_cancelled_alone(awaited: asyncio.Future[Any]) -> bool:
    """Return whether a CancelledError concerns only the awaited future, so the caller continues."""
    caller = asyncio.current_task()
    return awaited.cancelled() and not (caller is not None and caller.cancelling())


def let_go(request: asyncio.Future[Any]) -> None:
    """Stop waiting for a request, whatever its result."""
    if not request.cancel() and not request.cancelled():
        request.exception()  # else asyncio logs that it was never retrieved


async def _settle(
    function: Callable[_P, Awaitable[_Result]], *args: _P.args, **kwargs: _P.kwargs
) -> tuple[_Result | None, BaseException | None]:
    try:
        return await function(*args, **kwargs), None
    except _ENDS_PROGRAM:
        raise
    except BaseException as error:
        return None, error


async def _repeat(work: Callable[[], Coroutine[Any, Any, None]], what: str, pause_s: float) -> None:
    task = asyncio.current_task()
    assert task is not None
    while True:
        try:
            await work()
            return
        except (GeneratorExit, *_ENDS_PROGRAM):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task.cancelling():
                raise
            log.error("%s failed and begins again in %g s", what, pause_s, exc_info=error)
        await asyncio.sleep(pause_s)


def _report(task: asyncio.Task[Any], what: str, on_failure: OnFailure | None) -> None:
    if task.cancelled():
        if task not in _ended and not task.get_loop().is_closed():
            task.get_loop().call_later(_REPORT_AFTER_S, _report_cancelled, task, what, on_failure)
    elif (error := task.exception()) is not None:
        log.error("%s has ended: %r", what, error, exc_info=error)
        if on_failure is not None and task not in _ended:
            on_failure(error)


def _report_cancelled(task: asyncio.Task[Any], what: str, on_failure: OnFailure | None) -> None:
    if task in _ended:
        return
    log.error("%s has ended: other code of this process has cancelled its task", what)
    if on_failure is not None:
        on_failure(asyncio.CancelledError(f"other code of this process has cancelled {what}"))


async def gather_some_at_a_time(
    function: Callable[[_Item], Awaitable[_Result]],
    items: Iterable[_Item],
    at_a_time: int = AT_A_TIME,
) -> list[_Result]:
    """Return the results of many requests in order, with a limit on how many run at a time.

    `function` is called when a request's turn comes: a cancelled caller makes no further ones.
    """
    slots = asyncio.Semaphore(at_a_time)

    async def run(item: _Item) -> _Result:
        async with slots:
            return await function(item)

    return list(await asyncio.gather(*map(run, items)))
