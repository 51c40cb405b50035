"""Bodies of TOPIC_IDS (70007): msgpack.

request  [topic, …]
answer   [id, …] in the same order, nil for a topic that is not there
"""

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

_encode = msgspec.msgpack.Encoder().encode
_topics = msgspec.msgpack.Decoder(list[str])
_ids = msgspec.msgpack.Decoder(list[str | None])


def encode_topic_ids(values: list[str] | list[str | None]) -> bytes:
    """Either body."""
    return _encode(values)


def decode_topics(body: bytes) -> list[str]:
    """The topics that are asked for. Raises MalformedBodyError."""
    try:
        return _topics.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None


def decode_topic_ids(body: bytes) -> list[str | None]:
    """Their ids. Raises MalformedBodyError."""
    try:
        return _ids.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None
