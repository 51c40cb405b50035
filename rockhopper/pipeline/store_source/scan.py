"""Read the records of one piece of the log, and classify the places without records.

The file is read in windows rather than mapped, because a broker may truncate it during the read.

Bytes that are not a record are the end of the log if no record follows them; else they are damage.
Damage belongs to the piece whose records lead up to it. If a piece begins inside a record or inside
damage, it starts with the first record that begins in it.
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.decoder import (
    Records,
    Stop,
    Walk,
    is_record,
    pick,
    read_records,
    resync,
    walk,
)
from rockhopper.pipeline.store_source.pieces import FilePiece, data_ranges
from rockhopper.protocol.store.record_head import STORE_TIME_AT, SYS_FLAG_AT
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6

WINDOW_BYTES = 8 << 20
RECORD_SIZE_BYTES_MAX = 1 << 28
# If records after damage are older than those before it, they are leftovers: RocketMQ leaves
# truncated records in its files.
STALE_MARGIN_MS = 3_000
_HEAD_BYTES = 96


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A range of commit log offsets that should hold records but holds none."""

    start: int
    end: int
    reason: str
    path: str
    is_torn_tail: bool = False
    """Whether it is the rest of an incomplete write at the log's end."""


def scan(piece: FilePiece, window_bytes: int = WINDOW_BYTES) -> Iterator[Records | DamagedRange]:
    """Yield the records that start in *piece*, and damage, in log order.

    The yielded records are sound and at the offset that they name. They are valid only until the
    next step, because their buffer is reused.

    Raises:
        FileNotFoundError: the file has expired since.
    """
    if piece.is_missing:
        yield DamagedRange(
            piece.start, piece.end, "a file of the commit log is missing", piece.path
        )
        return
    scanner = _Scanner(piece, window_bytes)
    try:
        yield from scanner.scan()
    finally:
        scanner.close()


