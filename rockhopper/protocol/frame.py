"""Frames: splits a stream into commands.

Layout, big-endian:

    offset  size  field
         0     4  length of what follows: 4 + header + body
         4     1  serialisation of the header (protocol.codes.SerializeType)
         5     3  size of the header
         8     h  header
       8+h     …  body, may be empty

The decoder takes arbitrary pieces of the stream and returns whole frames. It stores the pieces of
an unfinished frame and joins them once, so a frame that arrives byte by byte costs time and memory
in proportion to its size. Lengths beyond the limits are detected as soon as their bytes arrive,
before anything is stored.
"""

import struct
from collections.abc import Callable
from typing import TypeAlias

from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.errors import MalformedFrameError, ProtocolError

# Serialisation, header, body.
Frame: TypeAlias = tuple[int, bytes, bytes]

FRAME_SIZE_BYTES_MAX = 16_777_212
HEADER_SIZE_BYTES_MAX = 262_144
HEADER_SIZE_BYTES_WRITABLE = 0xFFFFFF
"""The maximum of three bytes: answers to large batches contain all message ids in their header."""

_HEAD = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
# Join more pieces than this: storing a piece of one byte costs forty bytes.
_PIECES_MAX = 4096


class FrameDecoder:
    """Splits one direction of one connection into frames."""

    __slots__ = (
        "_frame_size_bytes_max",
        "_header_size_bytes_max",
        "_joined",
        "_needed_bytes",
        "_pieces",
        "error",
        "pending_bytes",
    )

    def __init__(
        self,
        frame_size_bytes_max: int = FRAME_SIZE_BYTES_MAX,
        header_size_bytes_max: int = HEADER_SIZE_BYTES_MAX,
    ) -> None:
        """The frame limit applies to the length word, as in RocketMQ's NettyDecoder."""
        self._frame_size_bytes_max = frame_size_bytes_max
        self._header_size_bytes_max = header_size_bytes_max
        self._joined: list[bytes] = []
        self._pieces: list[bytes] = []
        self._needed_bytes = 0
        self.pending_bytes = 0
        """The number of bytes stored of an incomplete frame."""
        self.error: ProtocolError | None = None
        """Why the rest of the stream cannot be split; set once."""

    def feed(self, data: bytes) -> list[Frame]:
        """Add the next bytes of the stream; return the frames that they complete.

        For malformed input it returns the frames before it, sets ``error``, and ignores all further
        input: the caller must close the connection.
        """
        if self.pending_bytes:
            self._keep(data)
            if self.pending_bytes < self._needed_bytes:
                return []
            data = self._take()
        elif self.error is not None:
            return []
        frames, start = split_frames(data, self._frame_size_bytes_max, self._header_size_bytes_max)
        if start < len(data):
            self._begin(data[start:] if start else data)
        return frames

    def pending_header(self) -> bytes:
        """Return the header of the incomplete frame, as far as it has arrived."""
        data = b""
        for piece in (*self._joined, *self._pieces):
            data += piece
            if len(data) >= 8 and len(data) >= (end := 8 + (_HEAD.unpack_from(data)[1] & 0xFFFFFF)):
                return data[8:end]
        return data[8:]

    def forget_pending(self) -> None:
        """Drop the incomplete frame, because its connection is closed."""
        self._take()

    def _begin(self, data: bytes) -> None:
        """Store the start of an incomplete frame, unless its lengths are invalid."""
        size = len(data)
        if size < 4:
            self._needed_bytes = 4
        else:
            (length,) = _LENGTH.unpack_from(data)
            header_size = _HEAD.unpack_from(data)[1] & 0xFFFFFF if size >= 8 else None
            if not 4 + (header_size or 0) <= length <= self._frame_size_bytes_max or (
                header_size is not None and header_size > self._header_size_bytes_max
            ):
                self._fail(length, header_size)
                return
            self._needed_bytes = 8 if size < 8 else 4 + length
        self._pieces.append(data)
        self.pending_bytes = size

    def _keep(self, data: bytes) -> None:
        pieces = self._pieces
        pieces.append(data)
        self.pending_bytes += len(data)
        if len(pieces) >= _PIECES_MAX:
            self._joined.append(b"".join(pieces))
            pieces.clear()

    def _take(self) -> bytes:
        self._joined += self._pieces
        data = b"".join(self._joined)
        self._joined.clear()
        self._pieces.clear()
        self.pending_bytes = 0
        return data

    def _fail(self, length: int, header_size: int | None) -> None:
        if not 4 <= length <= self._frame_size_bytes_max:
            reason = f"a frame of {length} bytes; 4 to {self._frame_size_bytes_max} are allowed"
        elif header_size is not None and header_size > self._header_size_bytes_max:
            reason = f"a header of {header_size} bytes; {self._header_size_bytes_max} are allowed"
        else:
            reason = f"a header of {header_size} bytes in a frame of {length} bytes"
        self.error = MalformedFrameError(f"the peer announced {reason}")


def split_in_python(
    data: bytes, frame_size_bytes_max: int, header_size_bytes_max: int
) -> tuple[list[Frame], int]:
    """Replaces ``split_frames`` if ``_framing.c`` could not be compiled."""
    unpack_head = _HEAD.unpack_from
    end = len(data)
    frames: list[Frame] = []
    start = 0
    while end - start >= 8:
        length, word = unpack_head(data, start)
        header_size = word & 0xFFFFFF
        body_start = start + 8 + header_size
        frame_end = start + 4 + length
        if (
            not body_start <= frame_end <= end
            or length > frame_size_bytes_max
            or header_size > header_size_bytes_max
        ):
            break
        frames.append((word >> 24, data[start + 8 : body_start], data[body_start:frame_end]))
        start = frame_end
    return frames, start


_framing = import_compiled("rockhopper.protocol._framing")
split_frames: Callable[[bytes, int, int], tuple[list[Frame], int]] = (
    split_in_python if _framing is None else _framing.split_frames
)
"""Returns the whole frames at the beginning, and the offset of the rest.

The rest is an incomplete frame or invalid data.
"""


def encode_frame(serialize_type: int, header: bytes, body: bytes = b"") -> bytes:
    """Return a frame with this header and body.

    Raises:
        ValueError: a RocketMQ peer would close the connection on a frame of this size.
    """
    return frame_head(serialize_type, len(header), len(body)) + header + body


def frame_head(serialize_type: int, header_size: int, body_size: int) -> bytes:
    """Return the bytes before a header and a body of these sizes; raises like encode_frame."""
    length = 4 + header_size + body_size
    if length > FRAME_SIZE_BYTES_MAX:
        raise ValueError(
            f"the frame has {length} bytes; peers accept at most {FRAME_SIZE_BYTES_MAX}"
        )
    return _HEAD.pack(length, serialize_type << 24 | header_size)
