"""Converts header fields between text and typed values; defines the fields of every request."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import field

from rockhopper.protocol.errors import FieldError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_Fields = TypeVar("_Fields")
_is_integer = re.compile(r"[+-]?[0-9]+").fullmatch
_INTEGER_SIZE_MAX = 40


class RpcRequest(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The fields that any request may have (RpcRequestHeader, TopicRequestHeader)."""

    client_namespace: str | None = field(name="ns", default=None)
    is_namespaced: bool | None = field(name="nsd", default=None)
    broker_name: str | None = field(name="bname", default=None)
    is_oneway: bool | None = field(name="oway", default=None)
    is_logical: bool | None = field(name="lo", default=None)


class NoFields(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """A request or response without fields of its own."""


def decode_fields(cls: type[_Fields], ext: Mapping[str, str] | None) -> _Fields:
    """Return the ext fields of a command as *cls*, one of the classes above.

    Integers are decimal text; ``true`` (in any case) and ``1`` are true, anything else is false.

    Raises:
        FieldError: a mandatory field is missing, or a number does not parse or does not fit.
    """
    try:
        return msgspec.convert(ext or {}, cls, strict=False)
    except msgspec.ValidationError:
        return _decode_slowly(cls, ext or {})


def _decode_slowly(cls: type[_Fields], ext: Mapping[str, str]) -> _Fields:
    """Decode fields that msgspec rejects; raise the error for those that are wrong."""
    values: dict[str, object] = {}
    for info in msgspec.structs.fields(cls):  # type: ignore[arg-type]
        name = info.encode_name
        text = ext.get(name)
        kind = _kind(info.type)
        if text is None or (text == "" and kind is not str):
            if info.required:
                raise FieldError(name, "is missing", is_missing=True)
        elif kind is bool:
            values[info.name] = text.lower() in ("true", "1")
        elif kind is int:
            values[info.name] = _decode_int(name, text, info.type)
        else:
            values[info.name] = text
    return cls(**values)


def _decode_int(name: str, text: str, annotation: Any) -> int:
    if not _is_integer(text):
        raise FieldError(name, f"is {text[:40]!r}, which is not a number")
    # Python refuses to convert thousands of digits, and no field has this many.
    if len(text) <= _INTEGER_SIZE_MAX:
        try:
            return int(msgspec.convert(int(text), annotation))
        except msgspec.ValidationError:
            pass
    raise FieldError(name, f"is {text[:_INTEGER_SIZE_MAX]}, which is out of range")


@lru_cache(maxsize=256)
def _kind(annotation: Any) -> type:
    """Return which of str, int and bool an annotation contains."""
    for kind, example in ((bool, True), (str, "")):
        try:
            msgspec.convert(example, annotation)
        except msgspec.ValidationError:
            continue
        return kind
    return int


@lru_cache(maxsize=256)
def _names(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))


def encode_fields(fields: msgspec.Struct) -> dict[str, str]:
    """Return the ext fields for *fields*; None values are omitted."""
    ext = {}
    for attribute, name in _names(type(fields)):
        value = getattr(fields, attribute)
        if value is None:
            continue
        if value is True:
            ext[name] = "true"
        elif value is False:
            ext[name] = "false"
        else:
            ext[name] = str(value)
    return ext
