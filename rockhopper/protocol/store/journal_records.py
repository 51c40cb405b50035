"""Records of notes: the common format of all files that the broker appends notes to.

Records follow each other without gaps, big-endian, each written twice in a row:

    offset  size  field
         0     4  size of the payload
         4     4  CRC-32 of kind and payload
         8     1  kind, 1 to 127; 128 more in the second copy
         9     …  payload

A reader finds every record of which one copy is intact: after a damaged one it searches for the
next intact one. Example: of records A and B, the first copy of B is damaged; the reader returns A,
and B from its second copy.
"""

import struct
from typing import NamedTuple
from zlib import crc32

_HEAD = struct.Struct(">IIB")
_SECOND = 0x80
# A damaged second copy is recognised by the first: no other record is so similar.
_DAMAGED_BYTES_MAX = 2
_PLAUSIBLE_BYTES = 16 << 20

Record = tuple[int, bytes]


class RecordsRead(NamedTuple):
    """The content of a file."""

    records: list[Record]
    """Kind and payload of each record."""
    sound_count: int
    """The number of records before the first that is lost."""
    damages: list[tuple[int, int]]
    """Byte ranges without an intact record."""
    is_lossy: bool
    """Whether one of these was more than one copy of a record whose other copy is intact."""
    size_bytes: int
    is_torn: bool = False
    """Whether the only loss is an incomplete record at the end, as after a power failure."""


def encode_record(kind: int, payload: bytes) -> bytes:
    """Return the bytes of one record, both copies."""
    size_bytes = len(payload)
    return b"".join(
        (
            _HEAD.pack(size_bytes, crc32(payload, crc32(bytes((kind,)))), kind),
            payload,
            _copy_of(kind, payload),
        )
    )


def _copy_of(kind: int, payload: bytes) -> bytes:
    kind |= _SECOND
    return _HEAD.pack(len(payload), crc32(payload, crc32(bytes((kind,)))), kind) + payload


def decode_records(data: bytes) -> RecordsRead:
    """Return every record of *data* that can be read."""
    records: list[Record] = []
    damages: list[tuple[int, int]] = []
    losses: list[int] = []  # the numbers of records before each loss
    is_cut = False
    # A first copy whose second one should follow.
    awaited: Record | None = None
    position = 0
    while position < len(data):
        start, position = position, _next_record(data, position)
        damaged = data[start:position]
        found = _record_at(data, position)
        if damaged:
            damages.append((start, position))
            if not _is_other_copy(damaged, awaited, found):
                losses.append(len(records))
                is_cut = found is None and _is_beginning(damaged)
        if found is None:
            break
        kind, payload = found
        record = kind & ~_SECOND, payload
        if kind == record[0]:
            records.append(record)
            awaited = record
        else:
            if record != awaited:
                records.append(record)
            awaited = None
        position += _HEAD.size + len(payload)
    sound_count = losses[0] if losses else len(records)
    is_torn = is_cut and len(losses) == 1
    return RecordsRead(records, sound_count, damages, bool(losses), len(data), is_torn)


def _record_at(data: bytes, position: int) -> Record | None:
    start = position + _HEAD.size
    if start > len(data):
        return None
    size_bytes, crc, kind = _HEAD.unpack_from(data, position)
    end = start + size_bytes
    if end > len(data) or not kind & ~_SECOND:
        return None
    payload = data[start:end]
    return (kind, payload) if crc32(payload, crc32(bytes((kind,)))) == crc else None


def _is_beginning(damaged: bytes) -> bool:
    """Whether these bytes may begin an incomplete record; corrupted data seldom looks like that."""
    if len(damaged) < _HEAD.size:
        return True
    size_bytes, _, kind = _HEAD.unpack_from(damaged)
    is_cut = bool(len(damaged) - _HEAD.size < size_bytes <= _PLAUSIBLE_BYTES)
    return is_cut and 0 < kind < _SECOND


def _next_record(data: bytes, position: int) -> int:
    """Return the offset of the next intact record, or the end."""
    while position < len(data) and _record_at(data, position) is None:
        position += 1
    return position


def _is_other_copy(damaged: bytes, before: Record | None, found: Record | None) -> bool:
    """Whether *damaged* is one copy of a record whose other copy, before or after it, is intact."""
    if found is not None and found[0] & _SECOND:
        return len(damaged) == _HEAD.size + len(found[1])
    if before is None:
        return False
    copy = _copy_of(*before)
    if len(damaged) > len(copy) or (found is not None and len(damaged) < len(copy)):
        return False
    return sum(a != b for a, b in zip(damaged, copy, strict=False)) <= _DAMAGED_BYTES_MAX
