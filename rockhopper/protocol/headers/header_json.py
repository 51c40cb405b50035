"""The JSON header, type 0: supported by every RocketMQ client.

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":5,
     "remark":"…","serializeTypeCurrentRPC":"JSON","version":479}

It is written without blanks, with keys in alphabetical order, without null fields, with every ext
value a string (the Go client reads nothing else), and with control characters escaped.

It is read with more tolerance. Unknown keys are ignored, and fields may be missing or null. Ext
values may be numbers and booleans, as ali-ons and the C++ client send them. They become their text
in the JSON, from which signatures are computed too; nulls count as missing. Objects and arrays as
ext values, numbers beyond 32 bits, invalid UTF-8, NaN and deep nesting are rejected.
"""

import re
from functools import partial
from typing import Annotated

import msgspec

from rockhopper.protocol.codes import MQ_VERSION
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.headers.header_fields import (
    INT32_MAX,
    INT32_MIN,
    LANGUAGE_BY_NAME,
    LANGUAGE_NAMES,
    OTHER_LANGUAGE,
    HeaderFields,
    check_ext_count,
    normalize_language,
)

_Int32 = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]


class _PlainHeader(msgspec.Struct, gc=False):
    """A header as Java and Go write it: the fast path."""

    code: _Int32 = 0
    language: str | int | None = "JAVA"
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)


class _AnyHeader(msgspec.Struct, gc=False):
    """A header as other clients write it."""

    code: _Int32 | None = 0
    language: str | int | None = "JAVA"
    version: _Int32 | None = 0
    opaque: _Int32 | None = 0
    flag: _Int32 | None = 0
    remark: str | None = None
    ext: dict[str, msgspec.Raw] | None = msgspec.field(name="extFields", default=None)


DEPTH_MAX = 64
_without_strings = partial(re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL).sub, b"")
_brackets = re.compile(rb"[][{}]").findall
_decode_plain = msgspec.json.Decoder(_PlainHeader).decode
_decode_any = msgspec.json.Decoder(_AnyHeader, strict=False).decode
_decode_string = msgspec.json.Decoder(str).decode
_encode_json = msgspec.json.Encoder().encode


def check_depth(header: bytes) -> None:
    """Reject deep nesting: how deep a decoder can go depends on the interpreter.

    Raises:
        MalformedHeaderError: the header is nested too deeply.
    """
    if header.count(b"{") + header.count(b"[") <= DEPTH_MAX:
        return
    depth = 0
    for bracket in _brackets(_without_strings(header)):
        depth += 1 if bracket in b"{[" else -1
        if depth > DEPTH_MAX:
            raise MalformedHeaderError(
                f"the JSON header is nested more than {DEPTH_MAX} levels deep"
            )


def decode_json_header(header: bytes) -> HeaderFields:
    """Return the fields of a JSON header. Raises MalformedHeaderError."""
    fields: _PlainHeader | _AnyHeader
    check_depth(header)
    try:
        if not header.isascii():
            header.decode()  # the decoder does not check strings that it skips
        try:
            fields = _decode_plain(header)
            ext = fields.ext
        except msgspec.ValidationError:
            fields = _decode_any(header)
            ext = _ext_text(fields.ext)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedHeaderError(f"the JSON header does not decode: {error}") from None
    if ext is not None and len(ext) > 256:
        check_ext_count(len(ext))
    language = fields.language
    return (
        fields.code or 0,
        LANGUAGE_BY_NAME.get(language, OTHER_LANGUAGE)
        if isinstance(language, str)
        else OTHER_LANGUAGE
        if language is None
        else normalize_language(language),
        fields.version or 0,
        fields.opaque or 0,
        fields.flag or 0,
        fields.remark,
        ext,
    )


def _ext_text(raw_ext: dict[str, msgspec.Raw] | None) -> dict[str, str] | None:
    """Return the ext fields as text, for any JSON scalar."""
    if raw_ext is None:
        return None
    check_ext_count(len(raw_ext))
    ext = {}
    for name, raw in raw_ext.items():
        value = bytes(raw)
        first = value[:1]
        if first == b'"':
            ext[name] = _decode_string(value)
        elif first in (b"{", b"["):
            raise MalformedHeaderError(f"ext field '{name[:40]}' is not a string or a number")
        elif first != b"n":
            ext[name] = value.decode()
    return ext


def encode_json_header(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: dict[str, str] | None,
) -> bytes:
    """Encode a header as JSON.

    Raises:
        TypeError: an ext value is not a string.
    """
    if ext is None:
        ext_part = b""
    else:
        "".join(ext.values())  # raises TypeError for a number: Go clients would then read no field
        ext_part = b'"extFields":%b,' % _encode_text(ext)
    remark_part = b"" if remark is None else b'"remark":%b,' % _encode_text(remark)
    return (
        b'{"code":%d,%b"flag":%d,"language":"%b","opaque":%d,%b'
        b'"serializeTypeCurrentRPC":"JSON","version":%d}'
    ) % (
        code,
        ext_part,
        flag,
        LANGUAGE_NAMES.get(language, "OTHER").encode(),
        opaque,
        remark_part,
        version,
    )


def begin_json_header(code: int, ext: dict[str, str]) -> bytes:
    """Return the JSON of a header up to its ext fields; end_json_header returns the rest.

    Raises:
        TypeError: an ext value is not a string.
    """
    "".join(ext.values())
    return b'{"code":%d,"extFields":%b,' % (code, _encode_text(ext))


def end_json_header(language: int) -> bytes:
    """Return the part of a request's header after the ext fields, with %d for the opaque."""
    name = LANGUAGE_NAMES.get(language, "OTHER").encode()
    return (
        b'"flag":0,"language":"%b","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
        % (name, MQ_VERSION)
    )


def json_text(text: str) -> bytes:
    """Return a JSON string with its quotes; a lone surrogate becomes a question mark."""
    try:
        return _encode_json(text)
    except UnicodeEncodeError:
        return _encode_json(_plain(text))


def _encode_text(value: str | dict[str, str]) -> bytes:
    try:
        return _encode_json(value)
    except UnicodeEncodeError:
        # Lone surrogates come from file names in error texts and have no UTF-8 encoding.
        return _encode_json(_replace_surrogates(value))


def _replace_surrogates(value: str | dict[str, str]) -> str | dict[str, str]:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return {_plain(name): _plain(text) for name, text in value.items()}


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
