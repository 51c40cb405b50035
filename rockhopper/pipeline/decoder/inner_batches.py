"""Unwrap the batch records of BatchCQ topics: one record for each message.

Such batches are rare. So Python code rewrites them, together with the records between them, into a
buffer of ordinary records. No other part of the decoder knows about batches.
"""

import struct
from zlib import crc32

import numpy as np

from rockhopper.pipeline.decoder.codecs import decompress
from rockhopper.pipeline.decoder.records import Array, Records, read_records
from rockhopper.protocol.errors import CompressionError, MalformedBatchError
from rockhopper.protocol.properties import PROPERTY_INNER_BASE, decode_properties
from rockhopper.protocol.store.message_codec.batch import decode_batch
from rockhopper.protocol.store.message_codec.record import BODY_CRC_MASK
from rockhopper.protocol.store.record_head import (
    BODY_CRC_AT,
    FLAG_AT,
    HEAD_SIZE_BYTES,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSION_MASK,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
)

_WRAPPED = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
_CLEARED = _WRAPPED | SYS_FLAG_COMPRESSED | SYS_FLAG_COMPRESSION_MASK
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")


class Unwrapped:
    """Records in which each message of a batch is a record of its own."""

    def __init__(self, records: Records) -> None:
        """Unwrap *records*; a batch that cannot be unwrapped stays unchanged."""
        self.failures: dict[int, str] = {}
        """Row of the result -> reason, for batches that cannot be unwrapped."""
        self.records = records
        self.row_of: Array | None = None
        """For each row of the result, its source row in *records*; None if nothing was unwrapped.
        """
        wrapped = (records.heads["sysFlag"] & _WRAPPED) == _WRAPPED
        if wrapped.any():
            self._unwrap(records, wrapped.tolist())

    def _unwrap(self, records: Records, wrapped: list[bool]) -> None:
        pieces: list[bytes] = []
        row_of: list[int] = []
        for row, is_wrapped in enumerate(wrapped):
            record = records.data[records.offsets[row] : records.ends[row]].tobytes()
            messages = [record]
            if is_wrapped:
                try:
                    messages = _messages(records, row, record)
                except (MalformedBatchError, CompressionError) as error:
                    self.failures[len(pieces)] = str(error)
            pieces += messages
            row_of += [row] * len(messages)
        sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        data = np.frombuffer(b"".join(pieces), np.uint8)
        self.records = read_records(data, np.cumsum(sizes) - sizes)
        self.row_of = np.array(row_of, dtype=np.int64)


def _messages(records: Records, row: int, record: bytes) -> list[bytes]:
    start = int(records.offsets[row])
    shift = 0 if records.hosts_shift is None else int(records.hosts_shift[row])
    body_start = HEAD_SIZE_BYTES + shift
    body_end = int(records.body_end[row]) - start
    topic = record[body_end : int(records.topic_end[row]) - start]
    properties = decode_properties(record[int(records.properties_start[row]) - start :])
    sys_flag = int(records.heads["sysFlag"][row])
    body = record[body_start:body_end]
    if sys_flag & SYS_FLAG_COMPRESSED:
        body = decompress(body, sys_flag)
    base_text = properties.get(PROPERTY_INNER_BASE, "")
    is_base = base_text.isascii() and base_text.isdecimal() and len(base_text) <= 18
    base = int(base_text) if is_base else int(records.heads["queueOffset"][row])
    messages = []
    for index, (flag, inner, text) in enumerate(decode_batch(body)):
        head = bytearray(record[:body_start])
        size = body_start + len(inner) + len(topic) + 2 + len(text)
        _INT32.pack_into(head, 0, size)
        _INT32.pack_into(head, BODY_CRC_AT, crc32(inner) & BODY_CRC_MASK if inner else 0)
        _INT32.pack_into(head, FLAG_AT, flag)
        _INT64.pack_into(head, QUEUE_OFFSET_AT, base + index)
        _INT32.pack_into(head, SYS_FLAG_AT, sys_flag & ~_CLEARED)
        _INT32.pack_into(head, body_start - 4, len(inner))
        messages.append(b"".join((head, inner, topic, _UINT16.pack(len(text)), text)))
    return messages
