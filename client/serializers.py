"""What makes bodies of values, and values of bodies: JSON, msgpack, pydantic's models.

Any object with `encode` and `decode` will do. A type makes decoding strict: a body that does not
fit is an error that says where.
"""

from typing import Any, Literal, Protocol

import msgspec

from rockhopper.client.errors import BodyError, MessageRejectedError

BadBody = Literal["retry", "dead-letter", "skip"]
"""What becomes of a message whose body cannot be decoded: that of one whose handler failed; the
dead letters, at once; or nothing."""

BAD_BODIES: tuple[str, ...] = ("retry", "dead-letter", "skip")


class Serializer(Protocol):
    """Both directions; a consumer needs `decode` alone, a producer `encode`."""

    def encode(self, value: Any) -> bytes:
        """The body for a value; whatever it raises, nothing is sent."""

    def decode(self, body: bytes) -> Any:
        """The value of a body; whatever it raises makes the body a bad one."""


class JSON:
    """Dicts, lists, dataclasses, TypedDicts, msgspec's Structs, datetimes … as JSON.

    What JSON does not have becomes what it has: sets and tuples are lists, NaN and infinity null.
    """

    def __init__(self, type: Any = Any) -> None:
        """With `type` a body has to fit it, and is decoded as one."""
        self._decoder = msgspec.json.Decoder(type)

    def encode(self, value: Any) -> bytes:
        """See Serializer."""
        return msgspec.json.encode(value)

    def decode(self, body: bytes) -> Any:
        """See Serializer."""
        return self._decoder.decode(body)


class MsgPack:
    """The same values as msgpack: smaller, and with bytes."""

    def __init__(self, type: Any = Any) -> None:
        """With `type` a body has to fit it, and is decoded as one."""
        self._decoder = msgspec.msgpack.Decoder(type)

    def encode(self, value: Any) -> bytes:
        """See Serializer."""
        return msgspec.msgpack.encode(value)

    def decode(self, body: bytes) -> Any:
        """See Serializer."""
        return self._decoder.decode(body)


class Pydantic:
    """A model of pydantic, or any type that it validates, as JSON; needs the extra [pydantic]."""

    def __init__(self, type: Any) -> None:
        """Raises ImportError where pydantic is not installed."""
        try:
            from pydantic import TypeAdapter
        except ImportError as error:
            raise ImportError(
                "Pydantic(…) needs pydantic: pip install 'rockhopper-mq[pydantic]'"
            ) from error
        self._adapter = TypeAdapter(type)

    def encode(self, value: Any) -> bytes:
        """See Serializer."""
        return self._adapter.dump_json(value)

    def decode(self, body: bytes) -> Any:
        """See Serializer."""
        return self._adapter.validate_json(body)


def check_serializer(name: str, serializer: Serializer | None, method: str) -> None:
    """Raise TypeError for what has no such method, or is a class in place of an object of it."""
    if serializer is None:
        return
    if isinstance(serializer, type) or not callable(getattr(serializer, method, None)):
        raise TypeError(
            f"{name} is {serializer!r}: give an object with `{method}`, as in {name}=JSON()"
        )


def encoded(serializer: Serializer | None, value: object) -> bytes | str:
    """The body for what was given to a send. Raises MessageRejectedError, TypeError."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if serializer is None:
        if isinstance(value, str):
            return value
        raise TypeError(
            f"a body is bytes or text, not {type(value).__name__}: give the Producer a serializer, "
            "as in Producer(serializer=JSON())"
        )
    try:
        return serializer.encode(value)
    except Exception as error:
        raise MessageRejectedError(
            f"a body cannot be made of a {type(value).__name__} by {_name(serializer)}: {error}"
        ) from error


def decoded(serializer: Serializer, body: bytes, what: str) -> Any:
    """The value of a body. Raises BodyError."""
    try:
        return serializer.decode(body)
    except Exception as error:
        raise BodyError(f"the body of {what} is no {_name(serializer)}: {error}") from error


def _name(serializer: Serializer) -> str:
    return type(serializer).__name__
