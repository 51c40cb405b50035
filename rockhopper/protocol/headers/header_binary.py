"""The ROCKETMQ binary header, type 1: RocketMQ's own, rarely enabled.

Layout, big-endian:

    offset  size  field
         0     2  code, 16 bits
         2     1  language
         3     2  version
         5     4  opaque
         9     4  flag
        13     4  size of the remark, 0 when there is none
        17     r  remark, UTF-8
      17+r     4  size of the ext fields, 0 when there are none
      21+r     …  ext fields: 2 bytes key size, key, 4 bytes value size, value

A key may occur twice, because some Java commands write their fields and then a map with the same
fields: the last one applies. An empty key or value counts as missing.

The code has 16 bits, so request codes of the pop family (200050 …) arrive truncated and are mapped
back. A truncated code cannot be distinguished from a code of that number, so the encoder rejects
them.
"""

import struct

from rockhopper.protocol.codes import FLAG_RESPONSE, RequestCode
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.headers.header_fields import (
    EXT_FIELDS_MAX,
    HeaderFields,
    check_ext_count,
    normalize_language,
)

_HEAD = struct.Struct(">hbhiii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD_SIZE = _HEAD.size
_CODE_MAX = 32_767

_WIDE_CODES = {code & 0xFFFF: code.value for code in RequestCode if code > _CODE_MAX}


def decode_binary_header(header: bytes) -> HeaderFields:
    """Return the fields of a binary header. Raises MalformedHeaderError."""
    try:
        code, language, version, opaque, flag, remark_size = _HEAD.unpack_from(header)
        remark, position = _text(header, _HEAD_SIZE, remark_size, len(header))
        (ext_size,) = _INT32.unpack_from(header, position)
        ext = _decode_ext(header, position + 4, ext_size)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedHeaderError(f"the binary header does not decode: {error}") from None
    if not flag & FLAG_RESPONSE:
        code = _WIDE_CODES.get(code, code)
    return code, normalize_language(language), version, opaque, flag, remark or None, ext


def _decode_ext(header: bytes, position: int, size: int) -> dict[str, str] | None:
    if size == 0:
        return None
    end = position + size
    if size < 0 or end > len(header):
        raise MalformedHeaderError(
            f"the binary header of {len(header)} bytes announces {size} bytes of ext fields"
        )
    ext: dict[str, str] = {}
    count = 0
    while position < end:
        (key_size,) = _INT16.unpack_from(header, position)
        key, position = _text(header, position + 2, key_size, end)
        (value_size,) = _INT32.unpack_from(header, position)
        value, position = _text(header, position + 4, value_size, end)
        count += 1
        if count > EXT_FIELDS_MAX:
            check_ext_count(count)
        if value:
            if key:
                ext[key] = value
        else:
            ext.pop(key, None)
    return ext


def _text(header: bytes, position: int, size: int, end: int) -> tuple[str, int]:
    """Return the string of *size* bytes at *position*, and the position after it."""
    text_end = position + size
    if size < 0 or text_end > end:
        raise MalformedHeaderError(
            f"the binary header announces a string of {size} bytes, but only {end - position} "
            "are left"
        )
    return header[position:text_end].decode(), text_end


def encode_binary_header(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: dict[str, str] | None,
) -> bytes:
    """Encode a header.

    Raises:
        ValueError: a number or a string does not fit its field.
    """
    if not -_CODE_MAX <= code <= _CODE_MAX:
        raise ValueError(f"code {code} does not fit a binary header: send it as JSON")
    remark_bytes = (remark or "").encode("utf-8", "replace")
    ext_bytes = b"".join([_encode_entry(*item) for item in ext.items()]) if ext else b""
    try:
        head = _HEAD.pack(code, language, version, opaque, flag, len(remark_bytes))
    except struct.error as error:
        raise ValueError(f"a field does not fit the binary header: {error}") from None
    return head + remark_bytes + _INT32.pack(len(ext_bytes)) + ext_bytes


def _encode_entry(key: str, value: str) -> bytes:
    if not key or not value:
        return b""
    key_bytes = key.encode("utf-8", "replace")
    value_bytes = value.encode("utf-8", "replace")
    if len(key_bytes) > _CODE_MAX:
        raise ValueError(f"ext field name '{key[:40]}...' takes more than {_CODE_MAX} bytes")
    return _INT16.pack(len(key_bytes)) + key_bytes + _INT32.pack(len(value_bytes)) + value_bytes
