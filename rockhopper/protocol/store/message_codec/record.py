"""The record of a message: in the commit log, in answers to pulls, and in pushes to clients.

Layout, big-endian:

    size  field
    88 …  head: 88 bytes with IPv4 hosts (protocol.store.record_head)
       b  body, as the producer sent it (maybe compressed)
       1  size of the topic, at most 127; in V2 two bytes, at most 32,767
       t  topic, UTF-8
       2  size of the properties, at most 32,767
       p  properties (protocol.properties)

V2 is for topics of more than 127 bytes. A file of the commit log ends with a blank record: 4 bytes
of size, up to the file's end, and the magic 0xCBD43194.
"""

import struct
from mmap import mmap
from typing import TypeAlias
from zlib import crc32

from rockhopper.protocol.addresses import host_text, ip_bytes
from rockhopper.protocol.errors import MalformedMessageError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import (
    decode_properties,
    encode_properties,
    fit_properties,
    join_properties,
)
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    HEAD_SIZE_BYTES,
    HOST_FLAGS_MASK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEADS,
    RECORD_SIZE_BYTES_MIN,
    RecordHead,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

# The types that a record can be decoded from.
Buffer: TypeAlias = bytes | bytearray | memoryview | mmap

BODY_CRC_MASK = 0x7FFFFFFF
V1_TOPIC_SIZE_BYTES_MAX = 127

_HEADS_BY_FLAGS = {
    0: RECORD_HEADS[8, 8],
    SYS_FLAG_BORN_HOST_V6: RECORD_HEADS[20, 8],
    SYS_FLAG_STORE_HOST_V6: RECORD_HEADS[8, 20],
    HOST_FLAGS_MASK: RECORD_HEADS[20, 20],
}
_unpack_v4_head = RECORD_HEADS[8, 8].unpack_from
_UINT16 = struct.Struct(">H")
_unpack_uint16 = _UINT16.unpack_from
_new = tuple.__new__


def body_crc(body: bytes) -> int:
    """Return the CRC of a body as stored in its record."""
    return crc32(body) & BODY_CRC_MASK if body else 0


def decode_message(buffer: Buffer, offset: int = 0, *, check_crc: bool = False) -> StoredMessage:
    """Decode the record at *offset*; bytes after the record are not examined.

    Raises:
        MalformedMessageError: there is no whole record, or *check_crc* is set and the body differs
            from the stored one.
    """
    record = record_bytes(buffer, offset)
    head, body_start, topic_start, properties_start = split_record(record)
    (
        _,
        _,
        crc,
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
        prepared,
        body_size,
    ) = head
    body = record[body_start : body_start + body_size]
    # As in RocketMQ, the CRC of an empty body is not checked.
    if check_crc and body and body_crc(body) != crc:
        raise MalformedMessageError(
            f"the body of the message at commit log offset {log_offset} is damaged: "
            f"its CRC is {body_crc(body)}, not {crc}"
        )
    try:
        topic = record[topic_start : properties_start - 2].decode()
    except UnicodeDecodeError:
        raise MalformedMessageError("the topic of the record is not UTF-8") from None
    born_ip, born_port = host_text(born_host)
    store_ip, store_port = host_text(store_host)
    return StoredMessage(
        topic,
        queue_id,
        queue_offset,
        log_offset,
        body,
        flag,
        sys_flag,
        born_time_ms,
        born_ip,
        born_port,
        store_time_ms,
        store_ip,
        store_port,
        reconsume_times,
        prepared,
        crc,
        decode_properties(record[properties_start:]),
        len(record),
    )


def record_bytes(buffer: Buffer, offset: int) -> bytes:
    """Return the bytes of the record at *offset*, according to its size and magic.

    Raises:
        MalformedMessageError: no record starts there, or it is incomplete.
    """
    available = len(buffer) - offset
    if available < 8:
        raise MalformedMessageError(f"{available} bytes are too few for a record")
    size, magic = BLANK_RECORD.unpack_from(buffer, offset)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise MalformedMessageError(f"0x{magic:08X} is not the magic of a record")
    if not RECORD_SIZE_BYTES_MIN <= size <= available:
        raise MalformedMessageError(f"a record of {size} bytes does not fit into {available} bytes")
    return bytes(buffer[offset : offset + size])


