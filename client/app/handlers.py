"""What a decorated function wants of a message, by the annotations of its parameters."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_args, get_type_hints

from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import JSON, Pydantic, Serializer


class Text:
    """Bodies as text."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, body: bytes) -> str:
        return body.decode()


class HandlerCall:
    """A function, the deserializer that fits it, and how it is called with a message."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises TypeError for a function that takes something else than a body and a message."""
        self.function = function
        self._wants_message: list[bool] = []
        self.deserializer: Serializer | None = None
        self._takes_bytes = False
        name = getattr(function, "__qualname__", repr(function))
        hints = get_type_hints(function)
        left_alone = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty:
                left_alone.append(parameter.name)  # as FastAPI's Depends: not ours to fill in
            else:
                self._take(name, parameter.name, hints.get(parameter.name, ReceivedMessage))
        if not 1 <= len(self._wants_message) <= 2:
            raise TypeError(
                f"the subscriber {name} must take the body, the message (annotated "
                "ReceivedMessage), or both"
                + "".join(f"; {each!r} has a default, and is left alone" for each in left_alone)
            )

    def _take(self, function: str, name: str, wanted: Any) -> None:
        is_message = wanted is ReceivedMessage
        if is_message in self._wants_message:
            raise TypeError(
                f"the subscriber {function} has two parameters for the same thing, the "
                f"second is {name!r}: annotate one with the type of the body, one ReceivedMessage"
            )
        self._wants_message.append(is_message)
        if wanted is bytes:
            self._takes_bytes = True
        elif not is_message:
            self.deserializer = _deserializer(wanted)

    async def __call__(self, message: ReceivedMessage) -> Any:
        """Call the function, in a thread if it is a plain one."""
        arguments = [
            message if is_message else message.body if self._takes_bytes else message.value
            for is_message in self._wants_message
        ]
        if inspect.iscoroutinefunction(self.function):
            result: Awaitable[Any] = self.function(*arguments)
            return await result
        return await asyncio.to_thread(self.function, *arguments)


def _deserializer(wanted: Any) -> Serializer:
    if wanted is str:
        return Text()
    return Pydantic(wanted) if _has_model(wanted) else JSON(wanted)


def _has_model(wanted: Any) -> bool:
    return hasattr(wanted, "model_validate_json") or any(map(_has_model, get_args(wanted)))
