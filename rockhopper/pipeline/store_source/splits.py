"""Split a commit log into pieces for tasks.

A piece owns the records that start in it. Small files share a task, and large files are split.
Pieces in a hole of a file, or outside the requested times, are left out.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from rockhopper.pipeline.decoder import resync
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.directory import Segment, StoreDirectory
from rockhopper.pipeline.store_source.pieces import FilePiece, data_ranges_of
from rockhopper.pipeline.store_source.rules import (
    SPLIT_SIZE_BYTES_MAX,
    SPLIT_SIZE_BYTES_MIN,
    StoreReadRules,
)
from rockhopper.pipeline.store_source.scan import store_time_ms

# Store times are wall-clock times: a time server may have set the clock back.
CLOCK_MARGIN_MS = 60_000
_PROBE_BYTES = 1 << 20
_PROBES_MAX = 8


def plan(store: StoreDirectory, rules: StoreReadRules, cores: int) -> list[tuple[FilePiece, ...]]:
    """Return the pieces of each task.

    Raises:
        PipelineError: the store has a foreign file, or an offset is outside the log.
    """
    _refuse_foreign_files(store, rules)
    start, end = _bounds(store, rules)
    pieces = list(_ranges(store, start, end))
    pieces = [piece for piece in pieces if piece.start < piece.end]
    total = sum(data_bytes(piece) for piece in pieces)
    size = rules.split_size_bytes or split_size_bytes(total, max(cores, 1))
    cut = [part for piece in pieces for part in _cut(piece, size)]
    if rules.start_ms is not None or rules.end_ms is not None:
        cut = _in_time(cut, rules)
    return list(_grouped(cut, size))


def split_size_bytes(total: int, cores: int) -> int:
    """Return a split size with which all cores finish at about the same time."""
    size = min(max(total // (2 * cores), SPLIT_SIZE_BYTES_MIN), SPLIT_SIZE_BYTES_MAX)
    rounds = -(-total // (size * cores))
    return -(-total // (rounds * cores)) if rounds > 1 else size


def _refuse_foreign_files(store: StoreDirectory, rules: StoreReadRules) -> None:
    if store.foreign_files and rules.corrupt_records == "fail":
        names = ", ".join(store.foreign_files[:3])
        raise PipelineError(
            f"{store.commit_log} holds what is no file of a commit log ({names}): move it away, "
            "or read with corruptRecords=skip"
        )
    for before, after in zip(store.segments, store.segments[1:], strict=False):
        if before.end_offset > after.base_offset:
            raise PipelineError(
                f"{before.path} reaches beyond the start of {after.path}, so one of them is from "
                "another store: move it away"
            )


def _bounds(store: StoreDirectory, rules: StoreReadRules) -> tuple[int, int]:
    first, last = store.start_offset, store.end_offset
    start, end = rules.start_offset, rules.end_offset
    if start is not None and start < first and rules.fail_on_data_loss:
        raise PipelineError(
            f"startPhysOffset={start} is in front of the log, which starts at {first} since older "
            f"files have expired: set it to {first}, or read what is left with failOnDataLoss=false"
        )
    for name, offset in (("startPhysOffset", start), ("endPhysOffset", end)):
        if offset is not None and offset > last:
            raise PipelineError(
                f"{name}={offset} is behind the files of the log, which end at {last}: "
                "set it to at most that, or leave it out"
            )
    if end is None:
        end = last if store.flushed.offset is None else min(last, store.flushed.offset)
    return max(first, start or 0), end


def _ranges(store: StoreDirectory, start: int, end: int) -> Iterator[FilePiece]:
    last_used = max(
        (number for number, file in enumerate(store.segments) if file.starts_with_record),
        default=-1,
    )
    before: Segment | None = None
    for number, file in enumerate(store.segments):
        if before is not None and before.end_offset < file.base_offset:
            gap = max(before.end_offset, start), min(file.base_offset, end)
            if number <= last_used:
                path = os.path.join(os.path.dirname(before.path), f"{before.end_offset:020d}")
                yield FilePiece(path, gap[0], *gap, gap[1], True, store.is_live, None, True)
        before = file
        if file.end_offset <= start or file.base_offset >= end:
            continue
        readable_end = file.end_offset
        if store.flushed.offset is not None and store.flushed.offset > file.base_offset:
            readable_end = min(readable_end, max(store.flushed.offset, end))
        yield FilePiece(
            file.path,
            file.base_offset,
            max(start, file.base_offset),
            min(end, file.end_offset),
            readable_end,
            number < last_used,
            store.is_live,
            store.flushed.time_ms,
        )


def _cut(piece: FilePiece, size: int) -> Iterator[FilePiece]:
    if piece.is_missing:
        yield piece
        return
    base = piece.base_offset
    data = data_ranges_of(piece.path, piece.start - base, piece.end - base)
    # If a file was never written to, its first piece detects that.
    end = base + data[-1][1] if data else min(piece.start + size, piece.end)
    count = max(1, -(-(end - piece.start) // size))
    edges = [piece.start + (end - piece.start) * number // count for number in range(count + 1)]
    for low, high in pairwise(edges):
        if low == piece.start or any(
            first < high - base and low - base < last for first, last in data
        ):
            yield replace(piece, start=low, end=high)


def data_bytes(piece: FilePiece) -> int:
    """Return the number of written bytes in a piece."""
    if piece.is_missing:
        return 0
    low, high = piece.start - piece.base_offset, piece.end - piece.base_offset
    return sum(end - start for start, end in data_ranges_of(piece.path, low, high))


def _in_time(pieces: list[FilePiece], rules: StoreReadRules) -> list[FilePiece]:
    """Return the pieces that may hold records of the requested times."""
    times = [None if piece.is_missing else _first_time_ms(piece) for piece in pieces]
    kept = []
    for number, piece in enumerate(pieces):
        begins = times[number]
        ends = times[number + 1] if number + 1 < len(pieces) else None
        if not _is_late(begins, rules.end_ms) and not _is_early(ends, rules.start_ms):
            kept.append(piece)
    return kept


def _is_late(begins_ms: int | None, end_ms: int | None) -> bool:
    if end_ms is None or begins_ms is None:
        return False
    return begins_ms - CLOCK_MARGIN_MS >= end_ms


def _is_early(ends_ms: int | None, start_ms: int | None) -> bool:
    if start_ms is None or ends_ms is None:
        return False
    return ends_ms + CLOCK_MARGIN_MS < start_ms


def _first_time_ms(piece: FilePiece) -> int | None:
    """Return the store time of the first record in a piece; None if a short search finds none."""
    try:
        with open(piece.path, "rb") as file:
            at = piece.start
            for _ in range(_PROBES_MAX):
                if at >= piece.end:
                    return None
                file.seek(at - piece.base_offset)
                data = file.read(min(_PROBE_BYTES, piece.readable_end - at))
                found = resync(data, 0, piece.end - at, at)
                if found >= 0:
                    return store_time_ms(data, found)
                at += max(len(data) - 96, 1)
    except OSError:
        pass
    return None


def _grouped(pieces: list[FilePiece], size: int) -> Iterator[tuple[FilePiece, ...]]:
    group: list[FilePiece] = []
    room = size
    for piece in pieces:
        need = piece.end - piece.start
        if group and need > room:
            yield tuple(group)
            group, room = [], size
        group.append(piece)
        room -= need
    if group:
        yield tuple(group)
