"""Checks arguments of applications, with errors that name the argument."""

import difflib
import functools
import inspect
import math
from collections.abc import Callable
from numbers import Integral
from typing import Any, Concatenate, ParamSpec, TypeVar

from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.message import Message

_P = ParamSpec("_P")
_Result = TypeVar("_Result")


def takes(
    model: Callable[_P, Any],
) -> Callable[[Callable[..., _Result]], Callable[Concatenate[Any, _P], _Result]]:
    """Give a method, declared with *args and **kwargs, the parameters of the class `model`.

    Editors, type checkers, `inspect` and `help` show those. Other arguments raise a TypeError,
    which names the parameter that is most like an unknown name.
    """

    def decorate(
        method: Callable[..., _Result],
    ) -> Callable[Concatenate[Any, _P], _Result]:
        names = method.__qualname__.removesuffix(".__init__")

        @functools.wraps(method)
        def checked(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
            _check_parameters(names, model, args, kwargs)
            return method(self, *args, **kwargs)

        vars(checked)["__wrapped__"] = model.__init__
        return checked

    return decorate


def _check_parameters(
    what: str, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signature = inspect.signature(model)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = next((name for name in kwargs if name not in signature.parameters), None)
        if unknown is None:
            raise TypeError(f"{what}: {error}") from None
        near = difflib.get_close_matches(unknown, signature.parameters, 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"{what} has no parameter {unknown!r}{hint}") from None


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise TypeError unless `value` is a whole number, ValueError if it is below `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}: it must be a whole number")
    if value < least:
        raise ValueError(f"{name} is {value}: it must be at least {least}")


def check_seconds(
    name: str, value: object, *, may_be_zero: bool = False, is_finite: bool = False
) -> None:
    """Raise TypeError unless `value` is a number, ValueError if it is too small or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: it must be a number of seconds")
    if not (value >= 0 if may_be_zero else value > 0):
        bound = "0 or above" if may_be_zero else "above 0"
        raise ValueError(f"{name} is {value} s: it must be {bound}")
    if is_finite and value == math.inf:
        raise ValueError(f"{name} is {value} s: it must be finite")


def check_queue(queue: object) -> None:
    """Raise TypeError unless `queue` is a MessageQueue with a number."""
    if not isinstance(queue, MessageQueue) or not isinstance(queue.queue_id, Integral):
        raise TypeError(
            f"queue is {queue!r}: it must be a MessageQueue, as from `await client.queues(topic)`"
        )


def check_send_options(queue: object, timeout_s: object) -> None:
    """Raise TypeError, ValueError for a wrong `queue` or `timeout_s` of a send."""
    if isinstance(queue, MessageQueue):
        check_queue(queue)
    elif queue is not None and (isinstance(queue, bool) or not isinstance(queue, Integral)):
        raise TypeError(f"queue is {queue!r}: it must be a queue's number or a MessageQueue")
    if timeout_s is not None:
        check_seconds("timeout_s", timeout_s, may_be_zero=True)


def check_message(message: object) -> None:
    """Raise TypeError unless `message` is a Message."""
    if not isinstance(message, Message):
        raise TypeError(
            f"pass a Message, not {type(message).__name__}: Message(topic, body) creates one"
        )
