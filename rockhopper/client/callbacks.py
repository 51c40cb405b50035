"""Checks functions that applications pass as callbacks, so that mistakes are reported early."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


def is_coroutine_function(function: object) -> bool:
    """Whether it is an `async def` function, or an object whose `__call__` is one."""
    return _is_written(inspect.iscoroutinefunction, function)


def check_coroutine_function(kind: str, function: object) -> None:
    """Raise TypeError unless `function` is an `async def` function; `kind` describes it."""
    if not is_coroutine_function(function):
        raise TypeError(
            f"the {kind} {function!r} is not a coroutine function: write it with `async def`, "
            "and call blocking code with asyncio.to_thread"
        )


def check_no_generator(kind: str, function: object) -> None:
    """Raise TypeError for a function with `yield`, because calling it would run no code."""
    tests = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(_is_written(test, function) for test in tests):
        raise TypeError(
            f"the {kind} {function!r} has a `yield`, so a call would not run it; use return"
        )


def check_has_run(kind: str, function: object, answer: object) -> None:
    """Raise TypeError if a call only returned an object that still has to be run."""
    if inspect.iscoroutine(answer):
        answer.close()  # avoids Python's own warning
    elif asyncio.isfuture(answer) or not (
        inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer)
    ):
        return
    raise TypeError(f"the {kind} {function!r} returned {answer!r}, which is never awaited")


def make_plain_function(kind: str, function: Callable[_P, _Answer]) -> Callable[_P, _Answer]:
    """Return `function`, wrapped to raise TypeError if it returns a coroutine.

    Raises TypeError at once for a coroutine function, unless a decorator hides that until the call.
    """
    if not callable(function) or is_coroutine_function(function):
        raise TypeError(
            f"the {kind} {function!r} is a coroutine function: use it with the asynchronous "
            "clients of rockhopper"
        )
    check_no_generator(kind, function)

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        answer = function(*args, **kwargs)
        check_has_run(kind, function, answer)
        return answer

    return run


def _is_written(test: Callable[[object], bool], function: object) -> bool:
    return test(function) or test(type(function).__call__)  # covers objects with __call__
