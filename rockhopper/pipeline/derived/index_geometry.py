"""Infer the number of slots and entries of index files from their contents.

The length of a file, 40 + 4·slots + 20·entries, fits many pairs. The header holds the number of the
last entry and its commit log offset. Wherever that offset occurs in the file, entry 0 begins that
many entries earlier, and the slots end there. For only one of these places do the slots of the
entries, hash % slots, link back to the entries.

RocketMQ stores the pair nowhere. Nothing here maps a file into memory, because a broker may delete
it.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rockhopper.pipeline.derived.index_files import ENTRY
from rockhopper.pipeline.store_source.pieces import data_ranges
from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_SIZE_BYTES,
    INDEX_SLOT_SIZE_BYTES,
    IndexGeometry,
)

_FILES_LOOKED_AT = 4
_TRIES = 3
"""A broker may write to the file at the same time, so that the header no longer fits."""
_ENTRIES_LOOKED_AT = 256
_PLACES_MAX = 4096
_NEWER_ENTRIES_MAX = 64
"""The number of newer entries in a slot to step over: brokers add entries after the header is read.
"""
_CHUNK_BYTES = 16 << 20
_LEAST_AGREEMENT = 0.75
"""Damaged files must still give the right geometry, so not every entry has to agree."""

_POSITION_AT = 4
"""The position within an entry, after its hash."""


class _EndEntries(NamedTuple):
    """The offsets of the first and the last entry, and the number of the last."""

    begin_offset: int
    end_offset: int
    last: int


def usual_size(paths: Sequence[Path]) -> int | None:
    """Return the most frequent length of the files; None without files."""
    sizes: Counter[int] = Counter()
    for path in paths:
        try:
            sizes[path.stat().st_size] += 1
        except FileNotFoundError:
            continue  # It has expired.
    return max(sizes, key=lambda size: sizes[size]) if sizes else None


def complete_geometry(slots: int | None, entries: int | None, size: int) -> IndexGeometry | None:
    """Return the geometry for *size* bytes when one of the two counts is known; None if no fit."""
    rest = size - INDEX_HEADER_SIZE_BYTES
    if slots is not None:
        entries = (rest - slots * INDEX_SLOT_SIZE_BYTES) // INDEX_ENTRY_SIZE_BYTES
    else:
        assert entries is not None
        slots = (rest - entries * INDEX_ENTRY_SIZE_BYTES) // INDEX_SLOT_SIZE_BYTES
    found = IndexGeometry(slots, entries)
    is_possible = slots >= 1 and entries >= 2 and found.file_size_bytes == size
    return found if is_possible else None


def search_geometry(paths: Sequence[Path], likely: IndexGeometry) -> IndexGeometry | None:
    """Find the geometry that the entries of a file agree with; try *likely* first.

    Return None if no file has entries, or if the entries agree with no geometry.
    """
    size = usual_size(paths)
    for path in _of_size(paths, size):
        try:
            with open(path, "rb") as file:
                for _ in range(_TRIES):
                    found = _search_file(file.fileno(), likely)
                    if found is not None:
                        return found
        except OSError:
            continue
    return None


def _of_size(paths: Sequence[Path], size: int | None) -> Iterator[Path]:
    count = 0
    for path in paths:
        try:
            if path.stat().st_size == size and count < _FILES_LOOKED_AT:
                count += 1
                yield path
        except FileNotFoundError:
            continue


def _search_file(descriptor: int, likely: IndexGeometry) -> IndexGeometry | None:
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, INDEX_HEADER_SIZE_BYTES, 0)
    if len(head) < INDEX_HEADER.size:
        return None
    _, _, begin_offset, end_offset, _, number = INDEX_HEADER.unpack_from(head)
    # RocketMQ counts an entry before it stores the entry's offset; a crash may fall in between.
    for last in (number - 1, number - 2):
        if last < 1 or end_offset < 0:
            return None
        ends = _EndEntries(begin_offset, end_offset, last)
        if likely.file_size_bytes == size and _agreement(descriptor, likely, ends) >= (
            _LEAST_AGREEMENT
        ):
            return likely
        best = _best_candidate(descriptor, size, ends)
        if best is not None:
            return best
    return None


def _best_candidate(descriptor: int, size: int, ends: _EndEntries) -> IndexGeometry | None:
    """Return the geometry that agrees best with the file, unless another agrees as well."""
    scored = sorted(
        (_agreement(descriptor, geometry, ends), geometry)
        for geometry in _candidates(descriptor, size, ends)
    )
    is_clear = scored and (len(scored) == 1 or scored[-2][0] < scored[-1][0])
    return scored[-1][1] if is_clear and scored[-1][0] >= _LEAST_AGREEMENT else None


def _candidates(descriptor: int, size: int, ends: _EndEntries) -> list[IndexGeometry]:
    """Return the geometries in which the last entry has the offset from the header."""
    found: dict[IndexGeometry, None] = {}
    for at in _places(descriptor, size, ends.end_offset):
        slots_end = at - _POSITION_AT - ends.last * INDEX_ENTRY_SIZE_BYTES
        slots = (slots_end - INDEX_HEADER_SIZE_BYTES) // INDEX_SLOT_SIZE_BYTES
        geometry = complete_geometry(slots, None, size) if slots >= 1 else None
        if geometry is not None and geometry.entry_count_max > ends.last:
            found[geometry] = None
        if len(found) == _PLACES_MAX:
            break
    return list(found)


def _places(descriptor: int, size: int, offset: int) -> Iterator[int]:
    """Yield the places in the file where *offset* follows a nonzero word, such as a hash."""
    words = np.frombuffer(offset.to_bytes(8, "big"), np.uint32)
    for start, end in data_ranges(descriptor, INDEX_HEADER_SIZE_BYTES, size):
        at = max(start - start % 4 - 2 * 4, INDEX_HEADER_SIZE_BYTES)
        while at < end:
            data = os.pread(descriptor, min(_CHUNK_BYTES, size - at), at)
            part = np.frombuffer(data[: len(data) - len(data) % 4], np.uint32)
            if len(part) < 3:
                break
            is_place = (part[1:-1] == words[0]) & (part[2:] == words[1]) & (part[:-2] != 0)
            yield from (at + 4 * (np.flatnonzero(is_place) + 1)).tolist()
            at += (len(part) - 2) * 4


def _agreement(descriptor: int, geometry: IndexGeometry, ends: _EndEntries) -> float:
    """Return the share of the first and last entries whose slots agree with them, 0 to 1."""
    slots, last = geometry.slot_count, ends.last
    entries_at = INDEX_HEADER_SIZE_BYTES + slots * INDEX_SLOT_SIZE_BYTES

    def entries(first: int, count: int) -> bytes:
        at = entries_at + first * INDEX_ENTRY_SIZE_BYTES
        return os.pread(descriptor, count * INDEX_ENTRY_SIZE_BYTES, at)

    first = max(1, last - _ENTRIES_LOOKED_AT + 1)
    data = entries(first, last - first + 1) + entries(1, 1)
    if len(data) < (last - first + 2) * INDEX_ENTRY_SIZE_BYTES:
        return 0.0
    found = np.frombuffer(data, ENTRY)
    agreeing = [int(found["position"][-1]) == ends.begin_offset]
    newest = {
        value % slots: first + row
        for row, value in enumerate(found["hash"][:-1].tolist())
        if value >= 0
    }
    for slot, number in newest.items():
        at = INDEX_HEADER_SIZE_BYTES + slot * INDEX_SLOT_SIZE_BYTES
        named = int.from_bytes(os.pread(descriptor, INDEX_SLOT_SIZE_BYTES, at), "big")
        # A broker may have written since, or crashed before it wrote the header.
        for _ in range(_NEWER_ENTRIES_MAX):
            if not last < named < geometry.entry_count_max:
                break
            named = int(np.frombuffer(entries(named, 1), ENTRY)["previous"][0])
        agreeing.append(named == number)
    return sum(agreeing) / len(agreeing)
