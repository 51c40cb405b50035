"""Bodies of TOPIC_IDS (70007): msgpack.

request  [topic, …]
answer   [id, …] in the same order, nil for a topic that does not exist
"""

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

_encode = msgspec.msgpack.Encoder().encode
_topics = msgspec.msgpack.Decoder(list[str])
_ids = msgspec.msgpack.Decoder(list[str | None])


def encode_topic_ids(values: list[str] | list[str | None]) -> bytes:
    """Encode either body."""
    return _encode(values)


def decode_topics(body: bytes) -> list[str]:
    """Decode the topics of a request. Raises MalformedBodyError."""
    try:
        return _topics.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None


def decode_topic_ids(body: bytes) -> list[str | None]:
    """Decode the ids of an answer. Raises MalformedBodyError."""
    try:
        return _ids.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None
