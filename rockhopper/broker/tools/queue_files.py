"""Read the units of consume queues from outside, file by file, without mapping them.

A broker may append to the files, or delete the oldest ones, at the same time.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.settings.store_layout import StoreLayout, queue_directory
from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.recovering.log_walk import QueueWitnesses
from rockhopper.broker.store.recovering.resizing import FoundFile
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    BLANK_UNIT_SIZE_FIELD,
    CONSUME_QUEUE_UNIT,
)
from rockhopper.protocol.store.store_paths import is_numbered_file

_SEARCHES_MAX = 20_000
_GLANCE_UNITS = 32


class QueueFiles:
    """The current files of one queue; positions are in bytes from the queue's beginning."""

    def __init__(self, directory: Path, *, is_batch: bool) -> None:
        self.directory = directory
        self.is_batch = is_batch
        self.unit = BATCH_CONSUME_QUEUE_UNIT if is_batch else CONSUME_QUEUE_UNIT
        self.files: list[FoundFile] = []
        """Oldest first."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(directory):
                if is_numbered_file(entry.name):
                    found = FoundFile(int(entry.name), entry.stat().st_size, Path(entry.path))
                    self.files.append(found)
        self.files.sort()

    @property
    def start(self) -> int:
        """The position of the first file."""
        return self.files[0][0] if self.files else 0

    @property
    def file_size_bytes(self) -> int:
        """The size of the files, 0 without any."""
        return self.files[0][1] if self.files else 0

    def path_at(self, position: int) -> Path:
        """Return the file that contains *position*, or the directory if there is none."""
        for base, size_bytes, path in self.files:
            if base <= position < base + size_bytes:
                return path
        return self.directory

    def file_position(self, position: int) -> int:
        """Return *position* relative to the beginning of its file."""
        return position - next(
            (base for base, size_bytes, _ in self.files if base <= position < base + size_bytes),
            0,
        )

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of [*start*, *end*), with zeros for missing parts."""
        parts = []
        at = start
        for base, size_bytes, path in self.files:
            first, stop = max(at, base), min(end, base + size_bytes)
            if first >= stop:
                continue
            parts.append(bytes(first - at))
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                data = b""
            else:
                data = os.pread(descriptor, stop - first, first - base)
                os.close(descriptor)
            parts.append(data.ljust(stop - first, b"\0"))
            at = stop
        parts.append(bytes(end - at))
        return b"".join(parts)

    def unit_at(self, position: int) -> tuple[int, ...]:
        """Return the fields of a unit, zeros if it is missing."""
        fields: tuple[int, ...] = self.unit.unpack(self.read(position, position + self.unit.size))
        return fields

    def find_end(self) -> int:
        """Return the end of the units: the first missing one in the last file."""
        for base, size_bytes, path in reversed(self.files):
            with contextlib.suppress(FileNotFoundError):
                count = self._count_in(path, size_bytes)
                if count or base == self.start:
                    return base + count * self.unit.size
        return 0

    def _count_in(self, path: Path, size_bytes: int) -> int:
        """Return the number of units in a file."""
        unit_bytes = self.unit.size
        low, high = 0, size_bytes // unit_bytes
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Most files belong to queues with few messages.
            reach = min(high - 1, _GLANCE_UNITS)
            while low < high:
                unit = os.pread(descriptor, unit_bytes, reach * unit_bytes)
                if len(unit) == unit_bytes and self.unit.unpack(unit)[1] > 0:
                    low = reach + 1
                else:
                    high = reach
                reach = (low + high) // 2
        finally:
            os.close(descriptor)
        return low

    def first_behind(self, log_offset: int) -> int:
        """Return the position of the first unit that points to *log_offset* or a later place."""
        size_bytes = self.unit.size
        low, high = 0, (self.find_end() - self.start) // size_bytes
        while low < high:
            middle = (low + high) // 2
            if self.unit_at(self.start + middle * size_bytes)[0] < log_offset:
                low = middle + 1
            else:
                high = middle
        return self.start + low * size_bytes

    def range_from(self, log_offset: int) -> tuple[int, int]:
        """Return the queue offset of the first message from *log_offset* on, and the end."""
        end, first = self.find_end(), self.first_behind(log_offset)
        if not self.is_batch:
            return first // self.unit.size, end // self.unit.size
        last = self.unit_at(end - self.unit.size) if end > self.start else (0,) * 8
        end_offset = last[4] + last[5]
        return (self.unit_at(first)[4] if first < end else end_offset), end_offset


class FoundQueue(NamedTuple):
    """The directory of a queue."""

    topic: str
    queue_id: int
    is_batch: bool


class QueueDirectories:
    """All queues of a store."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout

    def parent(self, *, is_batch: bool) -> Path:
        """Return the parent directory of the queues of a kind."""
        layout = self._layout
        return layout.batch_consume_queues if is_batch else layout.consume_queues

    def __iter__(self) -> Iterator[FoundQueue]:
        """Yield every queue, by topic and queue id."""
        for is_batch in (False, True):
            for topic in _directories(self.parent(is_batch=is_batch)):
                queue_ids = [
                    int(name.name) for name in _directories(topic) if name.name.isdecimal()
                ]
                for queue_id in sorted(queue_ids):
                    yield FoundQueue(topic.name, queue_id, is_batch)

    def open(self, topic: str, queue_id: int, *, is_batch: bool = False) -> QueueFiles:
        """Return the files of a queue. Raises ValueError if no directory can have the name."""
        parent = self.parent(is_batch=is_batch)
        return QueueFiles(queue_directory(parent, topic, queue_id), is_batch=is_batch)

    def is_batch(self, topic: str) -> bool:
        """Return whether *topic* has batch queues."""
        return (self._layout.batch_consume_queues / topic).is_dir()

    def ends(self) -> dict[QueueKey, int]:
        """Return the next queue offset of each queue that has units."""
        found = ((key, self.open(*key[:2], is_batch=key.is_batch).range_from(0)) for key in self)
        return {(key.topic, key.queue_id): end for key, (_, end) in found if end}


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(path) if entry.is_dir())
    except FileNotFoundError:
        return []


class FoundWitnesses(QueueWitnesses):
    """The evidence of queues about records, for a store that must not change."""

    def __init__(self, queues: QueueDirectories, record_at: Callable[[int], Record | None]) -> None:
        self._directories = queues
        self._record_at = record_at
        self._searches = _SEARCHES_MAX

    def end_of(self, offset: int) -> int | None:
        for key in self._directories:
            self._searches -= 1
            if self._searches < 0:
                break
            queue = self._directories.open(*key[:2], is_batch=key.is_batch)
            at = queue.first_behind(offset)
            unit = queue.unit_at(at) if at < queue.find_end() else (0, 0)
            if unit[0] == offset and 0 < unit[1] < BLANK_UNIT_SIZE_FIELD:
                return offset + unit[1]
        return None

    def opinion(self, record: Record) -> bool | None:
        topic = record.topic.decode(errors="replace")
        try:
            queue = self._directories.open(topic, record.queue_id)
        except ValueError:
            return None
        offset, size_bytes, _ = queue.unit_at(record.queue_offset * queue.unit.size)
        if not 0 < size_bytes < BLANK_UNIT_SIZE_FIELD:
            return None
        if (offset, size_bytes) == (record.offset, record.size_bytes):
            return True
        if offset < record.offset < offset + size_bytes:
            return False
        holder = self._record_at(offset)
        is_taken = holder is not None and holder[6:7] + holder[2:4] == (
            record.topic,
            record.queue_id,
            record.queue_offset,
        )
        return False if is_taken else None
