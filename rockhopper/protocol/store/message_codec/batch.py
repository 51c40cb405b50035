"""Batches: several messages in one body, as in SEND_BATCH_MESSAGE.

Each message, big-endian:

    offset  size  field
         0     4  size, this field included
         4     4  magic, 0; not examined
         8     4  body CRC, 0; not examined
        12     4  flag
        16     4  size of the body
        20     b  body
      20+b     2  size of the properties
      22+b     p  properties (protocol.properties)

On ordinary topics the broker stores the messages one by one. On topics of type BatchCQ it stores
the whole body as one record with the sysFlags INNER_BATCH and NEED_UNWRAP, the number of messages
in the property INNER_NUM and the queue offset of the first one in INNER_BASE.
"""

import re
import struct
from collections.abc import Iterable, Sequence

from rockhopper.protocol.errors import MalformedBatchError, MalformedMessageError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_INNER_BASE, decode_properties
from rockhopper.protocol.store.message_codec.record import Buffer, body_crc, decode_message
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSION_MASK,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
)

BATCH_COUNT_MAX = 290_000
"""The maximum that an answer can name: with ids of 56 characters, its header fills a frame."""
INNER_BATCH_COUNT_MAX = 32_767
"""The maximum in one record: a unit of a BatchCQ queue counts with an INT16."""

BATCHED_SIZE_BYTES = 22
"""The size of a message in a batch without its body and properties."""

_HEAD = struct.Struct(">iiiii")
_INT16 = struct.Struct(">h")
_WRAPPED = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
_is_offset = re.compile(r"[0-9]{1,18}").fullmatch
_unpack_head = _HEAD.unpack_from
_unpack_int16 = _INT16.unpack_from


def encode_batch(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Encode *messages*: flag, body and properties of each.

    Raises:
        ValueError: a message does not fit.
    """
    parts: list[bytes] = []
    for flag, body, properties in messages:
        size = BATCHED_SIZE_BYTES + len(body) + len(properties)
        try:
            parts += (
                _HEAD.pack(size, 0, 0, flag, len(body)),
                body,
                _INT16.pack(len(properties)),
                properties,
            )
        except struct.error as error:
            raise ValueError(f"a message does not fit a batch: {error}") from None
    return b"".join(parts)


def decode_batch(body: bytes, count_max: int = BATCH_COUNT_MAX) -> list[tuple[int, bytes, bytes]]:
    """Return flag, body and properties of each message, byte for byte.

    Raises:
        MalformedBatchError: there is no message, more than *count_max*, or a wrong size. No
            message of such a batch may be stored.
    """
    messages: list[tuple[int, bytes, bytes]] = []
    end = len(body)
    start = 0
    try:
        while start < end:
            size, _, _, flag, body_size = _unpack_head(body, start)
            body_end = start + 20 + body_size
            (properties_size,) = _unpack_int16(body, body_end)
            properties_end = body_end + 2 + properties_size
            if (
                body_size < 0
                or properties_size < 0
                or properties_end > end
                or size != properties_end - start
            ):
                raise _build_malformed_error(len(messages), start, end)
            messages.append(
                (flag, body[start + 20 : body_end], body[body_end + 2 : properties_end])
            )
            start = properties_end
            if len(messages) > count_max:
                raise MalformedBatchError(f"a batch of more than {count_max} messages")
    except struct.error:
        raise _build_malformed_error(len(messages), start, end) from None
    if not messages:
        raise MalformedBatchError("the batch is empty: it needs at least one message")
    return messages


def _build_malformed_error(index: int, start: int, end: int) -> MalformedBatchError:
    return MalformedBatchError(
        f"message {index} of the batch, at byte {start} of {end}, has sizes that do not add up"
    )


def unwrap_inner_batch(message: StoredMessage) -> Sequence[StoredMessage]:
    """Return the messages inside a record of a BatchCQ topic; for other records the message itself.

    The i-th one has the queue offset INNER_BASE + i, its own flag, body and properties, and the
    record's other fields.

    Raises:
        MalformedBatchError, CompressionError: the record does not contain a batch.
    """
    if message.sys_flag & _WRAPPED != _WRAPPED:
        return (message,)
    base_text = message.properties.get(PROPERTY_INNER_BASE, "")
    base = int(base_text) if _is_offset(base_text) else message.queue_offset
    sys_flag = message.sys_flag & ~(_WRAPPED | SYS_FLAG_COMPRESSED | SYS_FLAG_COMPRESSION_MASK)
    return [
        StoredMessage(
            message.topic,
            message.queue_id,
            base + index,
            message.commit_log_offset,
            body,
            flag,
            sys_flag,
            message.born_time_ms,
            message.born_host,
            message.born_port,
            message.store_time_ms,
            message.store_host,
            message.store_port,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body_crc(body),
            decode_properties(properties),
            22 + len(body) + len(properties),
        )
        for index, (flag, body, properties) in enumerate(decode_batch(message.decompressed_body()))
    ]


def decode_messages(buffer: Buffer, *, unwrap: bool = True) -> list[StoredMessage]:
    """Decode consecutive records, such as those in an answer to a pull.

    With *unwrap*, batch records are replaced by the messages inside them.

    Raises:
        MalformedMessageError: the bytes are not whole records.
        CompressionError: an inner batch does not decompress.
    """
    messages: list[StoredMessage] = []
    offset = 0
    end = len(buffer)
    while offset < end:
        message = decode_message(buffer, offset)
        offset += message.size_bytes
        if unwrap:
            messages += list_inner_messages(message)
        else:
            messages.append(message)
    return messages


def list_inner_messages(message: StoredMessage) -> Sequence[StoredMessage]:
    """Return the messages inside a record; raises like decode_messages."""
    try:
        return unwrap_inner_batch(message)
    except MalformedBatchError as error:
        raise MalformedMessageError(
            f"the batch record at commit log offset {message.commit_log_offset}: {error}"
        ) from None
