"""Index files: read entries, and check chains.

protocol.store.queue_layout documents the layout. Each entry links to the previous entry in the same
slot, so the order of the entries determines all chains of a file. A stable sort of the entry
numbers by slot puts every entry directly after the entry that it links to.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_SIZE_BYTES,
    INDEX_SECONDS_MAX,
    INDEX_SLOT_SIZE_BYTES,
    index_file_size_bytes,
)

ENTRY = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])

_ENTRIES_AT_ONCE = 1 << 18
_NAME_DIGITS = 17

Entries = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class IndexFileInfo:
    """An index file as found on disk; ``next_number`` is the number after its last entry."""

    path: str
    slot_count: int
    entry_count_max: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used_slot_count: int
    next_number: int
    header_end_offset: int = 0
    header_next_number: int = 0
    """The value in the header, which may not yet count the newest entries."""
    is_settled: bool = False
    """Whether the header is final: no broker still has to update it for the newest entries."""
    former_end_ms: int | None = None
    """The end time of the previous file; 0 if there cannot be one, None if it may be deleted."""

    @property
    def entries_at(self) -> int:
        """The position of entry 0."""
        return INDEX_HEADER_SIZE_BYTES + self.slot_count * INDEX_SLOT_SIZE_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the file has no room for another entry."""
        return self.next_number >= self.entry_count_max


def index_paths(directory: Path) -> list[Path]:
    """Return the index files in *directory*, oldest first; like brokers, skip other names."""
    try:
        found = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_file()]
    except OSError:
        return []
    return sorted(found, key=lambda path: int(path.name))


