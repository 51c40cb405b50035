"""Records of notes: the one form of everything that the broker notes by appending.

A row of records, big-endian, back to back, each of them twice in a row:

    offset  size  field
         0     4  size of the payload
         4     4  CRC-32 of kind and payload
         8     1  kind, 1 to 127; 128 more in the second copy
         9     …  payload

Reading finds every record of which one copy is sound: behind a damaged one it looks for the next
that is.
"""

import struct
from typing import NamedTuple
from zlib import crc32

_HEAD = struct.Struct(">IIB")
_SECOND = 0x80
# A damaged second copy is known by its first: no other record is that much alike.
_DAMAGED_BYTES_MAX = 2
_PLAUSIBLE_BYTES = 16 << 20

Record = tuple[int, bytes]


class RecordsRead(NamedTuple):
    """What a file holds."""

    records: list[Record]
    """Kind and payload of each."""
    sound_count: int
    """How many of them stand in front of the first that is lost."""
    damages: list[tuple[int, int]]
    """Ranges of bytes that hold no sound record."""
    is_lossy: bool
    """Whether one of these held more than the second copy of a record, or its first."""
    size_bytes: int
    is_torn: bool = False
    """Whether all that is lost is a record that was cut off at the end, as by a power cut."""


def encode_record(kind: int, payload: bytes) -> bytes:
    """The bytes of one record, both copies."""
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
    """Every record of *data* that can be read."""
    records: list[Record] = []
    damages: list[tuple[int, int]] = []
    lost_at: int | None = None
    loss_count = 0
    is_cut = False
    # The first copy of a record whose second is to follow.
    awaited: Record | None = None
    position = 0
    while position < len(data):
        start, position = position, _next_record(data, position)
        damaged = data[start:position]
        found = _record_at(data, position)
        if damaged:
            damages.append((start, position))
            if not _is_other_copy(damaged, awaited, found):
                lost_at = len(records) if lost_at is None else lost_at
                loss_count += 1
                is_cut = found is None and _is_beginning(damaged)
        if found is None:
            break
        kind, payload = found
        record = kind & ~_SECOND, payload
        is_second = kind != record[0]
        if not is_second or record != awaited:
            records.append(record)
        awaited = None if is_second else record
        position += _HEAD.size + len(payload)
    sound_count = len(records) if lost_at is None else lost_at
    is_torn = is_cut and loss_count == 1
    return RecordsRead(records, sound_count, damages, loss_count > 0, len(data), is_torn)


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
    """Whether these may be the first bytes of a record that was cut off; rot seldom looks so."""
    if len(damaged) < _HEAD.size:
        return True
    size_bytes, _, kind = _HEAD.unpack_from(damaged)
    is_cut = bool(len(damaged) - _HEAD.size < size_bytes <= _PLAUSIBLE_BYTES)
    return is_cut and 0 < kind < _SECOND


def _next_record(data: bytes, position: int) -> int:
    """Where the next sound record begins, or the end."""
    while position < len(data) and _record_at(data, position) is None:
        position += 1
    return position


def _is_other_copy(damaged: bytes, before: Record | None, found: Record | None) -> bool:
    """Whether *damaged* is what became of a copy whose other one is sound, in front or behind."""
    if found is not None and found[0] & _SECOND:
        return len(damaged) == _HEAD.size + len(found[1])
    if before is None:
        return False
    copy = _copy_of(*before)
    if len(damaged) > len(copy) or (found is not None and len(damaged) < len(copy)):
        return False
    return sum(a != b for a, b in zip(damaged, copy, strict=False)) <= _DAMAGED_BYTES_MAX
