"""Bodies of BULK_PULL_QUEUES (70009): msgpack, positional arrays.

request  [[queue id, offset, end offset], …] of one topic
answer   [[code, next offset, min offset, max offset, records], …] in the same order, as many as
         fit; code and offsets are those of PULL_MESSAGE, records follow each other without gaps
"""

from typing import TypeVar

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

_Value = TypeVar("_Value")


class QueueRange(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The requested part of one queue: messages [offset, end_offset)."""

    queue_id: int
    offset: int
    end_offset: int


class QueueRead(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The answer for one queue."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes


_encode = msgspec.msgpack.Encoder().encode
_ranges = msgspec.msgpack.Decoder(list[QueueRange])
_reads = msgspec.msgpack.Decoder(list[QueueRead])


def encode_queue_ranges(values: list[QueueRange] | list[QueueRead]) -> bytes:
    """Encode either body."""
    return _encode(values)


def decode_queue_ranges(body: bytes) -> list[QueueRange]:
    """Decode a request. Raises MalformedBodyError."""
    return _decode(_ranges, body)


def decode_queue_reads(body: bytes) -> list[QueueRead]:
    """Decode an answer. Raises MalformedBodyError."""
    return _decode(_reads, body)


def _decode(decoder: "msgspec.msgpack.Decoder[_Value]", body: bytes) -> _Value:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None
