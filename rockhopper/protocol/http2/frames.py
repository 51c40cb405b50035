"""Frames as bytes (RFC 9113, sections 4 and 6).

length 3   type 1   flags 1   stream 4, its highest bit ignored   payload
"""

import struct
from collections.abc import Callable
from enum import IntEnum

from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.http2.errors import ErrorCode

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE_BYTES = 9
FRAME_SIZE_BYTES_MAX = 16_384
"""The maximum payload accepted here, and the minimum that every peer must accept."""

read_head = struct.Struct(">BHBBL").unpack_from
"""Length (its highest octet, then the others), type, flags and stream of a frame."""
_put_head = struct.Struct(">BHBBL").pack
_put_u32 = struct.Struct(">L").pack

FLAG_ACK = FLAG_END_STREAM = 0x1
FLAG_END_HEADERS = 0x4
FLAG_PADDED = 0x8
FLAG_PRIORITY = 0x20
FLAGS_END = FLAG_END_HEADERS | FLAG_END_STREAM


class FrameType(IntEnum):
    """The type of a frame."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


def head(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    """Return the head of a frame with a payload of *size* bytes."""
    return _put_head(size >> 16, size & 0xFFFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes | memoryview = b"") -> bytes:
    """Return a whole frame."""
    return head(len(payload), kind, flags, stream_id) + payload


def answer_in_python(stream_id: int, block: bytes, data: bytes, trailers: bytes) -> bytes:
    """Return the frames of a whole answer; each part must fit into a frame."""
    return b"".join(
        (
            _put_head(0, len(block), FrameType.HEADERS, FLAG_END_HEADERS, stream_id),
            block,
            _put_head(0, len(data), FrameType.DATA, 0, stream_id),
            data,
            _put_head(0, len(trailers), FrameType.HEADERS, FLAGS_END, stream_id),
            trailers,
        )
    )


_frames = import_compiled("rockhopper.protocol.http2._frames")
answer: Callable[[int, bytes, bytes, bytes], bytes] = (
    answer_in_python if _frames is None else _frames.encode_answer
)


def window_update(stream_id: int, increment: int) -> bytes:
    """Return a frame that allows the peer *increment* more octets; stream 0 is the connection."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream_id, _put_u32(increment))


def reset(stream_id: int, code: ErrorCode) -> bytes:
    """Return a frame that ends a stream at once."""
    return frame(FrameType.RST_STREAM, 0, stream_id, _put_u32(code))


def goaway(last_stream_id: int, code: ErrorCode, reason: str = "") -> bytes:
    """Return a frame that rejects streams after *last_stream_id*."""
    payload = _put_u32(last_stream_id) + _put_u32(code) + reason.encode()[:200]
    return frame(FrameType.GOAWAY, 0, 0, payload)
