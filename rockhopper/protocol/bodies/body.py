"""What the JSON bodies have in common: tolerant reading, exact writing.

A body is a ``msgspec.Struct`` whose fields carry RocketMQ's names in camel case. Reading ignores
unknown keys, takes null for absent and text for numbers, and needs nothing that it can do without.
Writing gives fastjson's form: compact, keys in alphabetical order, fields that are None left out.
"""

from typing import Any, TypeVar

import msgspec

from rockhopper.protocol import fastjson
from rockhopper.protocol.errors import MalformedBodyError
from rockhopper.protocol.fastjson import MessageQueueKey

_Body = TypeVar("_Body", bound="Body")


class Body(msgspec.Struct, rename="camel"):
    """The body of a request or an answer, or a part of one."""

    @classmethod
    def decode(cls: type[_Body], data: bytes | str) -> _Body:
        """The body that *data* is.

        Raises:
            MalformedBodyError: *data* is not JSON, or not of this shape.
        """
        return cls.from_json(fastjson.loads(data))

    @classmethod
    def from_json(cls: type[_Body], value: Any) -> _Body:
        """The body that a decoded JSON value is. Raises MalformedBodyError."""
        return convert(value, cls)

    def encode(self) -> bytes:
        """The JSON of this body, as fastjson writes it."""
        return fastjson.dumps(self).encode("utf-8", "replace")


_Value = TypeVar("_Value")


def convert(value: Any, kind: type[_Value]) -> _Value:
    """A decoded JSON value as *kind*. Raises MalformedBodyError."""
    try:
        return msgspec.convert(_without_nulls(value), kind, strict=False, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        name = getattr(kind, "__name__", str(kind))
        raise MalformedBodyError(f"the body is not a {name}: {error}") from None


def _without_nulls(value: Any) -> Any:
    """*value* without the fields that are null: fastjson does not tell them from absent ones."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is MessageQueueKey:
        return MessageQueueKey.parse(value)
    raise NotImplementedError(f"{kind} is no part of a body")
