"""Calls a decorated function with the parts of a message that its annotations request."""

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from inspect import Parameter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from rockhopper.client.callbacks import check_has_run, check_no_generator, is_coroutine_function
from rockhopper.client.consuming.face.threads import HandlerThreads
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import JSON, Pydantic, Serializer


class TextAsItIs:
    """Wraps a serializer, but sends text unchanged, as a subscriber of `str` expects it."""

    def __init__(self, others: Serializer) -> None:
        self._others = others
        self.type = getattr(others, "type", Any)
        self.name = type(others).__name__

    def encode(self, value: Any) -> bytes:
        is_text = isinstance(value, str) and not isinstance(value, Enum)
        return value.encode() if is_text else self._others.encode(value)

    def decode(self, body: bytes) -> Any:
        return self._others.decode(body)


class Text:
    """Decodes bodies as text."""

    type = str

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, body: bytes) -> str:
        return body.decode()


class ConstrainedText(Text):
    """Decodes bodies as text with the constraints of an Annotated type."""

    def __init__(self, wanted: Any) -> None:
        self._values = Pydantic(wanted) if _needs_pydantic(wanted) else JSON(wanted)
        self.type = wanted

    def decode(self, body: bytes) -> str:
        return self._values.decode(msgspec.json.encode(body.decode()))  # type: ignore[no-any-return]


class HandlerCall:
    """A handler function, its deserializer, and the way to call it with a message."""

    def __init__(self, function: Callable[..., Any], concurrency: int) -> None:
        """Raises TypeError for a function with parameters other than a body and a message."""
        self.function = function
        self.threads = HandlerThreads(concurrency)
        """The threads for a plain function."""
        self._is_coroutine_function = is_coroutine_function(function)
        self._filled: list[tuple[Parameter, bool]] = []
        self.deserializer: Serializer | None = None
        self._takes_bytes = False
        name = getattr(function, "__qualname__", repr(function))
        check_no_generator("subscriber", function)
        hints = get_type_hints(_find_annotated(function), include_extras=True)
        left_alone = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty:
                left_alone.append(parameter.name)  # such as FastAPI's Depends: left alone
            else:
                self._take(name, parameter, hints.get(parameter.name, ReceivedMessage))
        if not 1 <= len(self._filled) <= 2:
            raise TypeError(
                f"the subscriber {name} must take the body, the message (annotated "
                "ReceivedMessage), or both"
                + "".join(f"; {each!r} has a default and is ignored" for each in left_alone)
            )

    def _take(self, function: str, parameter: Parameter, wanted: Any) -> None:
        if not self._filled and parameter.name in ("self", "cls"):
            raise TypeError(
                f"the subscriber {function} is a method, and no object exists yet to call it on: "
                "decorate a function, or subscribe the method of an object, as in "
                "app.subscriber(…)(shop.bill)"
            )
        if not _is_constrained(wanted):
            wanted = get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted
        is_message = wanted is ReceivedMessage
        if is_message in [taken for _, taken in self._filled]:
            raise TypeError(
                f"the subscriber {function} has two parameters for the same argument, the second "
                f"is {parameter.name!r}: annotate one with the type of the body, the other with "
                "ReceivedMessage"
            )
        self._filled.append((parameter, is_message))
        if wanted is bytes:
            self._takes_bytes = True
        elif not is_message:
            self.deserializer = _make_deserializer(wanted)

    async def __call__(self, message: ReceivedMessage) -> Any:
        """Call the function, a plain one in a thread, and await an awaitable result.

        Raises TypeError for a result that cannot be awaited and has not run.
        """
        arguments, named = [], {}
        for parameter, is_message in self._filled:
            given = message if is_message else self._body(message)
            if parameter.kind is Parameter.KEYWORD_ONLY:
                named[parameter.name] = given
            else:
                arguments.append(given)
        if self._is_coroutine_function:
            result = await self.function(*arguments, **named)
        else:
            result = await self.threads.call(self.function, *arguments, **named)
            if inspect.isawaitable(result):  # a plain function that wraps a coroutine function
                result = await result
        check_has_run("subscriber", self.function, result)
        return result

    def _body(self, message: ReceivedMessage) -> Any:
        return message.body if self._takes_bytes else message.value


def _find_annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the annotations, inside partials, decorators and objects."""
    while isinstance(function := inspect.unwrap(function), functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _make_deserializer(wanted: Any) -> Serializer:
    if wanted is str:
        return Text()
    if get_origin(wanted) is Annotated and get_args(wanted)[0] is str:
        return ConstrainedText(wanted)
    return Pydantic(wanted) if _needs_pydantic(wanted) else JSON(wanted)


def _is_constrained(wanted: Any) -> bool:
    """Whether an Annotated type contains a constraint."""
    return any(
        isinstance(each, msgspec.Meta) or _is_of_pydantic(each)
        for each in getattr(wanted, "__metadata__", ())
    )


def _needs_pydantic(wanted: Any) -> bool:
    return (
        hasattr(wanted, "model_validate_json")
        or any(map(_is_of_pydantic, getattr(wanted, "__metadata__", ())))
        or any(map(_needs_pydantic, get_args(wanted)))
    )


def _is_of_pydantic(constraint: object) -> bool:
    """Whether pydantic enforces the constraint: its own, annotated_types', or one with a schema."""
    module = type(constraint).__module__.partition(".")[0]
    return module in ("pydantic", "annotated_types") or hasattr(
        constraint, "__get_pydantic_core_schema__"
    )
