"""The head of a commit log record: the fields before the body, and their offsets.

Layout, big-endian; offsets are for IPv4 hosts, each IPv6 host moves the rest by 12 bytes:

    offset  size  field
         0     4  size of the record, this field included
         4     4  magic: 0xDAA320A7 (V1) or 0xDAA320AB (V2)
         8     4  CRC-32 of the body, its top bit cleared; 0 for an empty body
        12     4  queue id
        16     4  flag, the producer's
        20     8  queue offset
        28     8  commit log offset of the record
        36     4  sysFlag (protocol.sys_flags)
        40     8  born time, ms
        48     8  born host: address and port; 20 bytes if sysFlag has BORN_HOST_V6
        56     8  store time, ms
        64     8  store host; 20 bytes if sysFlag has STORE_HOST_V6
        72     4  reconsume times
        76     8  prepared transaction offset
        84     4  size of the body
        88     b  body, and what follows (message_codec/record.py)

The compiled check and walk (broker/store/log/_checking.c, _walking.c here) and the columns of
pipeline/decoder/records.py use the same layout; tests compare them with this table.
"""

import struct
from typing import NamedTuple

from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
# The common start of V1 and V2, which differ in the last byte.
MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]

RECORD_SIZE_BYTES_MIN = 91
HOST_FLAGS_MASK = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6


class RecordHead(NamedTuple):
    """The fields before the body, as stored in the record."""

    size_bytes: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    born_time_ms: int
    born_host: bytes
    store_time_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_size_bytes: int


_FORMATS = dict(
    zip(
        RecordHead._fields,
        ("I", "I", "I", "i", "i", "q", "q", "i", "q", "8s", "q", "8s", "i", "q", "i"),
        strict=True,
    )
)


def head_struct(*fields: str) -> struct.Struct:
    """Return a struct that reads only *fields* of a head with IPv4 hosts.

    The fields are in the order of RecordHead. The struct's size is that of the head up to the last
    of them.
    """
    last = max(RecordHead._fields.index(field) for field in fields)
    return struct.Struct(
        ">"
        + "".join(
            each if name in fields else f"{struct.calcsize('>' + each)}x"
            for name, each in list(_FORMATS.items())[: last + 1]
        )
    )


def _start_of(field: str) -> int:
    return head_struct(field).size - struct.calcsize(">" + _FORMATS[field])


MAGIC_AT = _start_of("magic")
BODY_CRC_AT = _start_of("body_crc")
QUEUE_ID_AT = _start_of("queue_id")
FLAG_AT = _start_of("flag")
QUEUE_OFFSET_AT = _start_of("queue_offset")
LOG_OFFSET_AT = _start_of("log_offset")
SYS_FLAG_AT = _start_of("sys_flag")
BORN_TIME_AT = _start_of("born_time_ms")
BORN_HOST_AT = _start_of("born_host")
STORE_TIME_AT = _start_of("store_time_ms")
STORE_HOST_AT = _start_of("store_host")
HEAD_SIZE_BYTES = head_struct("body_size_bytes").size
HEAD_SIZE_BYTES_MAX = HEAD_SIZE_BYTES + 2 * 12

# The struct of the whole head, by the sizes of born host and store host.
RECORD_HEADS = {
    (born, store): struct.Struct(
        ">" + "".join((_FORMATS | {"born_host": f"{born}s", "store_host": f"{store}s"}).values())
    )
    for born in (8, 20)
    for store in (8, 20)
}
BLANK_RECORD = head_struct("size_bytes", "magic")


def body_start(sys_flag: int) -> int:
    """Return the offset of the body in its record."""
    return HEAD_SIZE_BYTES + 12 * (sys_flag & HOST_FLAGS_MASK).bit_count()


def topic_field(topic: str) -> bytes:
    """Return the topic field of a record: the size of the name, then the name."""
    name = topic.encode("utf-8", "surrogateescape")
    return len(name).to_bytes(2 if len(name) > 127 else 1, "big") + name