class _Scanner:
    def __init__(self, piece: FilePiece, window_bytes: int) -> None:
        self._piece = piece
        self._descriptor = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC)
        self._file_end = piece.base_offset + os.fstat(self._descriptor).st_size
        self._readable_end = min(piece.readable_end, self._file_end)
        self._end = min(piece.end, self._readable_end)
        self._window_bytes = window_bytes
        self._buffer = bytearray(max(min(window_bytes, self._readable_end - piece.start), 1))
        self._last_ms = 0
        self._is_over = False

    def close(self) -> None:
        os.close(self._descriptor)

    def scan(self) -> Iterator[Records | DamagedRange]:
        at = self._piece.start
        if at != self._piece.base_offset:
            at = self._find(at, self._end)
        while 0 <= at < self._end and not self._is_over:
            at = yield from self._step(at)
        if self._end <= at < self._readable_end and not self._is_over:
            # This belongs to the next piece, unless it is damage: then no other piece would report
            # it.
            yield from self._look_at(at)

    def _step(self, at: int) -> Generator[Records | DamagedRange, None, int]:
        """Yield the contents of one window from *at* on; return the next position, or −1."""
        window = self._window(at)
        found = walk(window, 0, min(self._end - at, len(window)))
        stopped_at = at
        if len(found.offsets):
            records = read_records(np.frombuffer(window, np.uint8), found.offsets)
            is_bad = _is_bad(records, at)
            if is_bad.any():
                first = int(is_bad.argmax())
                reason = _explain_damage(records, first, at)
                stopped_at = at + int(records.offsets[first])
                yield from self._counted(pick(records, slice(first)))
                return (yield from self._damage(stopped_at, reason))
            stopped_at = at + int(records.ends[-1])
            yield from self._counted(records)
        if stopped_at >= self._end:
            return stopped_at
        next_at = self._next_position(window, found, at, stopped_at)
        if next_at is not None:
            return next_at
        size = int.from_bytes(window[stopped_at - at : stopped_at - at + 4], "big")
        return (yield from self._damage(stopped_at, self._why_stopped(found, stopped_at, size)))

    def _next_position(
        self, window: memoryview, found: Walk, at: int, stopped_at: int
    ) -> int | None:
        """Return where to go on, or −1 at the end of the records; None if there is damage."""
        if found.stop is Stop.BLANK and at + found.end == self._file_end:
            return -1
        left = at + len(window) - stopped_at
        if at + len(window) < self._readable_end and (found.stop is Stop.CUT or left < 8):
            return stopped_at if stopped_at > at or self._grow(window) else None
        return -1 if found.stop is Stop.ZEROS and left < 8 else None

    def _counted(self, records: Records) -> Iterator[Records]:
        """Yield the *records* that count: for the log of a running broker, the flushed ones."""
        if not len(records):
            return
        times = records.heads["storeTimestamp"]
        limit = self._piece.flushed_ms
        if limit is not None and (times > limit).any():
            self._is_over = True
            records = pick(records, slice(int((times > limit).argmax())))
        if len(records):
            self._last_ms = int(times[len(records) - 1])
            yield records

    def _is_left_over(self, at: int) -> bool:
        """Whether the record at *at* was not flushed, or is from an earlier use of the file."""
        time_ms = self._store_time_ms(at)
        is_unflushed = self._piece.flushed_ms is not None and time_ms > self._piece.flushed_ms
        return is_unflushed or time_ms < self._last_ms - STALE_MARGIN_MS

    def _damage(self, at: int, reason: str) -> Generator[DamagedRange, None, int]:
        found = self._find(at + 1, self._readable_end)
        if found >= 0 and not self._piece.is_followed and self._is_left_over(found):
            found = -1
        path = self._piece.path
        if found >= 0:
            yield DamagedRange(at, found, reason, path)
            return found if found < self._end else -1
        if self._piece.is_followed:
            yield DamagedRange(at, self._file_end, reason, path)
        elif not self._piece.is_live and any(self._read(at, 8)):
            yield DamagedRange(at, self._file_end, reason, path, True)
        return -1

    def _look_at(self, at: int) -> Iterator[DamagedRange]:
        head = self._read(at, _HEAD_BYTES)
        if len(head) < 8 or self._is_record(at):
            return
        found = walk(head, 0, 1)
        if found.stop is Stop.BLANK and at + found.end == self._file_end:
            return
        size = int.from_bytes(head[:4], "big")
        if found.stop is Stop.CUT and at + size <= self._readable_end:
            found = walk(head := self._read(at, min(size, RECORD_SIZE_BYTES_MAX)), 0, 1)
        if len(found.offsets):
            records = read_records(np.frombuffer(head, np.uint8), found.offsets)
            yield from self._damage(at, _explain_damage(records, 0, at))
        else:
            yield from self._damage(at, self._why_stopped(found, at, size))

    def _why_stopped(self, found: Walk, at: int, size: int) -> str:
        if found.stop is Stop.BLANK:
            return "a blank record that does not end with the file"
        if found.stop is Stop.CUT:
            return f"a record of {size} bytes where {self._readable_end - at} are left"
        return found.problem or "zeros instead of a record"

    def _find(self, start: int, end: int) -> int:
        """Return the first record that starts in [start, end); −1 if there is none."""
        base = self._piece.base_offset
        for low, high in data_ranges(self._descriptor, start - base, end - base):
            # The first bytes of a record may be zeros, and so lie before the written range.
            at, stop = max(base + low - 3, start), base + high
            while at < stop:
                data = self._read(at, self._window_bytes)
                found = resync(data, 0, stop - at, at)
                if found >= 0:
                    # Only the head of a record was checked if the window cuts it off.
                    if self._is_record(at + found):
                        return at + found
                    at += found + 1
                elif len(data) <= _HEAD_BYTES:
                    break
                else:
                    at += len(data) - _HEAD_BYTES
        return -1

    def _is_record(self, at: int) -> bool:
        size = int.from_bytes(self._read(at, 4), "big")
        return is_record(self._read(at, min(size, RECORD_SIZE_BYTES_MAX)), 0, at)

    def _window(self, at: int) -> memoryview:
        view = memoryview(self._buffer)[: max(self._readable_end - at, 0)]
        count = os.preadv(self._descriptor, [view], at - self._piece.base_offset)
        return view[:count]

    def _grow(self, window: memoryview) -> bool:
        """Enlarge the buffer to the size of the record; return False if it is not a record."""
        size = int.from_bytes(window[:4], "big")
        if not len(self._buffer) < size <= RECORD_SIZE_BYTES_MAX:
            return False
        self._buffer = bytearray(size)
        return True

    def _read(self, at: int, size: int) -> bytes:
        size = min(size, self._readable_end - at)
        return os.pread(self._descriptor, size, at - self._piece.base_offset) if size > 0 else b""

    def _store_time_ms(self, at: int) -> int:
        head = self._read(at, _HEAD_BYTES)
        return store_time_ms(head, 0)


def store_time_ms(data: bytes, at: int) -> int:
    """Return the store time of the record at *at*; its head must be in *data*."""
    shift = 12 if data[at + SYS_FLAG_AT + 3] & SYS_FLAG_BORN_HOST_V6 else 0
    at += STORE_TIME_AT + shift
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def _is_bad(records: Records, at: int) -> npt.NDArray[np.bool_]:
    heads = records.heads
    makes_sense = (heads["storeTimestamp"] > 0) & (heads["queueId"] >= 0)
    makes_sense &= heads["queueOffset"] >= 0
    is_here = heads["physOffset"] == records.offsets + at
    bad: npt.NDArray[np.bool_] = ~(records.sound & makes_sense & is_here)
    return bad


def _explain_damage(records: Records, row: int, at: int) -> str:
    if not records.sound[row]:
        return "the sizes in a record do not add up"
    says, is_at = int(records.heads["physOffset"][row]), at + int(records.offsets[row])
    if says != is_at:
        return f"the record at {is_at} says that it stands at {says}"
    return "the store time, queue id or queue offset of a record makes no sense"