def read_index_info(
    path: Path, slot_count: int, entry_count_max: int, *, look_behind: bool
) -> IndexFileInfo:
    """Read the header of an index file.

    With *look_behind*, also find entries that the header does not count yet: Rockhopper writes the
    header after the entries are on disk.

    Raises:
        ValueError: the file is not an index file of this geometry; the message says why.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(INDEX_HEADER_SIZE_BYTES)
        if size != index_file_size_bytes(slot_count, entry_count_max):
            raise ValueError(
                f"it has {size} bytes, and {slot_count} slots with {entry_count_max} entries make "
                f"{index_file_size_bytes(slot_count, entry_count_max)}"
            )
        header = INDEX_HEADER.unpack(head)
        if not 0 <= header[5] <= entry_count_max:
            raise ValueError(
                f"its header counts {header[5]} entries, at most {entry_count_max} fit"
            )
        if not 0 <= header[2] <= header[3]:
            raise ValueError(f"its header says that it goes from {header[2]} to {header[3]}")
        begin_ms, end_ms, begin_offset, end_offset, used, number = header
        info = IndexFileInfo(
            str(path),
            slot_count,
            entry_count_max,
            begin_ms,
            end_ms,
            begin_offset,
            end_offset,
            used,
            max(number, 1),
            end_offset,
            max(number, 1),
        )
        if not look_behind or info.is_full:
            return info
        return _count_uncounted(file.fileno(), info)


def _count_uncounted(descriptor: int, info: IndexFileInfo) -> IndexFileInfo:
    number, last = info.next_number, info.end_offset
    while number < info.entry_count_max:
        count = min(4096, info.entry_count_max - number)
        part = _entries(descriptor, info, number, number + count)
        is_next = (part["position"] >= last) & (
            part["previous"] < np.arange(number, number + count)
        )
        is_next &= part["hash"].astype(np.int64) + part["position"] > 0
        is_next[1:] &= np.diff(part["position"].astype(np.int64)) >= 0
        good = count if is_next.all() else int(is_next.argmin())
        number += good
        if good:
            last = int(part["position"][good - 1])
        if good < count:
            break
    return replace(info, end_offset=last, next_number=number)


def _entries(descriptor: int, info: IndexFileInfo, first: int, behind: int) -> Entries:
    at = info.entries_at + first * INDEX_ENTRY_SIZE_BYTES
    data = os.pread(descriptor, (behind - first) * INDEX_ENTRY_SIZE_BYTES, at)
    return np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY_SIZE_BYTES], ENTRY)


def entries_between(info: IndexFileInfo, start: int, end: int) -> tuple[int, Entries]:
    """Return the entries of messages in [start, end) of the log, and the number of the first."""
    if info.next_number <= 1 or info.end_offset < start or info.begin_offset >= end:
        return info.next_number, np.empty(0, ENTRY)
    descriptor = os.open(info.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        first = _first_at(descriptor, info, start)
        behind = _first_at(descriptor, info, end)
        return first, _entries(descriptor, info, first, behind)
    finally:
        os.close(descriptor)


def _first_at(descriptor: int, info: IndexFileInfo, offset: int) -> int:
    low, high = 1, info.next_number
    while low < high:
        middle = (low + high) // 2
        if int(_entries(descriptor, info, middle, middle + 1)["position"][0]) < offset:
            low = middle + 1
        else:
            high = middle
    return low


def seconds_since(times_ms: npt.NDArray[Any], begin_ms: int) -> npt.NDArray[np.int64]:
    """Return the seconds field of entries in a file that begins at *begin_ms*; 0 if unknown."""
    if begin_ms <= 0:
        return np.zeros(len(times_ms), np.int64)
    return np.clip((times_ms.astype(np.int64) - begin_ms) // 1000, 0, INDEX_SECONDS_MAX)


def build_chains(hashes: npt.NDArray[Any], slot_count: int) -> tuple[Any, Any]:
    """Return the links of entries 1, 2, …, and the newest entry of each slot."""
    slots = hashes.astype(np.int64) % slot_count
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    previous = np.zeros(len(hashes), np.int32)
    same = ordered[1:] == ordered[:-1]
    previous[order[1:][same]] = order[:-1][same] + 1
    newest = np.zeros(slot_count, np.int32)
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = ~same
    newest[ordered[is_last]] = order[is_last] + 1
    return previous, newest


def check_chains(info: IndexFileInfo) -> Iterator[tuple[int, int, str]]:
    """Check that a file is consistent; yield entry number, commit log offset, and problem."""
    descriptor = os.open(info.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        entries = _entries(descriptor, info, 1, info.next_number)
        data = os.pread(
            descriptor, info.slot_count * INDEX_SLOT_SIZE_BYTES, INDEX_HEADER_SIZE_BYTES
        )
    finally:
        os.close(descriptor)
    if not len(entries):
        return
    positions = entries["position"].astype(np.int64)
    if (np.diff(positions) < 0).any():
        row = int((np.diff(positions) < 0).argmax()) + 1
        yield row + 1, int(positions[row]), "its entries are not in the order of the log"
    if int(positions[0]) != info.begin_offset:
        yield 1, int(positions[0]), f"its header says that it begins at {info.begin_offset}"
    previous, newest = build_chains(entries["hash"], info.slot_count)
    wrong = np.flatnonzero(previous != entries["previous"])
    if len(wrong):
        row = int(wrong[0])
        yield (
            row + 1,
            int(positions[row]),
            f"{len(wrong)} entries do not lead to the one before them in their chain",
        )
    slots = np.frombuffer(data, ">i4")
    wrong = np.flatnonzero(slots != newest)
    if len(wrong):
        entry = int(newest[wrong[0]])
        where = int(positions[entry - 1]) if entry else 0
        yield (
            entry,
            where,
            f"{len(wrong)} slots do not name the newest entry of their chain",
        )
    if info.is_settled:
        yield from _check_header(info, int(positions[-1]), int(np.count_nonzero(newest)))


def _check_header(
    info: IndexFileInfo, last_offset: int, used_slot_count: int
) -> Iterator[tuple[int, int, str]]:
    last = info.next_number - 1
    if info.header_next_number != info.next_number:
        counted = info.header_next_number - 1
        yield last, last_offset, f"its header counts {counted} entries, and {last} are there"
    if info.header_end_offset != last_offset:
        yield last, last_offset, f"its header says that it ends at {info.header_end_offset}"
    # RocketMQ before 4.9 counted every entry here, and other brokers append to its files.
    if not used_slot_count <= info.used_slot_count <= last:
        said = f"its header says that {info.used_slot_count} slots are in use"
        yield last, last_offset, f"{said}, and {used_slot_count} are"
