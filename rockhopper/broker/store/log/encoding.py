"""Encode one message, or one batch, for the store: record, consume queue unit, index hashes.

The broker spends most of its time here. So this module depends on nothing else of ours and has
plain values at its interface: bytes, text and numbers in, bytes and numbers out, no objects and no
state. The constant fields of a queue are passed as ``constants``, made once by ``queue_constants``:

    (magic, topic field, queue id, seed of index hashes)

``encode_plain``, ``encode_batch``, ``encode_run``, ``count_run``, ``message_ids`` and
``put_entries`` have compiled twins (_encoding.c), which fast_encoding.py prefers if they could be
built. The functions below define what both must do.

The first two return None for a message that is not plain: one with a property that the broker acts
on (delay, transaction …), or a malformed batch. The caller then takes the general path, which knows
the right error for the client.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from mmap import mmap
from zlib import crc32

from rockhopper.protocol.errors import MalformedBatchError
from rockhopper.protocol.java_hash import hash_index_key_seeded, index_key_seed
from rockhopper.protocol.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_DUP_INFO,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_LITE_TOPIC,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_PRIORITY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    decode_properties,
)
from rockhopper.protocol.store.expected import hash_of_tags
from rockhopper.protocol.store.message_codec import decode_batch
from rockhopper.protocol.store.queue_layout import (
    CONSUME_QUEUE_UNIT,
    INDEX_ENTRY,
    INDEX_SECONDS_MAX,
    INDEX_SLOT,
)
from rockhopper.protocol.store.record_head import MAGIC_V1, MAGIC_V2, RECORD_HEADS
from rockhopper.protocol.store.walking import TIMED_KEY
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

PROPERTIES_SIZE_BYTES_MAX = 32_767
HOST_FLAGS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6

QueueConstants = tuple[int, bytes, int, int]
# (record, unit, packed index keys, unique key, whether WAIT is not false)
Plain = tuple[bytes, bytes, bytes, str, bool]
# (records, units, packed index keys)
Batch = tuple[bytes, bytes, bytes]
# The input of an index entry: key hash and commit log offset. Packed, because an object for each
# key of each message would cost more than the rest of its encoding.
INDEX_KEY = struct.Struct(">Iq")
_TIME = struct.Struct(">q")

# Properties that no message of a batch may have.
DELAYING_PROPERTIES = frozenset(
    {
        PROPERTY_DELAY_LEVEL,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELAY_SEC,
        "__STARTDELIVERTIME",
    }
)
# Properties that the broker or its recovery trusts, because only the broker writes them: never
# accepted from a client.
OWN_PROPERTIES = frozenset(
    {PROPERTY_INNER_MULTI_QUEUE_OFFSET, "RH_FINAL", "RH_SINK", "TIMER_ORIGIN", PROPERTY_CRC32}
)
# Set by the broker, whatever a client claims.
BROKER_PROPERTIES = OWN_PROPERTIES | {
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_POP_CK,
    PROPERTY_INNER_NUM,
    PROPERTY_INNER_BASE,
    PROPERTY_DUP_INFO,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ROLL_TIMES,
}
# Any of these makes a message more than a plain one, or is for the broker alone to write.
SPECIAL_PROPERTIES = (
    BROKER_PROPERTIES
    | DELAYING_PROPERTIES
    | {
        PROPERTY_CLUSTER,
        PROPERTY_INNER_MULTI_DISPATCH,
        PROPERTY_MSG_REGION,
        PROPERTY_TRACE_SWITCH,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_PRIORITY,
        PROPERTY_LITE_TOPIC,
    }
)
NOT_IN_PLAIN_BATCHES = DELAYING_PROPERTIES | OWN_PROPERTIES

_WAIT_TRUE = "WAIT\x01true\x02"

_pack_key = INDEX_KEY.pack
_pack_size = struct.Struct(">h").pack
_pack_unit = CONSUME_QUEUE_UNIT.pack
_read_slot = INDEX_SLOT.unpack_from
_write_slot = INDEX_SLOT.pack_into
_write_entry = INDEX_ENTRY.pack_into
_heads = {key: head.pack for key, head in RECORD_HEADS.items()}


def drop_own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return *properties* without those that only the broker may write."""
    return {name: value for name, value in properties.items() if name not in OWN_PROPERTIES}


def queue_constants(topic: str, queue_id: int) -> QueueConstants:
    """Return the constant fields of all records of a queue."""
    magic, field, seed = _topic_constants(topic)
    return magic, field, queue_id, seed


@lru_cache(64)
def _topic_constants(topic: str) -> tuple[int, bytes, int]:
    """Return magic code, topic field and seed; cached, so queues of one topic share the objects."""
    encoded = topic.encode()
    wide = len(encoded) > 127
    field = len(encoded).to_bytes(2 if wide else 1, "big") + encoded
    return MAGIC_V2 if wide else MAGIC_V1, field, index_key_seed(topic)


