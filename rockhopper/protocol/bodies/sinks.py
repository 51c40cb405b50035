"""Bodies of the sink codes (70002 to 70005): msgpack, positional arrays.

SINK_STAGE     [message or run, …]
               a message is [topic, queue id, flag, born time ms, properties, body]
               a run is [topic, queue id, born time ms, messages]: messages for one queue, in
               the format of the body of SEND_BATCH_MESSAGE
               queue id −1 lets the broker choose; properties as in SEND_MESSAGE (text)
SINK_PUBLISH   [[part, message count], …] in the order in which they are to be stored
SINK_ABORT     [part, …], none for all parts of the batch
SINK_PREPARE   as SINK_PUBLISH
SINK_DECIDE    {broker: [[part, message count], …], …}, or empty to query; the answer is alike
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

_Value = TypeVar("_Value")


class SinkMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message of a staged part."""

    topic: str
    queue_id: int
    flag: int
    born_time_ms: int
    properties: str
    body: bytes


class SinkRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Consecutive messages of a staged part for one queue."""

    topic: str
    queue_id: int
    born_time_ms: int
    messages: bytes


class SinkPart(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A part to publish, and the number of messages its writer put into it."""

    name: str
    message_count: int


SinkShares = dict[str, list[SinkPart]]
"""The parts of a batch by the brokers that store them."""

_encode = msgspec.msgpack.Encoder().encode
_raw_messages = msgspec.msgpack.Decoder(list[msgspec.Raw])
_message = msgspec.msgpack.Decoder(SinkMessage)
_run = msgspec.msgpack.Decoder(SinkRun)
_ARRAY_OF_4 = 0x94
_parts = msgspec.msgpack.Decoder(list[SinkPart])
_names = msgspec.msgpack.Decoder(list[str])
_shares = msgspec.msgpack.Decoder(SinkShares)


def encode_sink_body(
    value: Sequence[SinkMessage | SinkRun] | Sequence[SinkPart] | Sequence[str] | SinkShares,
) -> bytes:
    """Encode the body of a sink request."""
    return _encode(value)


def split_sink_items(body: bytes) -> list[msgspec.Raw]:
    """Return the undecoded items of a SINK_STAGE, for ``decode_sink_item``.

    There may be very many, so they are decoded one by one. Raises MalformedBodyError.
    """
    return _decode(_raw_messages, body)


def decode_sink_item(part: msgspec.Raw) -> SinkMessage | SinkRun:
    """Decode a message or a run of a SINK_STAGE. Raises MalformedBodyError."""
    if memoryview(part)[0] == _ARRAY_OF_4:
        return _decode(_run, part)
    return _decode(_message, part)


def decode_sink_parts(body: bytes) -> list[SinkPart]:
    """Decode the parts of a SINK_PUBLISH. Raises MalformedBodyError."""
    return _decode(_parts, body)


def decode_sink_part_names(body: bytes) -> list[str]:
    """Decode the parts of a SINK_ABORT. Raises MalformedBodyError."""
    return _decode(_names, body) if body else []


def decode_sink_shares(body: bytes) -> SinkShares:
    """Decode either body of a SINK_DECIDE. Raises MalformedBodyError."""
    return _decode(_shares, body) if body else {}


def _decode(decoder: "msgspec.msgpack.Decoder[_Value]", body: bytes | msgspec.Raw) -> _Value:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None
