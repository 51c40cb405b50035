"""Slot files: for each minute of delivery time, what is due in it and what is delivered.

    <directory>/<slot>         entries, 40 bytes each (entries.py)
    <directory>/<slot>.done    notes of deliveries, 16 bytes each, big-endian:

    offset  size  field
         0     8  queue offset in rmq_sys_wheel_timer of the message that is delivered
         8     8  end of the commit log when its copy was about to be written

``slot`` is the number of the minute since the epoch.  A note is written before the copy is: after
a crash the log tells whether it was, see copies.py.
"""

import os
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path

from broker.store import disk
from broker.timers.entries import ENTRY, ENTRY_SIZE_BYTES, KIND_AT, KIND_WITHDRAWAL

# Queue offset of what is delivered, end of the log in front of its copy.
Note = tuple[int, int]
NOTE = struct.Struct(">qq")
DONE_SUFFIX = ".done"
OPEN_FILES_MAX = 64


class SlotFiles:
    """The files of one directory.  Sizes are asked of the disk once, then kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._descriptors: OrderedDict[str, int] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._unsynced: set[str] = set()

    def load(self) -> list[int]:
        """The slots that have a file of entries, oldest first; makes the directory."""
        disk.make_directories_durably(self.directory)
        slots = []
        for path in self.directory.iterdir():
            stem = path.name.removesuffix(DONE_SUFFIX)
            if stem.isdecimal():
                self._sizes[path.name] = path.stat().st_size
                if stem == path.name:
                    slots.append(int(stem))
        return sorted(slots)

    def entries_size(self, slot: int) -> int:
        """Bytes of entries in *slot*."""
        return self._sizes.get(str(slot), 0)

    @property
    def sizes_bytes(self) -> dict[int, int]:
        """Bytes of entries in each slot that has any."""
        return {int(name): size for name, size in self._sizes.items() if size and name.isdecimal()}

    def count_withdrawals(self, slot: int) -> int:
        """How many of the entries of *slot* withdraw another."""
        count = 0
        for piece in self._pieces(str(slot), 1 << 20):
            count += piece[KIND_AT::ENTRY_SIZE_BYTES].count(KIND_WITHDRAWAL)
        return count

    def withdrawn(self, slot: int) -> set[int]:
        """Queue offsets of the messages of *slot* that are withdrawn."""
        offsets: set[int] = set()
        for piece in self._pieces(str(slot), 1 << 20):
            kinds = piece[KIND_AT::ENTRY_SIZE_BYTES]
            at = kinds.find(KIND_WITHDRAWAL)
            while at >= 0:
                offsets.add(ENTRY.unpack_from(piece, at * ENTRY_SIZE_BYTES)[5])
                at = kinds.find(KIND_WITHDRAWAL, at + 1)
        return offsets

    def read_entries(self, slot: int, start: int, size_bytes: int) -> bytes:
        """Bytes of entries of *slot* from *start* on."""
        name = str(slot)
        size_bytes = min(size_bytes, self._sizes.get(name, 0) - start)
        return os.pread(self._open(name), size_bytes, start) if size_bytes > 0 else b""

    def pieces(self, slot: int) -> Iterator[bytes]:
        """All entries of *slot*, in pieces of whole entries."""
        return self._pieces(str(slot), 1 << 16)

    def _pieces(self, name: str, size_bytes: int) -> Iterator[bytes]:
        size_bytes -= size_bytes % ENTRY_SIZE_BYTES
        end = self._sizes.get(name, 0)
        for start in range(0, end, size_bytes):
            yield os.pread(self._open(name), min(size_bytes, end - start), start)

    def notes(self, slot: int) -> list[Note]:
        """What is noted as delivered: queue offsets and ends of the log."""
        name = f"{slot}{DONE_SUFFIX}"
        size_bytes = self._sizes.get(name, 0)
        size_bytes -= size_bytes % NOTE.size
        if size_bytes == 0:
            return []
        return list(NOTE.iter_unpack(os.pread(self._open(name), size_bytes, 0)))

    # -- writing -------------------------------------------------------------------------------

    def append(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Append entries to slots: all of them, or none.

        Raises:
            OSError: the disk is full or failing.
        """
        self._append([(str(slot), data) for slot, data in pieces])

    def note(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Note deliveries: all of them, or none.

        Raises:
            OSError: the disk is full or failing.
        """
        self._append([(f"{slot}{DONE_SUFFIX}", data) for slot, data in pieces])

    def _append(self, pieces: list[tuple[str, bytes]]) -> None:
        before = {name: self._sizes.get(name, 0) for name, _ in pieces}
        try:
            for name, data in pieces:
                size_bytes = self._sizes.get(name, 0)
                disk.write_fully(self._open(name), size_bytes, data)
                self._sizes[name] = size_bytes + len(data)
                self._unsynced.add(name)
        except OSError:
            for name, size_bytes in before.items():
                self._cut(name, size_bytes)
            raise

    def forget_notes(self, slot: int, count: int) -> None:
        """Take back the last *count* notes of *slot*: their copies were not written."""
        name = f"{slot}{DONE_SUFFIX}"
        self._cut(name, max(self._sizes.get(name, 0) - count * NOTE.size, 0))

    def rewrite_notes(self, slot: int, notes: Iterable[Note]) -> None:
        """Replace what is noted of *slot*."""
        name = f"{slot}{DONE_SUFFIX}"
        data = b"".join([NOTE.pack(*note) for note in notes])
        self._close(name)
        disk.write_atomically(self.directory / name, data)
        self._sizes[name] = len(data)

    def trim(self, slot: int, end_offset: int) -> None:
        """Cut off the entries of messages from *end_offset* of the queue on, and what is none."""
        name = str(slot)
        kept = self._sizes.get(name, 0)
        kept -= kept % ENTRY_SIZE_BYTES
        step = 1024 * ENTRY_SIZE_BYTES
        while kept > 0:
            start = max(kept - step, 0)
            data = os.pread(self._open(name), kept - start, start)
            while data:
                _, _, size_bytes, _, queue_offset, _ = ENTRY.unpack_from(
                    data, len(data) - ENTRY_SIZE_BYTES
                )
                if size_bytes > 0 and queue_offset < end_offset:
                    break
                data = data[:-ENTRY_SIZE_BYTES]
            kept = start + len(data)
            if data:
                break
        if kept != self._sizes.get(name, 0):
            self._cut(name, kept)

    def _cut(self, name: str, size_bytes: int) -> None:
        if name in self._sizes:
            os.ftruncate(self._open(name), size_bytes)
            self._sizes[name] = size_bytes

    # -- files ---------------------------------------------------------------------------------

    def _open(self, name: str) -> int:
        descriptor = self._descriptors.get(name)
        if descriptor is not None:
            self._descriptors.move_to_end(name)
            return descriptor
        if len(self._descriptors) >= OPEN_FILES_MAX:
            os.close(self._descriptors.popitem(last=False)[1])
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(self.directory / name, flags, 0o644)
        self._descriptors[name] = descriptor
        self._sizes.setdefault(name, 0)
        return descriptor

    def _close(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def take_unsynced(self) -> list[Path]:
        """The files that changed since the last call, for ``sync``."""
        names, self._unsynced = self._unsynced, set()
        return [self.directory / name for name in sorted(names)]

    def unsynced_again(self, paths: Iterable[Path]) -> None:
        """Say that they could not be synced."""
        self._unsynced.update(path.name for path in paths if path.name in self._sizes)

    def forget(self, slot: int) -> list[Path]:
        """Give up a slot; return its files, which the caller deletes."""
        paths = []
        for name in (str(slot), f"{slot}{DONE_SUFFIX}"):
            self._close(name)
            self._unsynced.discard(name)
            if self._sizes.pop(name, None) is not None:
                paths.append(self.directory / name)
        return paths

    def wipe(self) -> None:
        """Delete every file: the index is to be built anew."""
        self.close()
        disk.remove_files([self.directory / name for name in self._sizes])
        self._sizes.clear()
        self._unsynced.clear()

    def close(self) -> None:
        """Close what is open."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


def sync(paths: Iterable[Path]) -> None:
    """Make files durable, but for those that are gone.  Blocks: for a thread."""
    directories: set[Path] = set()
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            disk.sync_file(descriptor)
        finally:
            os.close(descriptor)
        directories.add(path.parent)
    for directory in directories:
        disk.sync_directory(directory)
