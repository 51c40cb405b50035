"""Byte layouts of the store's files other than the commit log. All numbers are big-endian.

Consume queue unit, 20 bytes; the n-th unit of a queue belongs to queue offset n:

    offset  size  field
         0     8  commit log offset of the message
         8     4  size of the message's record
        12     8  tags code: Java hash of the tag, 0 without a tag; a deadline in ms in
                  SCHEDULE_TOPIC_XXXX; at or below EXT_ADDRESS_MAX the address of an extension unit

The first file of a queue that does not start at offset 0 is filled with blank units up to its first
unit: commit log offset 0, size 0x7FFFFFFF, tags code 0.

Batch consume queue unit, 46 bytes; one for each record, found by its base offset:

         0     8  commit log offset of the record
         8     4  size of the record
        12     8  tags code
        20     8  store time, ms
        28     8  queue offset of the record's first message
        36     2  number of messages in the record
        38     4  compacted offset, -1 as written
        42     4  reserved, 0

Index file, IndexFile in RocketMQ: header, slots, entries.

         0     8  store time of the first entry, ms
         8     8  store time of the last entry, ms
        16     8  commit log offset of the first entry
        24     8  commit log offset of the last entry
        32     4  number of slots in use
        36     4  number of the next free entry; starts at 1, entry 0 is never used
        40    4s  slots: number of the newest entry of the chain, 0 when empty
    40+4s   20n   entries

Index entry, 20 bytes:

         0     4  key hash (protocol.java_hash.index_key_hash)
         4     8  commit log offset
        12     4  seconds since the store time of the file's first entry
        16     4  number of the next older entry of the chain, 0 at its end

Checkpoint, one page of 4096 bytes: three store times in ms (commit log, consume queues, index
files), two commit log offsets (flushed by the master, confirmed), zeros. Rockhopper's own
checkpoint, rockhopper/checkpoint, adds the commit log offset up to which the log is on disk.

The note about the sizes of the index files, rockhopper/geometry.json: one JSON object with
``indexSlotCount`` and ``indexEntryCountMax``, and ``crc32`` of the two as the settings spell them
(builds before 0.2.0 wrote none). The length of an index file fits many such pairs, and with the
wrong pair a search silently finds nothing.
"""

import json
import struct
import zlib
from typing import NamedTuple
from zlib import crc32

CONSUME_QUEUE_UNIT = struct.Struct(">qiq")
CONSUME_QUEUE_UNIT_SIZE_BYTES = 20
BLANK_UNIT_SIZE_FIELD = 0x7FFFFFFF
BLANK_CONSUME_QUEUE_UNIT = CONSUME_QUEUE_UNIT.pack(0, BLANK_UNIT_SIZE_FIELD, 0)
# ConsumeQueueExt.MAX_ADDR: tags codes are 32-bit hashes, so no hash is this small.
EXT_ADDRESS_MAX = -(2**31) - 1

BATCH_CONSUME_QUEUE_UNIT = struct.Struct(">qiqqqhii")
BATCH_CONSUME_QUEUE_UNIT_SIZE_BYTES = 46
COMPACTED_OFFSET_NONE = -1

INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_HEADER_SIZE_BYTES = 40
INDEX_SLOT = struct.Struct(">i")
INDEX_SLOT_SIZE_BYTES = 4
INDEX_ENTRY = struct.Struct(">iqii")
INDEX_SECONDS_MAX = 2**31 - 1
INDEX_ENTRY_SIZE_BYTES = 20
# RocketMQ's defaults: maxHashSlotNum, maxIndexNum, and the entries of a queue file of either kind.
INDEX_SLOT_COUNT = 5_000_000
INDEX_ENTRY_COUNT_MAX = 20_000_000
QUEUE_FILE_ENTRY_COUNT = 300_000

CHECKPOINT = struct.Struct(">qqqqq")
CHECKPOINT_SIZE_BYTES = 4096
_OWN_CHECKPOINT = struct.Struct(">qqqqqq")
_CHECKPOINT_CRC = struct.Struct(">I")
GEOMETRY_FILE = "geometry.json"
_GEOMETRY_KEYS = ("indexSlotCount", "indexEntryCountMax")


def index_file_size_bytes(slot_count: int, entry_count_max: int) -> int:
    """The length of an index file."""
    slots_bytes = slot_count * INDEX_SLOT_SIZE_BYTES
    return INDEX_HEADER_SIZE_BYTES + slots_bytes + entry_count_max * INDEX_ENTRY_SIZE_BYTES


def encode_own_checkpoint(*fields: int) -> bytes:
    """Return a checkpoint with six *fields* and a CRC-32; the last is the log's end on disk."""
    packed = _OWN_CHECKPOINT.pack(*fields)
    return packed + _CHECKPOINT_CRC.pack(crc32(packed))


def decode_checkpoint(data: bytes) -> tuple[int, ...]:
    """Return the six fields of a checkpoint, RocketMQ's included; zeros if they are invalid.

    The last one is 0 without a CRC: one flipped bit in it would move the end of the log.
    """
    size = _OWN_CHECKPOINT.size
    data = data.ljust(size + _CHECKPOINT_CRC.size, b"\0")
    fields = _OWN_CHECKPOINT.unpack_from(data)
    (crc,) = _CHECKPOINT_CRC.unpack_from(data, size)
    if min(fields) < 0 or crc not in (0, crc32(data[:size])):
        return (0,) * len(fields)
    return fields if crc else (*fields[:-1], 0)


class IndexGeometry(NamedTuple):
    """Slots and entries of an index file; entry 0 counts although it is never used."""

    slot_count: int
    entry_count_max: int

    @property
    def file_size_bytes(self) -> int:
        """The length of an index file."""
        return index_file_size_bytes(*self)

    def __str__(self) -> str:
        return f"maxHashSlotNum={self.slot_count} and maxIndexNum={self.entry_count_max}"


def encode_geometry(geometry: IndexGeometry) -> bytes:
    """Encode the note of *geometry*."""
    fields = dict(zip(_GEOMETRY_KEYS, geometry, strict=True)) | {
        "crc32": _geometry_checksum(geometry)
    }
    return json.dumps(fields).encode()


def decode_geometry(data: bytes) -> IndexGeometry:
    """Decode a note. Raises ValueError if it is damaged."""
    try:
        fields = json.loads(data)
        geometry = IndexGeometry(*(int(fields[key]) for key in _GEOMETRY_KEYS))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if fields.keys() != set(_GEOMETRY_KEYS) and fields.get("crc32") != _geometry_checksum(geometry):
        raise ValueError("its checksum is wrong")
    return geometry


def _geometry_checksum(geometry: IndexGeometry) -> int:
    return zlib.crc32(str(geometry).encode())
