"""The framing of messages on a gRPC stream: a head of five bytes before each.

    is compressed 1   length 4   message

Compressed messages use gzip, if grpc-encoding says so. RocketMQ's clients never compress here,
because producers compress the bodies of messages.
"""

import struct
import zlib

from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.grpc_v2.codes import GrpcStatus

_HEAD = struct.Struct(">BL")
_GZIP = 16 + zlib.MAX_WBITS


class FramingError(ProtocolError):
    """The data is not a message, or a message that is too large."""

    def __init__(self, status: GrpcStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def encode_frame(message: bytes) -> bytes:
    """Return *message* with its head."""
    return _HEAD.pack(0, len(message)) + message


def read_whole(data: bytes, size_bytes_max: int) -> bytes | None:
    """Return the message in *data* if it is one whole message, not compressed nor too large."""
    size = len(data) - _HEAD.size
    if not 0 <= size <= size_bytes_max or data[: _HEAD.size] != _HEAD.pack(0, size):
        return None
    return data[_HEAD.size :]


class MessageSplitter:
    """Extracts the messages of one stream from the received pieces."""

    __slots__ = ("_encoding", "_received", "_size_bytes_max", "held_bytes")

    def __init__(self, encoding: str, size_bytes_max: int) -> None:
        self._encoding = encoding
        self._size_bytes_max = size_bytes_max
        self._received: bytes | bytearray = b""
        self.held_bytes = 0
        """The number of bytes received of an incomplete message."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that are complete now. Raises FramingError."""
        message = None if self.held_bytes else read_whole(data, self._size_bytes_max)
        return self._split(data) if message is None else [message]

    def _split(self, data: bytes) -> list[bytes]:
        if self._received:
            if not isinstance(self._received, bytearray):
                self._received = bytearray(self._received)
            self._received += data
            received: bytes | bytearray = self._received
        else:
            received = data
        found, position = [], 0
        while len(received) - position >= _HEAD.size:
            compressed, size = _HEAD.unpack_from(received, position)
            if size > self._size_bytes_max:
                raise FramingError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"the request has {size} bytes; {self._size_bytes_max} are allowed",
                )
            begin = position + _HEAD.size
            if len(received) - begin < size:
                break
            position = begin + size
            message = bytes(received[begin:position])
            found.append(self._inflate(message) if compressed else message)
        if position or received is data:
            self._received = received[position:]
        self.held_bytes = len(self._received)
        return found

    def _inflate(self, message: bytes) -> bytes:
        if self._encoding != "gzip":
            raise FramingError(
                GrpcStatus.UNIMPLEMENTED, f"unsupported grpc-encoding {self._encoding!r}: use gzip"
            )
        inflater = zlib.decompressobj(_GZIP)
        try:
            inflated = inflater.decompress(message, self._size_bytes_max + 1)
        except zlib.error as error:
            raise FramingError(
                GrpcStatus.INTERNAL, f"a message is not valid gzip: {error}"
            ) from None
        if len(inflated) > self._size_bytes_max:
            raise FramingError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"the decompressed request has more than {self._size_bytes_max} bytes",
            )
        if not inflater.eof:
            raise FramingError(GrpcStatus.INTERNAL, "a message is not valid gzip: it is truncated")
        return inflated
