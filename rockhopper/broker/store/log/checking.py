"""Checks that records match their consume queue entries; every read makes them.

``count_sound`` and ``gather_sound`` have compiled twins (_checking.c), which fast_encoding.py
prefers. Both implementations do the following. A record is sound if

- it begins with the size of its unit and a magic, and states the log offset of the unit;
- queue id, queue offset and topic are those of the queue and of the unit's number;
- its field sizes add up to its own size;
- its body has the stated CRC, unless the record is in the log's newest part.
"""

import struct
from mmap import mmap
from zlib import crc32

from rockhopper.protocol.store.message_codec import BODY_CRC_MASK
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
    body_start,
    head_struct,
)

_HEAD = head_struct(
    "size_bytes", "magic", "body_crc", "queue_id", "queue_offset", "log_offset", "sys_flag"
)
_INT32 = struct.Struct(">i")
ANY_MESSAGE = -1


def count_sound(
    topic_field: bytes,
    queue_id: int,
    queue_offset: int,
    units: bytes,
    count: int,
    records: bytes,
    unchecked_from: int,
) -> int:
    """Return how many of *count* records are sound, up to the first that is not.

    *records* are back to back in the order of *units*. *queue_offset* is that of the first one;
    with ANY_MESSAGE the owner is not checked. The bodies of records from commit log offset
    *unchecked_from* on are not checked.
    """
    sound = at = 0
    units = units[: count * CONSUME_QUEUE_UNIT.size]
    for log_offset, size, _ in CONSUME_QUEUE_UNIT.iter_unpack(units):
        record = records[at : at + max(size, 0)]
        owner = topic_field, queue_id, ANY_MESSAGE if queue_offset < 0 else queue_offset + sound
        is_whole = len(record) == size >= RECORD_SIZE_BYTES_MIN
        if not is_whole or not is_sound(record, log_offset, owner, log_offset < unchecked_from):
            break
        at += size
        sound += 1
    return sound


def gather_sound(
    topic_field: bytes,
    queue_id: int,
    queue_offset: int,
    units: bytes,
    count_max: int,
    size_max: int,
    log: tuple[mmap | bytes, int, int],
    unchecked_from: int,
) -> tuple[int, bytes] | None:
    """Return how many records of *units* fit a response, and these records, back to back.

    The first one always fits. *log* is a part of the log with its start and end offsets. Returns
    None if one of the records is outside it, or not sound.
    """
    stretch, base_offset, end_offset = log
    records: list[bytes] = []
    size_all = 0
    for log_offset, size, _ in CONSUME_QUEUE_UNIT.iter_unpack(units):
        if records and (len(records) >= count_max or size_all + size > size_max):
            break
        is_there = base_offset <= log_offset and log_offset + size <= end_offset
        if size < RECORD_SIZE_BYTES_MIN or not is_there:
            return None
        record = stretch[log_offset - base_offset : log_offset - base_offset + size]
        owner = topic_field, queue_id, queue_offset + len(records)
        if not is_sound(record, log_offset, owner, log_offset < unchecked_from):
            return None
        records.append(record)
        size_all += size
    return (len(records), b"".join(records)) if records else None


def is_sound(
    record: bytes, log_offset: int, owner: tuple[bytes, int, int], check_body: bool
) -> bool:
    """Return whether a record of at least RECORD_SIZE_BYTES_MIN is *owner*'s and at *log_offset*.

    *owner* is topic field, queue id and queue offset; with ANY_MESSAGE it is not checked.
    """
    size, magic, crc, queue_id, queue_offset, stated, sys_flag = _HEAD.unpack_from(record)
    if size != len(record) or stated != log_offset or magic not in (MAGIC_V1, MAGIC_V2):
        return False
    body_at = body_start(sys_flag)
    if body_at + 3 > size:
        return False
    (body_size,) = _INT32.unpack_from(record, body_at - 4)
    at = body_at + body_size
    if body_size < 0 or at + 3 > size:
        return False
    field, own_queue_id, own_offset = owner
    if own_offset >= 0 and not (
        (queue_id, queue_offset) == (own_queue_id, own_offset)
        and at + len(field) + 2 <= size
        and record.startswith(field, at)
    ):
        return False
    width = 1 if magic == MAGIC_V1 else 2
    at += width + int.from_bytes(record[at : at + width], "big")
    if at + 2 > size or at + 2 + int.from_bytes(record[at : at + 2], "big") != size:
        return False
    body = record[body_at : body_at + body_size] if check_body else b""
    return not body or crc32(body) & BODY_CRC_MASK == crc
