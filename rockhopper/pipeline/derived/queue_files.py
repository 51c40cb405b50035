"""Consume queue files: read units by number.

protocol.store.queue_layout documents the layouts. Zeros are not a unit: the last file of a queue is
longer than its units. Nothing here maps a file into memory, because a broker may truncate or delete
it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.protocol.store.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT_SIZE_BYTES,
    BLANK_UNIT_SIZE_FIELD,
    CONSUME_QUEUE_UNIT_SIZE_BYTES,
)
from rockhopper.protocol.store.store_paths import (
    BATCH_CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    FILE_NAME_DIGITS,
)

PLAIN_UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
BATCH_UNIT = np.dtype(
    [
        ("position", ">i8"),
        ("size", ">i4"),
        ("code", ">i8"),
        ("ms", ">i8"),
        ("offset", ">i8"),
        ("n", ">i2"),
        ("compacted", ">i4"),
        ("reserved", ">i4"),
    ]
)
assert PLAIN_UNIT.itemsize == CONSUME_QUEUE_UNIT_SIZE_BYTES
assert BATCH_UNIT.itemsize == BATCH_CONSUME_QUEUE_UNIT_SIZE_BYTES

Units = npt.NDArray[Any]

_UNITS_AT_ONCE = 300_000
_ZEROS_LOOKED_AT = 8192


class UnitFile(NamedTuple):
    """One file of a queue; ``start`` is the position of its first byte."""

    start: int
    size_bytes: int
    path: str

    @property
    def end(self) -> int:
        """The position after the file."""
        return self.start + self.size_bytes


def unit_layout(is_batch: bool) -> np.dtype[Any]:
    """Return the layout of the units of a queue."""
    return BATCH_UNIT if is_batch else PLAIN_UNIT


def queue_directory(root: Path, key: QueueKey) -> Path:
    """Return the directory of a queue in the store *root*."""
    parent = BATCH_CONSUME_QUEUE_DIRECTORY if key.is_batch else CONSUME_QUEUE_DIRECTORY
    return root / parent / key.topic / str(key.queue_id)


def find_queues(root: Path) -> Iterator[QueueKey]:
    """Yield the queues that have a directory in the store *root*."""
    for is_batch, name in ((False, CONSUME_QUEUE_DIRECTORY), (True, BATCH_CONSUME_QUEUE_DIRECTORY)):
        for topic in _directories(root / name):
            for queue in _directories(topic):
                if queue.name.isascii() and queue.name.isdecimal():
                    yield QueueKey(topic.name, int(queue.name), is_batch)


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except OSError:
        return []


class ListedQueueFiles:
    """The files of one queue at the time of listing; a file deleted later reads as zeros."""

    def __init__(self, root: Path, key: QueueKey) -> None:
        """List the files; a queue without a directory has none."""
        self.key = key
        self.directory = queue_directory(root, key)
        self.layout = unit_layout(key.is_batch)
        self.files: list[UnitFile] = []
        self.foreign: list[str] = []
        try:
            entries = sorted(os.scandir(self.directory), key=lambda entry: entry.name)
        except OSError:
            entries = []
        for entry in entries:
            if len(entry.name) == FILE_NAME_DIGITS and entry.name.isdecimal() and entry.is_file():
                self.files.append(UnitFile(int(entry.name), entry.stat().st_size, entry.path))
            else:
                self.foreign.append(entry.path)

    @property
    def start(self) -> int:
        """The number of the first unit that the files have room for."""
        return self.files[0].start // self.layout.itemsize if self.files else 0

    @property
    def end(self) -> int:
        """The number after the last unit that the files have room for."""
        return self.files[-1].end // self.layout.itemsize if self.files else 0

    def read(self, first: int, behind: int) -> Units:
        """Return the units [first, behind); missing units are zeros."""
        size = self.layout.itemsize
        start, end = first * size, behind * size
        data = bytearray(end - start)
        for file in self.files:
            low, high = max(start, file.start), min(end, file.end)
            if low < high:
                part = _read(file.path, low - file.start, high - low)
                data[low - start : low - start + len(part)] = part
        return np.frombuffer(data, self.layout)

    def chunks(self, first: int, behind: int) -> Iterator[tuple[int, Units]]:
        """Read in chunks: yield the number of the first unit, and the units."""
        for at in range(max(first, self.start), min(behind, self.end), _UNITS_AT_ONCE):
            yield at, self.read(at, min(at + _UNITS_AT_ONCE, behind, self.end))

    def used_end(self) -> int:
        """Return the number after the last unit; a long run of zeros counts as the end of a file.

        With many queues, the files are long and mostly empty.
        """
        size = self.layout.itemsize
        for file in reversed(self.files):
            end = first = file.start // size
            for at in range(first, file.end // size, _ZEROS_LOOKED_AT):
                units = self.read(at, min(at + _ZEROS_LOOKED_AT, file.end // size))
                used = np.flatnonzero(units["size"])
                if not len(used):
                    break
                end = at + int(used[-1]) + 1
            if end > first:
                return end
        return self.start

    def place(self, number: int) -> tuple[str, int]:
        """Return the file and byte position of unit *number*; the directory if no file has it."""
        at = number * self.layout.itemsize
        for file in self.files:
            if file.start <= at < file.end:
                return file.path, at - file.start
        return str(self.directory), at


def is_blank(units: Units) -> npt.NDArray[np.bool_]:
    """Return a mask of the units that only fill the first file up to the first message."""
    blank: npt.NDArray[np.bool_] = (units["size"] == BLANK_UNIT_SIZE_FIELD) & (
        units["position"] == 0
    )
    return blank


def _read(path: str, at: int, size: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(descriptor, size, at)
    finally:
        os.close(descriptor)
