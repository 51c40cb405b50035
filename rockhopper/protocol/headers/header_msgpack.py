"""The msgpack header, type 2: Rockhopper's own, between its client and its broker.

A msgpack array of seven elements:

    0  code      integer, 32 bits signed
    1  language  integer, protocol.codes.LanguageCode
    2  version   integer, MQVersion ordinal
    3  opaque    integer, 32 bits signed
    4  flag      integer
    5  remark    string or nil
    6  ext       map of string to string, or nil

Elements after the seventh are ignored, so that a later version can add some. A client uses this
header only after the broker has echoed the ext field ``rh=1`` of its first request.
"""

import msgpack  # type: ignore[import-untyped]

from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.headers.header_fields import (
    INT32_MAX,
    INT32_MIN,
    HeaderFields,
    check_ext_count,
    normalize_language,
)

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def decode_msgpack_header(header: bytes) -> HeaderFields:
    """Return the fields of a msgpack header. Raises MalformedHeaderError."""
    try:
        fields = msgpack.unpackb(header, raw=False, use_list=True, strict_map_key=True)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedHeaderError(
            f"the msgpack header does not decode: {type(error).__name__}: {error}"
        ) from None
    if type(fields) is not list or len(fields) < 7:
        raise MalformedHeaderError("the msgpack header is not an array of seven elements")
    code, language, version, opaque, flag, remark, ext = fields[:7]
    for number in (code, language, version, opaque, flag):
        if type(number) is not int or not INT32_MIN <= number <= INT32_MAX:
            raise MalformedHeaderError("a number of the msgpack header is not a 32-bit integer")
    if remark is not None and type(remark) is not str:
        raise MalformedHeaderError("the remark of the msgpack header is not a string")
    if ext is not None:
        _check_ext(ext)
    return code, normalize_language(language), version, opaque, flag, remark, ext


def _check_ext(ext: object) -> None:
    if type(ext) is not dict:
        raise MalformedHeaderError("the ext fields of the msgpack header are not a map")
    check_ext_count(len(ext))
    for name, value in ext.items():
        if type(name) is not str or type(value) is not str:
            raise MalformedHeaderError("an ext field of the msgpack header is not a string")


def encode_msgpack_header(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: dict[str, str] | None,
) -> bytes:
    """Encode a header as msgpack.

    Raises:
        ValueError: a number does not fit 32 bits.
        TypeError: an ext value is not a string.
    """
    for number in (code, version, opaque, flag):
        if not INT32_MIN <= number <= INT32_MAX:
            raise ValueError(f"{number} does not fit the 32 bits of a header field")
    if ext is not None:
        "".join(ext.values())  # raises TypeError for a number, which the reader would reject
    packed: bytes = _pack((code, int(language), version, opaque, flag, remark, ext))
    return packed
