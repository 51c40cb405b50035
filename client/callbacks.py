"""What applications hand over to be called: refused at once where it could only fail later."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


def check_coroutine_function(kind: str, function: object) -> None:
    """Raise TypeError unless `function` is written with `async def`; `kind` names it."""
    call = type(function).__call__  # an object may be one too; its class is none
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)):
        raise TypeError(
            f"the {kind} {function!r} is not a coroutine function: write it with `async def`, and "
            "call what blocks with asyncio.to_thread"
        )


def plain_function(kind: str, function: Callable[_P, _Answer]) -> Callable[_P, _Answer]:
    """`function`, raising TypeError for what is a coroutine function, or answers with a coroutine.

    A decorator may hide which of them it is until the call.
    """
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise TypeError(
            f"the {kind} {function!r} is no plain function: coroutine functions are for the "
            "clients of rockhopper"
        )

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        answer = function(*args, **kwargs)
        if inspect.isawaitable(answer):
            raise TypeError(
                f"the {kind} {function!r} returned {answer!r}, which nobody awaits: coroutine "
                "functions are for the clients of rockhopper"
            )
        return answer

    return called
