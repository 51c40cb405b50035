"""The format of the records of rmq_sys_rockhopper_state: the bodies of its messages.

All integers are big-endian:

    offset  size  field
         0     1  version, 1
         1     8  writer: a random number for each time that a master begins to lead
         9     8  queue offset of the first record of the newest complete snapshot, -1 for none
        17     …  entries, back to back: kind:1 size:4 payload

If two logs contain a record of one writer at one offset, everything before it is equal.

Kinds and their payloads:

    1 SNAPSHOT       number:4 count:4 and a piece of a snapshot. The concatenated pieces are
                     zlib-compressed entries
    2 ENTRY          size:2 table, size:2 name, value as JSON; empty for a deleted entry
    3 DOCUMENT       size:2 table, its whole content as JSON
    4                of committed offsets (kernel/persistence.py)
    5                of delay levels (kernel/scheduled/delayed.py)
    6 to 8, and 17   of timers (kernel/scheduled/timers/timers.py)
    9 and 10         of pop (features/pop/state.py)
   11 to 13          of deleted topics (kernel/deletions.py)
   14 to 16          of sinks (features/sinks/state.py)
   18                of queue locks (kernel/members/queue_locks.py)
"""

import json
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

VERSION = 1
NO_SNAPSHOT = -1
PIECE_SIZE_BYTES = 256 << 10
ENTRY_SIZE_BYTES = 32 << 10
"""The size of a combined entry: a follower applies one entry without interruption."""

_HEAD = struct.Struct(">BQq")
_ENTRY_HEAD = struct.Struct(">BI")
_SIZE = struct.Struct(">H")
_PIECE = struct.Struct(">II")


class StateKind(IntEnum):
    """The kind of an entry."""

    SNAPSHOT = 1
    ENTRY = 2
    DOCUMENT = 3
    OFFSETS = 4
    DELAYED = 5
    TIMERS = 6
    TIMERS_UNDONE = 7
    TIMERS_ALL = 8
    DELETED = 11
    PURGED = 12
    ENDS = 13
    TIMERS_MORE = 17
    LOCKS = 18


Entry = tuple[int, bytes]
"""Kind and payload. An unknown kind belongs to a later release."""


class StateRecord(NamedTuple):
    """The decoded body of one message."""

    writer: int
    snapshot: int
    entries: list[Entry]


class StateRecordError(ValueError):
    """The body is not a valid record; the message gives the reason."""


def join(kind: int, parts: list[bytes]) -> list[Entry]:
    """Join payloads of one kind into entries of about ENTRY_SIZE_BYTES."""
    entries: list[Entry] = []
    start = size_bytes = 0
    for at, part in enumerate(parts):
        if size_bytes and size_bytes + len(part) > ENTRY_SIZE_BYTES:
            entries.append((kind, b"".join(parts[start:at])))
            start, size_bytes = at, 0
        size_bytes += len(part)
    if size_bytes:
        entries.append((kind, b"".join(parts[start:])))
    return entries


def encode_state(writer: int, snapshot: int, entries: Iterable[Entry]) -> bytes:
    """Encode the body of a record."""
    return _HEAD.pack(VERSION, writer, snapshot) + encode_entries(entries)


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Encode entries, back to back."""
    return b"".join(_ENTRY_HEAD.pack(kind, len(payload)) + payload for kind, payload in entries)


def decode_state(body: bytes) -> StateRecord:
    """Decode the body of a record. Raises StateRecordError."""
    if len(body) < _HEAD.size:
        raise StateRecordError(f"{len(body)} bytes are too few")
    version, writer, snapshot = _HEAD.unpack_from(body)
    if version != VERSION:
        raise StateRecordError(
            f"it has version {version}, but this release knows {VERSION}: upgrade this replica"
        )
    return StateRecord(writer, snapshot, list(decode_entries(body, _HEAD.size)))


def decode_entries(data: bytes, position: int = 0) -> Iterator[Entry]:
    """Yield the entries in *data*. Raises StateRecordError."""
    while position < len(data):
        start = position + _ENTRY_HEAD.size
        if start > len(data):
            raise StateRecordError("it ends within an entry")
        kind, size_bytes = _ENTRY_HEAD.unpack_from(data, position)
        position = start + size_bytes
        if position > len(data):
            raise StateRecordError("it ends within an entry")
        yield kind, data[start:position]


def encode_piece(number: int, count: int, data: bytes) -> bytes:
    """Encode the payload of a piece of a snapshot."""
    return _PIECE.pack(number, count) + data


def decode_piece(payload: bytes) -> tuple[int, int, bytes]:
    """Return a piece's number, the number of pieces, and its content."""
    number, count = _PIECE.unpack_from(payload)
    return number, count, payload[_PIECE.size :]


def encode_table_entry(table: str, name: str, value: Any) -> bytes:
    """Encode the payload of ENTRY; *value* None for a deleted entry."""
    text = b"" if value is None else json.dumps(value).encode()
    return encode_text(table) + encode_text(name) + text


def decode_table_entry(payload: bytes) -> tuple[str, str, Any]:
    """Return table, name and value."""
    table, position = decode_text(payload, 0)
    name, position = decode_text(payload, position)
    text = payload[position:]
    return table, name, json.loads(text) if text else None


def encode_document(table: str, document: bytes) -> bytes:
    """Encode the payload of DOCUMENT."""
    return encode_text(table) + document


def decode_document(payload: bytes) -> tuple[str, bytes]:
    """Return table and content."""
    table, position = decode_text(payload, 0)
    return table, payload[position:]


def encode_slots(places: Iterable[tuple[int, int]]) -> bytes:
    """Encode the payload of TIMERS: slots and queue offsets."""
    return b"".join(struct.pack(">qq", *place) for place in places)


def decode_slots(payload: bytes) -> dict[int, list[int]]:
    """Return the queue offsets by slot."""
    offsets_of: dict[int, list[int]] = {}
    for slot, queue_offset in struct.iter_unpack(">qq", payload):
        offsets_of.setdefault(slot, []).append(queue_offset)
    return offsets_of


def encode_numbers(*numbers: int) -> bytes:
    """Encode each number in eight bytes."""
    return struct.pack(f">{len(numbers)}q", *numbers)


def decode_numbers(payload: bytes, count: int) -> tuple[int, ...]:
    """Decode the first *count* numbers."""
    return struct.unpack_from(f">{count}q", payload)


def encode_text(text: str) -> bytes:
    """Return size:2 and the text in UTF-8."""
    data = text.encode()
    return _SIZE.pack(len(data)) + data


def decode_text(payload: bytes, position: int) -> tuple[str, int]:
    """Return the text at *position*, and the position behind it."""
    (size_bytes,) = _SIZE.unpack_from(payload, position)
    start = position + _SIZE.size
    return payload[start : start + size_bytes].decode(), start + size_bytes
