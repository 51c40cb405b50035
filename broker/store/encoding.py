"""One message, or one batch, as the store keeps it: record, consume queue unit, index hashes.

This is what the broker spends most of its time on, so it stands alone, with plain values at its
border: bytes, text and numbers in, bytes and numbers out, no object of ours and no state.

A queue's part of it is given as ``constants``, made once by ``queue_constants``:

    (magic, topic field, queue id, seed of index hashes)

The functions return None for whatever is not plain: properties that mean more than themselves
(delay, transaction …), a malformed batch.  The caller then goes the general way, which knows
what to say to the client.
"""

import struct
from collections.abc import Sequence
from zlib import crc32

from broker.store.tags_codes import hash_of_tags
from protocol.errors import MalformedBatchError
from protocol.java_hash import index_key_seed, seeded_index_key_hash
from protocol.message_codec import MAGIC_V1, MAGIC_V2, RECORD_HEADS, decode_batch
from protocol.queue_layout import CONSUME_QUEUE_UNIT
from protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

PROPERTIES_SIZE_BYTES_MAX = 32_767
HOST_FLAGS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6

QueueConstants = tuple[int, bytes, int, int]
# (record, unit, index entries as (hash, commit log offset), unique key, whether WAIT is not false)
Plain = tuple[bytes, bytes, list[tuple[int, int]], str, bool]
# (records, units, index entries, commit log offsets)
Batch = tuple[bytes, bytes, list[tuple[int, int]], list[int]]

# Any of these makes a message more than a plain one, or stands where only the broker may write.
SPECIAL_PROPERTIES = frozenset(
    {
        "CLUSTER",
        "DELAY",
        "DUP_INFO",
        "INNER_BASE",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "INNER_NUM",
        "MSG_REGION",
        "POP_CK",
        "REAL_QID",
        "REAL_TOPIC",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TRACE_ON",
        "TRAN_MSG",
        "__CRC32#",
        "__STARTDELIVERTIME",
    }
)

_pack_size = struct.Struct(">h").pack
_pack_unit = CONSUME_QUEUE_UNIT.pack
_heads = {key: head.pack for key, head in RECORD_HEADS.items()}


def queue_constants(topic: str, queue_id: int) -> QueueConstants:
    """What every record of a queue repeats."""
    encoded = topic.encode()
    wide = len(encoded) > 127
    field = len(encoded).to_bytes(2 if wide else 1, "big") + encoded
    return MAGIC_V2 if wide else MAGIC_V1, field, queue_id, index_key_seed(topic)


def encode_record(
    constants: QueueConstants,
    position: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_time_ms: int,
    born_host: bytes,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
) -> bytes:
    """The record of any message.

    Raises:
        struct.error: a number does not fit its field, or the properties are too long.
    """
    magic, topic_field, queue_id, _ = constants
    born_size, store_size = len(born_host), len(store_host)
    # A client's word for the widths of hosts would make the record unreadable.
    sys_flag &= ~HOST_FLAGS
    if born_size == 20:
        sys_flag |= SYS_FLAG_BORN_HOST_V6
    if store_size == 20:
        sys_flag |= SYS_FLAG_STORE_HOST_V6
    body_size, properties_size = len(body), len(properties)
    return b"".join(
        (
            _heads[born_size, store_size](
                74 + born_size + store_size + body_size + len(topic_field) + properties_size,
                magic,
                crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                position,
                sys_flag,
                born_time_ms,
                born_host,
                store_time_ms,
                store_host,
                reconsume_times,
                prepared_offset,
                body_size,
            ),
            body,
            topic_field,
            _pack_size(properties_size),
            properties,
        )
    )


def index_entries(
    constants: QueueConstants, position: int, unique_key: str | None, keys: str | None
) -> list[tuple[int, int]]:
    """The index entries of a message: its unique key, then each of its KEYS."""
    seed = constants[3]
    entries = []
    if unique_key:
        entries.append((seeded_index_key_hash(seed, unique_key), position))
    if keys:
        entries += [(seeded_index_key_hash(seed, key), position) for key in keys.split(" ") if key]
    return entries


def encode_plain(
    constants: QueueConstants,
    position: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    properties: str,
    suffix: bytes,
    flag: int,
    sys_flag: int,
    born_time_ms: int,
    born_host: bytes,
    reconsume_times: int,
) -> Plain | None:
    """A message as a producer sent it; *suffix* is what the broker adds to its properties."""
    # Names and values in turn.  A value that looks like a special name costs the long way, no
    # more; the bytes that are stored are the client's own.
    items = properties.replace("\x01", "\x02").split("\x02")
    if "UNIQ_KEY" not in items or not SPECIAL_PROPERTIES.isdisjoint(items):
        return None
    unique_key = _value(items, "UNIQ_KEY")
    if not unique_key.isalnum() or not unique_key.isascii():
        return None
    waits = True
    if "WAIT" in items:
        waits = _value(items, "WAIT") != "false"
        if waits:
            properties = properties.replace("WAIT\x01true\x02", "", 1)
    if properties[-1:] != "\x02":
        properties += "\x02"
    try:
        record = encode_record(
            constants,
            position,
            queue_offset,
            store_time_ms,
            store_host,
            body,
            properties.encode() + suffix,
            flag,
            sys_flag,
            born_time_ms,
            born_host,
            reconsume_times,
        )
    except (struct.error, UnicodeEncodeError):
        return None
    tags_code = hash_of_tags(_value(items, "TAGS")) if "TAGS" in items else 0
    keys = _value(items, "KEYS") if "KEYS" in items else None
    return (
        record,
        _pack_unit(position, len(record), tags_code),
        index_entries(constants, position, unique_key, keys),
        unique_key,
        waits,
    )


def _value(items: Sequence[str], name: str) -> str:
    index = items.index(name) + 1
    return items[index] if index < len(items) else ""


def encode_batch(
    constants: QueueConstants,
    position: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    sys_flag: int,
    born_time_ms: int,
    born_host: bytes,
) -> Batch | None:
    """The messages of a batch body, each as a record of its own, properties as they came."""
    if b"DELAY\x01" in body or b"TIMER_DE" in body:
        return None
    try:
        messages = decode_batch(body)
    except MalformedBatchError:
        return None
    records: list[bytes] = []
    units: list[bytes] = []
    entries: list[tuple[int, int]] = []
    positions: list[int] = []
    try:
        for flag, inner_body, properties in messages:
            record = encode_record(
                constants,
                position,
                queue_offset,
                store_time_ms,
                store_host,
                inner_body,
                properties,
                flag,
                sys_flag,
                born_time_ms,
                born_host,
            )
            tags, unique_key, keys = tags_and_keys(properties)
            records.append(record)
            units.append(_pack_unit(position, len(record), hash_of_tags(tags)))
            entries += index_entries(constants, position, unique_key, keys)
            positions.append(position)
            position += len(record)
            queue_offset += 1
    except struct.error:
        return None
    return b"".join(records), b"".join(units), entries, positions


def tags_and_keys(properties: bytes) -> tuple[str | None, str | None, str | None]:
    """(TAGS, UNIQ_KEY, KEYS) of a properties string."""
    tags = unique_key = keys = None
    for item in properties.decode("utf-8", "replace").split("\x02"):
        if item.startswith("UNIQ_KEY\x01"):
            unique_key = item[9:]
        elif item.startswith("TAGS\x01"):
            tags = item[5:]
        elif item.startswith("KEYS\x01"):
            keys = item[5:]
    return tags, unique_key, keys
