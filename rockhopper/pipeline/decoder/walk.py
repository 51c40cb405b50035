"""Find records in a buffer: follow their sizes, or resynchronise after damage or in a split."""

import mmap
import struct
from enum import Enum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    HEAD_SIZE_BYTES,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_START,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_BYTES_MIN,
    SYS_FLAG_AT,
    body_start,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
Offsets: TypeAlias = npt.NDArray[np.int64]

# After this many records of one size, try as many more as have the same size, all at once.
EQUAL_SIZES_MIN = 8
RUN_MAX = 1 << 16
# After this many records of different sizes, search for magics in the bytes ahead.
VARIOUS_SIZES_MIN = 16
_AHEAD_BYTES_MIN, _AHEAD_BYTES_MAX = 1 << 14, 1 << 18
_MAGICS = frozenset({MAGIC_V1, MAGIC_V2})
_HEADS = np.dtype([("size", ">u4"), ("magic", ">u4")])
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_QUEUE_OFFSET_BYTES = np.arange(QUEUE_OFFSET_AT, QUEUE_OFFSET_AT + 8)
_SYS_FLAG_BYTES = np.arange(SYS_FLAG_AT, SYS_FLAG_AT + 4)
_LOOKED_AT_ONE_BY_ONE_MAX = 32
_UINT16 = struct.Struct(">H")


class Stop(Enum):
    """The reason why a walk ended."""

    END = "end"
    """At or after the requested end."""
    BLANK = "blank"
    """At the blank record that fills the end of a file; ``end`` is after it."""
    ZEROS = "zeros"
    """At bytes that were never written."""
    CUT = "cut"
    """At a record, or a part of one, that extends beyond the buffer."""
    BAD = "bad"
    """At bytes that are not a record."""


class Walk(NamedTuple):
    """The records of a buffer."""

    offsets: Offsets
    """The position of each record in the buffer, ascending."""
    end: int
    """The position after the last record, or of the first byte that is not a record."""
    problem: str | None
    """Why the walk stopped early; None at the requested end, a blank record, or zeros."""
    stop: Stop = Stop.END


def walk(buffer: Buffer, start: int, end: int) -> Walk:
    """Find the records that start in [start, end) of *buffer*, by their sizes alone.

    Each record is complete in the buffer. Only decoding checks its contents.
    """
    runs: list[Offsets] = []
    offsets: list[int] = []
    read = BLANK_RECORD.unpack_from
    size_bytes = len(buffer)
    last_start = min(end, size_bytes - RECORD_SIZE_BYTES_MIN + 1)
    at = start
    last_size = equal_sizes = 0
    ahead_bytes = _AHEAD_BYTES_MIN
    while at < last_start:
        size, magic = read(buffer, at)
        if magic not in _MAGICS:
            break
        behind = at + size
        if behind > size_bytes or size < RECORD_SIZE_BYTES_MIN:
            break
        equal_sizes = equal_sizes + 1 if size == last_size else 0
        last_size = size
        if equal_sizes >= EQUAL_SIZES_MIN:
            # Records of one kind often have one size: check many at once.
            run = _equal_records(buffer, at, size, magic, min(last_start, size_bytes - size + 1))
            at = int(run[-1]) + size
            equal_sizes = 0
        else:
            offsets.append(at)
            at = behind
            if len(offsets) < VARIOUS_SIZES_MIN:
                continue
            run, at = _linked_records(buffer, at, min(at + ahead_bytes, last_start))
            ahead_bytes = min(2 * ahead_bytes, _AHEAD_BYTES_MAX) if len(run) else _AHEAD_BYTES_MIN
        runs += [np.array(offsets, dtype=np.int64), run]
        offsets = []
    runs.append(np.array(offsets, dtype=np.int64))
    found = np.concatenate(runs)
    if at >= end:
        return Walk(found, at, None)
    return Walk(found, *_why_stopped(buffer, at, size_bytes - at))


def are_in_row(buffer: Buffer, offsets: Offsets, first: int, end: int) -> bool:
    """Return whether these records from ``walk`` have the queue offsets [first, end), in order.

    A record that holds a batch has several queue offsets, so the result is False for it.
    """
    if len(offsets) != end - first:
        return False
    if len(offsets) > _LOOKED_AT_ONE_BY_ONE_MAX:
        data = np.frombuffer(buffer, np.uint8)
        queue_offsets = data[offsets[:, None] + _QUEUE_OFFSET_BYTES].view(">i8")[:, 0]
        flags = data[offsets[:, None] + _SYS_FLAG_BYTES].view(">i4")[:, 0]
        is_row = bool((queue_offsets == np.arange(first, end)).all())
        return is_row and not (flags & SYS_FLAG_INNER_BATCH).any()
    for queue_offset, at in enumerate(offsets.tolist(), first):
        if _INT64.unpack_from(buffer, at + QUEUE_OFFSET_AT) != (queue_offset,):
            return False
        if _INT32.unpack_from(buffer, at + SYS_FLAG_AT)[0] & SYS_FLAG_INNER_BATCH:
            return False
    return True


