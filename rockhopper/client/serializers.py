"""Serializers convert values to bodies and back: JSON, msgpack, pydantic's models.

Any object with `encode` and `decode` works. With a type, decoding is strict: a body that does not
match raises an error that names the position.
"""

import math
import re
from typing import Any, Literal, Protocol

import msgspec

from rockhopper.client.errors import BodyError, MessageRejectedError
from rockhopper.tasks import describe_error

BadBody = Literal["retry", "dead-letter", "skip"]
"""What happens to a message whose body cannot be decoded.

"retry" treats it like one whose handler failed, "dead-letter" moves it to the dead letters at once,
"skip" ignores it.
"""

BAD_BODIES: tuple[str, ...] = ("retry", "dead-letter", "skip")


class Serializer(Protocol):
    """Encodes and decodes bodies; a consumer needs only `decode`, a producer only `encode`."""

    def encode(self, value: Any) -> bytes:
        """Return the body for a value; if it raises, nothing is sent."""

    def decode(self, body: bytes) -> Any:
        """Return the value of a body; if it raises, the body is invalid."""


class JSON:
    """Dicts, lists, dataclasses, TypedDicts, msgspec Structs, datetimes … as JSON.

    Sets and tuples become lists, and pydantic models their JSON form; NaN and infinity are refused.
    """

    def __init__(self, type: Any = Any) -> None:
        """With `type`, values must match it when sent, and bodies are decoded as it."""
        self.type = type
        self._decoder = msgspec.json.Decoder(type)

    def encode(self, value: Any) -> bytes:
        """See Serializer."""
        body = msgspec.json.encode(value, enc_hook=_fields_of_model)
        if b"null" in body:
            _check_finite(msgspec.to_builtins(value, enc_hook=_fields_of_model))
        if self.type is not Any:
            self._decoder.decode(body)
        return body

    def decode(self, body: bytes) -> Any:
        """See Serializer."""
        return self._decoder.decode(body)


class MsgPack:
    """The same values as msgpack: smaller, with bytes, NaN and infinity, without models."""

    def __init__(self, type: Any = Any) -> None:
        """With `type`, values must match it when sent, and bodies are decoded as it."""
        self.type = type
        self._decoder = msgspec.msgpack.Decoder(type)

    def encode(self, value: Any) -> bytes:
        """See Serializer."""
        body = msgspec.msgpack.encode(value)
        if self.type is not Any:
            self._decoder.decode(body)
        return body

    def decode(self, body: bytes) -> Any:
        """See Serializer."""
        return self._decoder.decode(body)


class Pydantic:
    """A pydantic model, or any type that pydantic validates, as JSON; needs [pydantic]."""

    def __init__(self, type: Any) -> None:
        """Raises ImportError if pydantic is not installed."""
        try:
            from pydantic import TypeAdapter
        except ImportError as error:
            raise ImportError(
                "Pydantic(…) needs pydantic: pip install 'rockhopper-mq[pydantic]'"
            ) from error
        self.type = type
        self._adapter = TypeAdapter(type)

    def encode(self, value: Any) -> bytes:
        """See Serializer."""
        valid = self._adapter.validate_python(value)
        body = self._adapter.dump_json(valid, by_alias=True, warnings="error")
        if b"null" in body:
            _check_finite(self._adapter.dump_python(valid, mode="json"))
        return body

    def decode(self, body: bytes) -> Any:
        """See Serializer."""
        return self._adapter.validate_json(body)


def _fields_of_model(value: Any) -> Any:
    if not hasattr(value, "model_dump"):
        raise TypeError(f"JSON cannot represent objects of {type(value).__name__}")
    return value.model_dump(mode="json", by_alias=True)


def _check_finite(value: Any) -> None:
    """Raise ValueError for NaN and infinity, which msgspec encodes as null."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_finite(each)


def check_serializer(name: str, serializer: Serializer | None, method: str) -> None:
    """Raise TypeError if `serializer` lacks the method, or is a class instead of an object."""
    if serializer is None:
        return
    if isinstance(serializer, type) or not callable(getattr(serializer, method, None)):
        raise TypeError(
            f"{name} is {serializer!r}: pass an object with `{method}`, as in {name}=JSON()"
        )


def encode_value(serializer: Serializer | None, value: object) -> bytes | str:
    """Return the body for the argument of a send. Raises MessageRejectedError, TypeError."""
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
            f"a body of {type(value).__name__} {_name_misfit(serializer)}: {_find_reason(error)}"
        ) from error


def decode_body(serializer: Serializer, body: bytes, what: str) -> Any:
    """Return the value of a body. Raises BodyError, which does not reveal the body's content."""
    try:
        return serializer.decode(body)
    except Exception as error:
        raise BodyError(
            f"the body of {what} {_name_misfit(serializer)}: {_find_reason(error)}"
        ) from error


def _name_misfit(serializer: Serializer) -> str:
    wanted = getattr(serializer, "type", Any)
    if wanted is Any:
        return f"is not {getattr(serializer, 'name', type(serializer).__name__)}"
    return f"does not fit {wanted.__name__ if isinstance(wanted, type) else wanted}"


def _find_reason(error: Exception) -> str:
    """Return the text of an error in one line, without the value in question."""
    if not (type(error).__module__.startswith("pydantic") and hasattr(error, "errors")):
        name, _, said = " ".join(describe_error(error).split()).partition(": ")
        line = said or name
        return re.sub(r"(Invalid (?:enum )?value) '.*'", r"\1", line)
    found = error.errors(include_input=False, include_url=False)
    return "; ".join(
        ": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found
    )