def split_record(record: bytes) -> tuple[RecordHead, int, int, int]:
    """Return the head, and the offsets of body, topic and properties.

    *record* is one whole record as its size field says, with a valid magic.

    Raises:
        MalformedMessageError: the sizes in it do not add up to its own.
    """
    size = len(record)
    fields = _unpack_v4_head(record)
    head_size = HEAD_SIZE_BYTES
    sys_flag = fields[7]
    if sys_flag & HOST_FLAGS_MASK:
        head = _HEADS_BY_FLAGS[sys_flag & HOST_FLAGS_MASK]
        head_size = head.size
        if size < head_size:
            raise MalformedMessageError(f"a record of {size} bytes is too small for IPv6 hosts")
        fields = head.unpack_from(record)
    body_size = fields[14]
    is_v1 = fields[1] == MAGIC_V1
    topic_start = head_size + body_size + (1 if is_v1 else 2)
    if body_size >= 0 and topic_start + 2 <= size:
        if is_v1:
            topic_size = record[topic_start - 1]
            topic_size_max = V1_TOPIC_SIZE_BYTES_MAX
        else:
            (topic_size,) = _unpack_uint16(record, topic_start - 2)
            topic_size_max = 0x7FFF
        properties_start = topic_start + topic_size + 2
        if topic_size <= topic_size_max and properties_start <= size:
            (properties_size,) = _unpack_uint16(record, properties_start - 2)
            if properties_start + properties_size == size and properties_size <= 0x7FFF:
                return _new(RecordHead, fields), head_size, topic_start, properties_start
    raise MalformedMessageError(
        f"the sizes in the record of {size} bytes at commit log offset {fields[6]} do not add up"
    )


def _with_host_flags(head: RecordHead) -> int:
    sys_flag = head.sys_flag & ~HOST_FLAGS_MASK
    if len(head.born_host) == 20:
        sys_flag |= SYS_FLAG_BORN_HOST_V6
    if len(head.store_host) == 20:
        sys_flag |= SYS_FLAG_STORE_HOST_V6
    return sys_flag


def encode_message(
    head: RecordHead, topic: str, body: bytes, properties: bytes | str | dict[str, str]
) -> bytes:
    """Encode a message. Hosts are 8 or 20 bytes, and set their flags in sysFlag.

    Sizes, magic and CRC of *head* are computed.

    Raises:
        ValueError: a value does not fit its field.
    """
    topic_bytes = topic.encode()
    wide = len(topic_bytes) > V1_TOPIC_SIZE_BYTES_MAX
    if isinstance(properties, dict):
        properties = encode_properties(properties)
    if isinstance(properties, str):
        properties = properties.encode()
    layout = RECORD_HEADS.get((len(head.born_host), len(head.store_host)))
    if layout is None:
        raise ValueError("a host is 8 bytes, or 20 for IPv6: see protocol.addresses.host_bytes")
    if len(topic_bytes) > 0x7FFF or len(properties) > 0x7FFF:
        raise ValueError(
            f"the topic has {len(topic_bytes)} bytes and the properties {len(properties)}; "
            "32767 are allowed for each"
        )
    topic_size = len(topic_bytes).to_bytes(2 if wide else 1, "big")
    rest = (body, topic_size, topic_bytes, _UINT16.pack(len(properties)), properties)
    head = head._replace(
        size_bytes=layout.size + sum(map(len, rest)),
        magic=MAGIC_V2 if wide else MAGIC_V1,
        body_crc=body_crc(body),
        sys_flag=_with_host_flags(head),
        body_size_bytes=len(body),
    )
    try:
        return b"".join((layout.pack(*head), *rest))
    except struct.error as error:
        raise ValueError(f"a field does not fit the record: {error}") from None


def encode_stored_message(message: StoredMessage) -> bytes:
    """Encode a decoded message that may have been changed; computes the CRC.

    A value with a separator, sent by some client, is passed on unchanged. Properties that a broker
    added are left out if there is no room for them.

    Raises:
        ValueError: a value does not fit its field.
    """
    head = RecordHead(
        0,
        0,
        0,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.commit_log_offset,
        message.sys_flag,
        message.born_time_ms,
        _host(message.born_host, message.born_port),
        message.store_time_ms,
        _host(message.store_host, message.store_port),
        message.reconsume_times,
        message.prepared_transaction_offset,
        0,
    )
    properties = join_properties(fit_properties(message.properties))
    return encode_message(head, message.topic, message.body, properties)


def _host(ip: str, port: int) -> bytes:
    return ip_bytes(ip) + struct.pack(">i", port)