def _equal_records(buffer: Buffer, at: int, size: int, magic: int, last_start: int) -> Offsets:
    """Find the records from *at* on, before *last_start*, that have the same size and magic."""
    count = 32
    found = 1
    while True:
        count = min(count * 4, RUN_MAX, (last_start - 1 - at) // size + 1)
        heads = np.ndarray(count, _HEADS, buffer, at, (size,))
        same = (heads["size"] == size) & (heads["magic"] == magic)
        found = count if same.all() else int(same.argmin())
        if found < count or count >= RUN_MAX or at + count * size >= last_start:
            return at + size * np.arange(found, dtype=np.int64)


def _linked_records(buffer: Buffer, at: int, last_start: int) -> tuple[Offsets, int]:
    """Find the records from *at* on, before *last_start*; also return the position of the next one.

    The end of each record must be the next place with a magic. The search ends early at a magic
    inside a record, or at bytes that are not a record.
    """
    size_bytes = len(buffer)
    count = last_start - at
    if count <= 0:
        return np.empty(0, np.int64), at
    firsts: npt.NDArray[np.uint8] = np.ndarray(count, np.uint8, buffer, at + MAGIC_AT)
    places = np.flatnonzero(firsts == MAGIC_START[0])
    heads = np.ndarray(count, _HEADS, buffer, at, (1,))
    magics = heads["magic"][places]
    places = places[(magics == MAGIC_V1) | (magics == MAGIC_V2)]
    if not len(places) or places[0] != 0:
        return np.empty(0, np.int64), at
    sizes = heads["size"][places].astype(np.int64)
    behind = places + sizes
    is_whole = (sizes >= RECORD_SIZE_BYTES_MIN) & (behind <= size_bytes - at)
    leads_on = is_whole[:-1] & (behind[:-1] == places[1:])
    found = int(leads_on.argmin()) if not leads_on.all() else len(leads_on)
    if is_whole[found]:
        found += 1
    return places[:found] + at, at + int(behind[found - 1]) if found else at


def _why_stopped(buffer: Buffer, at: int, available: int) -> tuple[int, str | None, Stop]:
    if available < 8:
        if not any(buffer[at : at + available]):
            return at, None, Stop.ZEROS
        return at, f"{available} bytes are too few for a record", Stop.CUT
    size, magic = BLANK_RECORD.unpack_from(buffer, at)
    if size == 0 and magic == 0:
        return at, None, Stop.ZEROS
    if magic == MAGIC_BLANK and size >= 8:
        return at + size, None, Stop.BLANK
    if magic not in _MAGICS:
        return at, f"0x{magic:08X} is not the magic of a record", Stop.BAD
    if size < RECORD_SIZE_BYTES_MIN or size > 0x7FFFFFFF:
        return at, f"a record cannot have {size} bytes", Stop.BAD
    return at, f"a record of {size} bytes where {available} are left", Stop.CUT


def resync(buffer: Buffer, start: int, end: int, base_offset: int) -> int:
    """Find the first record start in [start, end) of *buffer*; −1 if there is none.

    *base_offset* is the commit log offset of the buffer's first byte. A place counts as a record if
    its head holds the commit log offset of that place and its sizes add up. So a copy of a record
    inside a body does not count. If a record extends beyond the buffer, only its head is checked.
    """
    size_bytes = len(buffer)
    data = bytes(buffer) if isinstance(buffer, memoryview) else buffer
    behind = min(end + MAGIC_AT + len(MAGIC_START) - 1, size_bytes)
    at = data.find(MAGIC_START, start + MAGIC_AT, behind)
    while at >= 0:
        if is_record(buffer, at - MAGIC_AT, base_offset):
            return at - MAGIC_AT
        at = data.find(MAGIC_START, at + 1, behind)
    return -1


def is_record(buffer: Buffer, at: int, base_offset: int) -> bool:
    """Return whether the bytes at *at* are the start of a record; see ``resync`` for the rule."""
    available = len(buffer) - at
    if available < HEAD_SIZE_BYTES:
        return False
    size, magic = BLANK_RECORD.unpack_from(buffer, at)
    if magic not in _MAGICS or not RECORD_SIZE_BYTES_MIN <= size <= 0x7FFFFFFF:
        return False
    if _INT64.unpack_from(buffer, at + LOG_OFFSET_AT)[0] != base_offset + at:
        return False
    if size > available:
        return True
    if buffer[at + QUEUE_ID_AT] & 0x80 or buffer[at + QUEUE_OFFSET_AT] & 0x80:
        return False  # Queue ids and queue offsets are never negative.
    return _adds_up(buffer, at, size, magic)


def _adds_up(buffer: Buffer, at: int, size: int, magic: int) -> bool:
    """Return whether the lengths of body, topic and properties lead to the end of the record."""
    body_at = at + body_start(_INT32.unpack_from(buffer, at + SYS_FLAG_AT)[0])
    record_end = at + size
    if body_at + 3 > record_end:
        return False
    body_end = body_at + _INT32.unpack_from(buffer, body_at - 4)[0]
    if not body_at <= body_end <= record_end - (3 if magic == MAGIC_V1 else 4):
        return False
    if magic == MAGIC_V1:
        topic_end = body_end + 1 + buffer[body_end]
    else:
        topic_end = body_end + 2 + _UINT16.unpack_from(buffer, body_end)[0]
    if topic_end + 2 > record_end:
        return False
    return bool(topic_end + 2 + _UINT16.unpack_from(buffer, topic_end)[0] == record_end)
