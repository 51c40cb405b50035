"""How many slots and entries index files have, found out from what is in them.

A file's length, 40 + 4·slots + 20·entries, fits many pairs. The header says which number and which
commit log offset the last entry has: wherever that offset stands in the file, entry 0 begins so
many entries before it, and the slots end there. Of these places only one is such that the entries'
slots, hash % slots, lead back to them.

RocketMQ notes the pair nowhere in a store. Nothing here maps a file, since a broker may delete it.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rockhopper.pipeline.derived.index_files import ENTRY
from rockhopper.pipeline.store_source.pieces import data_ranges
from rockhopper.protocol.store.geometry_note import IndexGeometry
from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_SIZE_BYTES,
    INDEX_SLOT_SIZE_BYTES,
)

_FILES_LOOKED_AT = 4
_TRIES = 3
"""A broker may write to the file meanwhile, so that its header fits no more."""
_ENTRIES_LOOKED_AT = 256
_PLACES_MAX = 4096
_NEWER_ENTRIES_MAX = 64
"""So many are stepped over that were put into a slot since the header was read."""
_CHUNK_BYTES = 16 << 20
_LEAST_AGREEMENT = 0.75
"""What is damaged is to be found with the right geometry, so not everything has to agree."""

_POSITION_AT = 4
"""In an entry, behind its hash."""


class _Ends(NamedTuple):
    """The offsets of the first and the last entry, and the number of the last."""

    begin_offset: int
    end_offset: int
    last: int


def usual_size(paths: Sequence[Path]) -> int | None:
    """The length that most of the files have; None without files."""
    sizes: Counter[int] = Counter()
    for path in paths:
        try:
            sizes[path.stat().st_size] += 1
        except FileNotFoundError:
            continue  # It has expired.
    return max(sizes, key=lambda size: sizes[size]) if sizes else None


def completed(slots: int | None, entries: int | None, size: int) -> IndexGeometry | None:
    """The geometry of files of *size* bytes of which one number is known, if there is one."""
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
    """The geometry that the entries of a file agree with, *likely* tried first.

    None where no file has entries, or what is in them agrees with none.
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
    # RocketMQ counts an entry before it notes the entry's offset: a kill may fall in between.
    for last in (number - 1, number - 2):
        if last < 1 or end_offset < 0:
            return None
        ends = _Ends(begin_offset, end_offset, last)
        if likely.file_size_bytes == size and _agreement(descriptor, likely, ends) >= (
            _LEAST_AGREEMENT
        ):
            return likely
        scored = sorted(
            (_agreement(descriptor, geometry, ends), geometry)
            for geometry in _candidates(descriptor, size, ends)
        )
        is_clear = scored and (len(scored) == 1 or scored[-2][0] < scored[-1][0])
        if is_clear and scored[-1][0] >= _LEAST_AGREEMENT:
            return scored[-1][1]
    return None


def _candidates(descriptor: int, size: int, ends: _Ends) -> list[IndexGeometry]:
    """The geometries by which the last entry has the offset that the header says."""
    found: dict[IndexGeometry, None] = {}
    for at in _places(descriptor, size, ends.end_offset):
        slots_end = at - _POSITION_AT - ends.last * INDEX_ENTRY_SIZE_BYTES
        slots = (slots_end - INDEX_HEADER_SIZE_BYTES) // INDEX_SLOT_SIZE_BYTES
        geometry = completed(slots, None, size) if slots >= 1 else None
        if geometry is not None and geometry.entry_count_max > ends.last:
            found[geometry] = None
        if len(found) == _PLACES_MAX:
            break
    return list(found)


def _places(descriptor: int, size: int, offset: int) -> Iterator[int]:
    """Where in the file *offset* stands behind a word that is not zero, as a hash."""
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


def _agreement(descriptor: int, geometry: IndexGeometry, ends: _Ends) -> float:
    """How much of what the last entries and the first one say agrees with their slots, 0 to 1."""
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
        # A broker may have gone on meanwhile, or died before it wrote the header.
        for _ in range(_NEWER_ENTRIES_MAX):
            if not last < named < geometry.entry_count_max:
                break
            named = int(np.frombuffer(entries(named, 1), ENTRY)["previous"][0])
        agreeing.append(named == number)
    return sum(agreeing) / len(agreeing)
