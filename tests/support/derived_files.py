"""Writes queue and index files with given contents, for tests of what reads them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.pipeline.derived.index_files import ENTRY, build_chains, seconds_since
from rockhopper.pipeline.derived.queue_files import Units, queue_directory, unit_layout
from rockhopper.protocol.store.queue_layout import (
    BLANK_UNIT_SIZE_FIELD,
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER,
    index_file_size_bytes,
)

_ENTRIES_AT_ONCE = 1 << 18


class QueueWriter:
    """Writes units of one queue at their numbers; several processes can write different numbers."""

    def __init__(self, root: Path, key: QueueKey, file_size_bytes: int) -> None:
        """*file_size_bytes* is rounded up to whole units, as Rockhopper and RocketMQ do."""
        self.layout = unit_layout(key.is_batch)
        self.directory = queue_directory(root, key)
        self.file_size_bytes = round_file_size(file_size_bytes, key.is_batch)
        self._has_directory = False

    def write(self, first: int, units: Units) -> None:
        """Write packed *units* from number *first* on; create files as needed."""
        data = memoryview(units.tobytes())
        at = first * self.layout.itemsize
        while data:
            start = at - at % self.file_size_bytes
            count = min(len(data), start + self.file_size_bytes - at)
            descriptor = self._open(start)
            try:
                written = os.pwrite(descriptor, data[:count], at - start)
            finally:
                os.close(descriptor)
            data, at = data[written:], at + written

    def fill_front(self, first: int) -> None:
        """Fill the first file with blank units up to *first*, the queue's first unit."""
        per_file = self.file_size_bytes // self.layout.itemsize
        count = first % per_file
        if count:
            blanks = np.zeros(count, self.layout)
            blanks["size"] = BLANK_UNIT_SIZE_FIELD
            self.write(first - count, blanks)

    def _open(self, start: int) -> int:
        if not self._has_directory:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._has_directory = True
        path = self.directory / f"{start:020d}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(descriptor).st_size != self.file_size_bytes:
            os.ftruncate(descriptor, self.file_size_bytes)
        return descriptor


def round_file_size(size_bytes: int, is_batch: bool) -> int:
    """Round a configured file size up to whole units.

    Raises:
        PipelineError: the size is too small for a unit.
    """
    unit = unit_layout(is_batch).itemsize
    return -(-size_bytes // unit) * unit


def pack_units(units: npt.NDArray[Any], is_batch: bool) -> Units:
    """Convert ``entries.UNIT`` to the layout of queue files."""
    made = np.zeros(len(units), unit_layout(is_batch))
    for name in ("position", "size", "code"):
        made[name] = units[name]
    if is_batch:
        made["ms"], made["offset"], made["n"] = units["ms"], units["offset"], units["n"]
        made["compacted"] = -1
    return made


def write_index_file(
    path: Path,
    hashes: npt.NDArray[Any],
    positions: npt.NDArray[Any],
    times_ms: npt.NDArray[Any],
    slot_count: int,
    entry_count_max: int,
    previous_end_ms: int,
) -> None:
    """Build one file; *previous_end_ms* is the end time of the previous file, 0 without one.

    As in RocketMQ, the seconds of the first entry count from that time.
    """
    count = len(hashes)
    previous, newest = build_chains(hashes, slot_count)
    entries = np.zeros(count, ENTRY)
    entries["hash"] = hashes
    entries["position"] = positions
    entries["seconds"] = seconds_since(times_ms, int(times_ms[0]))
    entries["seconds"][0] = seconds_since(times_ms[:1], previous_end_ms)[0]
    entries["previous"] = previous
    header = INDEX_HEADER.pack(
        int(times_ms[0]),
        int(times_ms[-1]),
        int(positions[0]),
        int(positions[-1]),
        int(np.count_nonzero(newest)),
        count + 1,
    )
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with open(descriptor, "r+b") as file:
        file.truncate(index_file_size_bytes(slot_count, entry_count_max))
        file.write(header)
        file.write(newest.astype(">i4").tobytes())
        file.seek(INDEX_ENTRY_SIZE_BYTES, os.SEEK_CUR)
        for at in range(0, count, _ENTRIES_AT_ONCE):
            file.write(entries[at : at + _ENTRIES_AT_ONCE].tobytes())
        file.flush()
        os.fsync(descriptor)
