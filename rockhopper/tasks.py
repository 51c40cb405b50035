"""Every task of client and broker begins here, so that none ends in silence.

    start_task          its maker awaits it, and gets what it raises
    run_in_background   nobody awaits it: how it failed is logged, and its owner hears of it
    keep_running        as before, and it begins again after a failure
    run_apart           application code, in a task and a context of its own
    leave_behind        for code that swallows its cancellation: nothing waits for it any more

A task may end because its work is done, or because `end_tasks` has cancelled it. Everything else is
a failure, a cancellation by other code of the process among it.
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
_Result = TypeVar("_Result")
OnFailure = Callable[[BaseException], object]

_RESTART_PAUSE_S = 1.0
# A program that ends cancels all tasks: a loop that runs no more by then has nothing to report.
_REPORT_AFTER_S = 0.1
# These end the program: the event loop raises them at once, whatever task they come from.
_ENDS_PROGRAM = (SystemExit, KeyboardInterrupt)

_running: set[asyncio.Task[Any]] = set()
_ended: WeakSet[asyncio.Future[Any]] = WeakSet()


class ApplicationCodeError(Exception):
    """Application code raised what is no Exception, or let a cancellation out; the cause says."""


def start_task(
    work: Coroutine[Any, Any, _Result], *, name: str | None = None
) -> asyncio.Task[_Result]:
    """Start a task that its maker awaits."""
    return asyncio.get_running_loop().create_task(work, name=name)


def start_request(request: Awaitable[_Result]) -> asyncio.Future[_Result]:
    """Start what may be a future already; its maker awaits it, or lets it go (`let_go`)."""
    return asyncio.ensure_future(request)


def run_in_background(
    work: Coroutine[Any, Any, _Result], what: str, *, on_failure: OnFailure | None = None
) -> asyncio.Task[_Result]:
    """Start a task that nobody awaits; `what` names it in the log.

    `on_failure` gets what it failed with, a CancelledError if other code has cancelled it.
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

    Only a cancellation by other code ends it: `on_failure` gets that.
    """
    return run_in_background(_repeat(work, what, pause_s), what, on_failure=on_failure)


async def run_apart(
    function: Callable[_P, Awaitable[_Result]], *args: _P.args, **kwargs: _P.kwargs
) -> _Result:
    """Call application code, and await it in a task of its own.

    What it leaves in its task or its context variables reaches nothing else. A CancelledError comes
    out only when the caller was cancelled, and always then, unless the code returns all the same:
    a caller that would wait again looks at its `cancelling()`.

    Raises:
        ApplicationCodeError: it raised what is no Exception, or its task was cancelled.
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
        # The loop has raised it, and who runs the loop cancels what waits: the caller hears of it.
        await asyncio.sleep(0)
    if isinstance(error, asyncio.CancelledError):
        raise ApplicationCodeError("the task was cancelled, and not by this client") from error
    raise ApplicationCodeError(describe_error(error)) from error


def describe_error(error: BaseException) -> str:
    """Its type and what it says, even if its `__str__` raises."""
    return "".join(traceback.format_exception_only(error)).strip()


def leave_behind(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Let the program end without tasks that go on though they were cancelled.

    `asyncio.run` cancels whatever is left, and waits for it; these, and the application code that
    they run apart, it would wait for without end. They go on as long as the event loop does.
    """
    settling = _settle.__code__
    for task in (*tasks, *asyncio.all_tasks()):
        code = getattr(task.get_coro(), "cr_code", None)
        if task.cancelling() and (code is settling or task in tasks):
            _unregister_task(task)


def end_tasks(tasks: Iterable[asyncio.Future[Any] | None]) -> asyncio.Future[list[Any]]:
    """Cancel tasks now; the future is done when they have ended, however they did.

    A caller that is cancelled while waiting for it has cancelled them all the same.
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
    """Whether a CancelledError means what was awaited, and not the caller, which goes on."""
    caller = asyncio.current_task()
    return awaited.cancelled() and not (caller is not None and caller.cancelling())


def let_go(request: asyncio.Future[Any]) -> None:
    """Give up waiting for a request, whatever becomes of it."""
    if not request.cancel() and not request.cancelled():
        request.exception()  # else asyncio tells that nobody looked at it


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
