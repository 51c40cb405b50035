"""Splits plain records quickly and leaves their decoding for later.

A plain record is a whole V1 record with IPv4 hosts and the expected topic, whose body is neither
compressed nor a batch. All other records, damaged ones included, are left to decode_message.
"""

import struct
from typing import TypeAlias

from rockhopper.protocol.store.record_head import HEAD_SIZE_BYTES, HOST_FLAGS_MASK, MAGIC_V1
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
)

# Queue offset, size of the body, the record.
PlainRecord: TypeAlias = tuple[int, int, bytes]

# Size, magic, queue offset, sysFlag and body size of a head.
_HEAD = struct.Struct(">II12xq8xi44xi")
_UINT16 = struct.Struct(">H")
_unpack_head = _HEAD.unpack_from
_unpack_uint16 = _UINT16.unpack_from
_UNUSUAL_FLAGS = HOST_FLAGS_MASK | SYS_FLAG_COMPRESSED | SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP


def split_plain_records(buffer: bytes, start: int, topic: bytes) -> tuple[list[PlainRecord], int]:
    """Return the plain records from *start* on, and the offset of the first other one, or the end.

    *topic* is the expected topic in UTF-8.
    """
    records: list[PlainRecord] = []
    # After the body: the size of the topic, the topic, and the size of the properties.
    named = bytes((len(topic) & 0xFF,)) + topic
    named_size = len(named)
    overhead = HEAD_SIZE_BYTES + named_size + 2
    last_start = len(buffer) - overhead if len(topic) <= 127 else -1
    while start <= last_start:
        size, magic, queue_offset, sys_flag, body_size = _unpack_head(buffer, start)
        named_start = start + HEAD_SIZE_BYTES + body_size
        end = start + size
        if (
            magic != MAGIC_V1
            or sys_flag & _UNUSUAL_FLAGS
            or body_size < 0
            or size < overhead + body_size
            or end > len(buffer)
            or not buffer.startswith(named, named_start)
        ):
            break
        properties_size = size - overhead - body_size
        if (
            properties_size > 0x7FFF
            or _unpack_uint16(buffer, named_start + named_size)[0] != properties_size
        ):
            break
        records.append((queue_offset, body_size, buffer[start:end]))
        start = end
    return records, start