def encode_record(
    constants: QueueConstants,
    log_offset: int,
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
    """Return the record of any message.

    Raises:
        struct.error: a number does not fit its field, or the properties are too long.
    """
    magic, topic_field, queue_id, _ = constants
    born_size, store_size = len(born_host), len(store_host)
    # Clients may not set the flags for the widths of hosts: the record would be unreadable.
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
                log_offset,
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


def index_keys(
    constants: QueueConstants, log_offset: int, unique_key: str | None, keys: str | None
) -> bytes:
    """Return the packed index keys of a message: its unique key, then each of its KEYS."""
    seed = constants[3]
    packed = b""
    if unique_key:
        packed = _pack_key(hash_index_key_seeded(seed, unique_key), log_offset)
    if keys:
        for key in keys.split(" "):
            if key:
                packed += _pack_key(hash_index_key_seeded(seed, key), log_offset)
    return packed


def encode_plain(
    constants: QueueConstants,
    log_offset: int,
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
    """Encode a message as a producer sent it; the broker appends *suffix* to its properties."""
    found = decode_properties(properties)
    unique_key = found.get(PROPERTY_UNIQUE_KEY, "")
    if not unique_key.isalnum() or not unique_key.isascii():
        return None
    if not SPECIAL_PROPERTIES.isdisjoint(found):
        return None
    if properties[-1:] != "\x02":
        properties += "\x02"
    waits = found.get(PROPERTY_WAIT) != "false"
    if waits and properties.startswith(_WAIT_TRUE):
        properties = properties[len(_WAIT_TRUE) :]
    elif waits:
        properties = properties.replace("\x02" + _WAIT_TRUE, "\x02", 1)
    try:
        record = encode_record(
            constants,
            log_offset,
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
    return (
        record,
        _pack_unit(log_offset, len(record), hash_of_tags(found.get(PROPERTY_TAGS))),
        index_keys(constants, log_offset, unique_key, found.get(PROPERTY_KEYS)),
        unique_key,
        waits,
    )


def encode_batch(
    constants: QueueConstants,
    log_offset: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    sys_flag: int,
    born_time_ms: int,
    born_host: bytes,
) -> Batch | None:
    """Encode each message of a batch body as its own record, with unchanged properties."""
    try:
        messages = decode_batch(body)
    except MalformedBatchError:
        return None
    records: list[bytes] = []
    units: list[bytes] = []
    packed_keys: list[bytes] = []
    try:
        for flag, inner_body, properties in messages:
            record = encode_record(
                constants,
                log_offset,
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
            found = decode_properties(properties)
            if not NOT_IN_PLAIN_BATCHES.isdisjoint(found):
                return None
            records.append(record)
            code = hash_of_tags(found.get(PROPERTY_TAGS))
            units.append(_pack_unit(log_offset, len(record), code))
            unique_key, keys = found.get(PROPERTY_UNIQUE_KEY), found.get(PROPERTY_KEYS)
            packed_keys.append(index_keys(constants, log_offset, unique_key, keys))
            log_offset += len(record)
            queue_offset += 1
    except struct.error:
        return None
    return b"".join(records), b"".join(units), b"".join(packed_keys)


_ANY_QUEUE = queue_constants("any", 0)
_ANY_HOST = bytes(8)


def encode_run(
    constants: QueueConstants,
    log_offset: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    suffix: bytes,
    born_time_ms: int,
) -> Batch | None:
    """Encode each message of a batch body by ``encode_plain``; None unless all are plain.

    The host that stores the messages is also their born host.
    """
    records: list[bytes] = []
    units: list[bytes] = []
    packed_keys: list[bytes] = []
    try:
        for flag, inner_body, properties in decode_batch(body):
            plain = encode_plain(
                constants,
                log_offset,
                queue_offset,
                store_time_ms,
                store_host,
                inner_body,
                properties.decode(),
                suffix,
                flag,
                0,
                born_time_ms,
                store_host,
                0,
            )
            if plain is None:
                return None
            records.append(plain[0])
            units.append(plain[1])
            packed_keys.append(plain[2])
            log_offset += len(plain[0])
            queue_offset += 1
    except (MalformedBatchError, UnicodeDecodeError):
        return None
    return b"".join(records), b"".join(units), b"".join(packed_keys)


def count_run(body: bytes, suffix: bytes) -> int:
    """Return the number of messages that ``encode_run`` makes of a batch body; 0 if none."""
    encoded = encode_run(_ANY_QUEUE, 0, 0, 0, _ANY_HOST, body, suffix, 0)
    return 0 if encoded is None else len(encoded[1]) // CONSUME_QUEUE_UNIT.size


def message_ids(host: str, units: bytes) -> str:
    """Return the ids of the messages of *units*, separated by commas; each starts with *host*."""
    offsets = [offset for offset, _, _ in CONSUME_QUEUE_UNIT.iter_unpack(units)]
    digits = struct.pack(f">{len(offsets)}Q", *offsets).hex(",", 8).upper()
    return host + digits.replace(",", "," + host)


def put_entries(
    mapping: mmap,
    slot_count: int,
    entries_at: int,
    number: int,
    seconds: int,
    packed_keys: bytes | bytearray,
) -> int:
    """Write an entry for each packed index key into the mapping of an index file.

    The entries get the numbers from *number* on, and each becomes the head of its slot's chain.
    Returns how many slots were empty before.
    """
    used = 0
    for key_hash, commit_log_offset in INDEX_KEY.iter_unpack(packed_keys):
        slot_at = 40 + key_hash % slot_count * 4
        (previous,) = _read_slot(mapping, slot_at)
        if not 0 < previous < number:
            previous = 0
            used += 1
        _write_entry(
            mapping, entries_at + number * 20, key_hash, commit_log_offset, seconds, previous
        )
        _write_slot(mapping, slot_at, number)
        number += 1
    return used


def put_timed_entries(
    mapping: mmap,
    slot_count: int,
    entries_at: int,
    number: int,
    begin_ms: int,
    packed_keys: memoryview,
) -> int:
    """``put_entries`` for TIMED_KEYs; their seconds count from *begin_ms* on."""
    used = 0
    for at in range(0, len(packed_keys), TIMED_KEY.size):
        (time_ms,) = _TIME.unpack_from(packed_keys, at + INDEX_KEY.size)
        seconds = min(max((time_ms - begin_ms) // 1000, 0), INDEX_SECONDS_MAX)
        key = bytes(packed_keys[at : at + INDEX_KEY.size])
        used += put_entries(mapping, slot_count, entries_at, number, seconds, key)
        number += 1
    return used
