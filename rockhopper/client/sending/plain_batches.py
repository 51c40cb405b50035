r"""Encodes batches of plain messages in one step, without an object for each message.

A message is plain if its only properties are its id and WAIT=true (`Message.is_plain`). Its part of
the batch has the layout of protocol.store.message_codec.batch, with these properties:

    UNIQ_KEY \x01 id \x02 WAIT \x01 true \x02
"""

from collections.abc import Callable

from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.message import Message
from rockhopper.protocol.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
)
from rockhopper.protocol.store.message_codec import encode_batch

# The properties of a plain message are its id between these.
ID_START = f"{PROPERTY_UNIQUE_KEY}{NAME_VALUE_SEPARATOR}"
ID_END = f"{PROPERTY_SEPARATOR}{PROPERTY_WAIT}{NAME_VALUE_SEPARATOR}true{PROPERTY_SEPARATOR}"
PLAIN_BATCH_COUNT_MAX = 0x8000
"""The maximum of messages encoded at once: their ids differ in a number of 16 bits."""

_BEFORE, _AFTER = ID_START.encode(), ID_END.encode()
_INT32 = range(-(1 << 31), 1 << 31)


def encode_plain_batch(
    messages: list[Message], size_bytes_max: int, id_start: str, number: int
) -> tuple[bytes, list[str]] | None:
    """Return the body of a batch and the ids of its messages; None if not all are plain.

    An id is `id_start` and four hex digits, counted from `number`. The messages must also have the
    topic of the first one, and fit into `size_bytes_max`.
    """
    if len(messages) > PLAIN_BATCH_COUNT_MAX:
        return None
    topic = messages[0].topic
    return _encode_plain(messages, topic, size_bytes_max, _BEFORE, id_start, _AFTER, number)


def encode_in_python(
    messages: list[Message],
    topic: str,
    size_bytes_max: int,
    before: bytes,
    id_start: str,
    after: bytes,
    number: int,
) -> tuple[bytes, list[str]] | None:
    """Replaces `encode_plain` if `_messages.c` could not be compiled."""
    if not all(_is_plain(message, topic) for message in messages):
        return None
    ids = [f"{id_start}{each & 0xFFFF:04X}" for each in range(number, number + len(messages))]
    body = encode_batch(
        (message.flag, message.body, before + message_id.encode() + after)
        for message, message_id in zip(messages, ids, strict=True)
    )
    return (body, ids) if len(body) <= size_bytes_max else None


def _is_plain(message: Message, topic: str) -> bool:
    return (
        type(message) is Message
        and message.is_plain
        and message.topic == topic
        and type(message.body) is bytes
        and type(message.flag) is int
        and message.flag in _INT32
    )


_messages = import_compiled("rockhopper.client._messages")
_encode_plain: Callable[
    [list[Message], str, int, bytes, str, bytes, int], tuple[bytes, list[str]] | None
]
if _messages is None:
    _encode_plain = encode_in_python
else:
    _messages.set_message(Message)
    _encode_plain = _messages.encode_plain
