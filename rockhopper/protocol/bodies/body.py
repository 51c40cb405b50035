"""The base of the JSON bodies: tolerant reading, exact writing.

A body is a ``msgspec.Struct`` whose fields have RocketMQ's names in camel case. The reader ignores
unknown keys, treats null as absent, accepts text for numbers, and requires only fields without a
sensible default. The writer uses fastjson's format: compact, keys in alphabetical order, None
fields omitted.
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
        """Decode a body.

        Raises:
            MalformedBodyError: *data* is not JSON, or does not have this structure.
        """
        return cls.from_json(fastjson.loads(data))

    @classmethod
    def from_json(cls: type[_Body], value: Any) -> _Body:
        """Convert a decoded JSON value to a body. Raises MalformedBodyError."""
        return convert(value, cls)

    def encode(self) -> bytes:
        """Encode this body as JSON, as fastjson does."""
        return fastjson.dumps(self).encode("utf-8", "replace")


_Value = TypeVar("_Value")


def convert(value: Any, kind: type[_Value]) -> _Value:
    """Convert a decoded JSON value to *kind*. Raises MalformedBodyError."""
    try:
        return msgspec.convert(_drop_nulls(value), kind, strict=False, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        name = getattr(kind, "__name__", str(kind))
        raise MalformedBodyError(f"the body is not a {name}: {error}") from None


def _drop_nulls(value: Any) -> Any:
    """Return *value* without null fields: fastjson treats them as absent."""
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    return value


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is MessageQueueKey:
        return MessageQueueKey.parse(value)
    raise NotImplementedError(f"{kind} cannot be part of a body")
