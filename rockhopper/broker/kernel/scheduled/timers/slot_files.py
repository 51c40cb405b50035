"""Slot files: the due messages and the deliveries of each minute of delivery time.

    <directory>/<slot>          entries, 40 bytes each (entries.py)
    <directory>/<slot>.records  the delivery journal: records (protocol/store/journal_records.py)
                                of one kind, 1, one for each pass, with this big-endian payload:

    offset  size  field
         0     8  end of the commit log just before the copies were written
         8     …  queue offsets in rmq_sys_wheel_timer of the messages delivered, 8 bytes each

``slot`` is the number of the minute since the epoch. A journal entry is written before its copies.
After a crash the log shows whether the copies were written, see copies.py. The checkpoint contains
the checksum of a slot's entries.

Builds before 0.2.0 wrote ``<slot>.done``: 16 bytes for each message, its queue offset and the end
of the log. These files are read and converted to records at the start.
"""

import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from rockhopper.broker.kernel.scheduled.timers.entries import (
    ENTRY,
    ENTRY_SIZE_BYTES,
    KIND_AT,
    KIND_WITHDRAWAL,
)
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_file import read_records, repair
from rockhopper.protocol.store.journal_records import RecordsRead, encode_record

log = structlog.get_logger("broker.timers")

# Queue offset of a delivered message, and the end of the log before its copy.
Note = tuple[int, int]
NOTES = 1
NOTES_SUFFIX = ".records"
_BARE_NOTE = struct.Struct(">qq")
_BARE_SUFFIX = ".done"
_NUMBER = struct.Struct(">q")
OPEN_FILES_MAX = 64


class SlotFiles:
    """The files of one directory. Sizes are read from disk once, then tracked in memory."""

    def __init__(self, directory: Path, quarantine: Path) -> None:
        self.directory = directory
        self._quarantine = quarantine
        self.descriptors: OrderedDict[str, int] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._unsynced: set[str] = set()
        self._crcs: dict[str, int] = {}
        # Slots with a file whose size has changed since ``take_changed``.
        self._changed: set[int] = set()
        # The ends of journal files before the last ``note``.
        self._noted_from: dict[str, int] = {}
        # The last slot that was searched for recalls, and the recalls found.
        self._withdrawn: tuple[int, set[int]] | None = None
        # Slots without entries, whose journals may be deleted once that is on disk.
        self._over: set[int] = set()

    def load(self) -> list[int]:
        """Return the slots that have a file, oldest first; create the directory."""
        disk.make_directories_durably(self.directory)
        slots = set()
        for path in self.directory.iterdir():
            stem = path.name.removesuffix(NOTES_SUFFIX).removesuffix(_BARE_SUFFIX)
            if stem.isdecimal():
                self._note_size(path.name, path.stat().st_size)
                slots.add(int(stem))
        return sorted(slots)

    def entries_size(self, slot: int) -> int:
        """Return the size of the entries of *slot*."""
        return self._sizes.get(str(slot), 0)

    def count_withdrawals(self, slot: int) -> int:
        """Return the number of entries of *slot* that are recalls."""
        count = 0
        for piece in self._pieces(str(slot), 1 << 20):
            count += piece[KIND_AT::ENTRY_SIZE_BYTES].count(KIND_WITHDRAWAL)
        return count

    def withdrawn(self, slot: int) -> set[int]:
        """Return the queue offsets of the recalled messages of *slot*; do not modify the set.

        It is cached until the slot changes, because it is queried once for each message.
        """
        if self._withdrawn is not None and self._withdrawn[0] == slot:
            return self._withdrawn[1]
        offsets: set[int] = set()
        for piece in self._pieces(str(slot), 1 << 20):
            kinds = piece[KIND_AT::ENTRY_SIZE_BYTES]
            at = kinds.find(KIND_WITHDRAWAL)
            while at >= 0:
                offsets.add(ENTRY.unpack_from(piece, at * ENTRY_SIZE_BYTES)[5])
                at = kinds.find(KIND_WITHDRAWAL, at + 1)
        self._withdrawn = slot, offsets
        return offsets

    def read_entries(self, slot: int, start: int, size_bytes: int) -> bytes:
        """Return entries of *slot* from byte *start* on."""
        name = str(slot)
        size_bytes = min(size_bytes, self._sizes.get(name, 0) - start)
        return os.pread(self._open(name), size_bytes, start) if size_bytes > 0 else b""

    def pieces(self, slot: int) -> Iterator[bytes]:
        """Yield all entries of *slot*, in pieces of whole entries."""
        return self._pieces(str(slot), 1 << 16)

    def _pieces(self, name: str, size_bytes: int) -> Iterator[bytes]:
        size_bytes -= size_bytes % ENTRY_SIZE_BYTES
        end = self._sizes.get(name, 0)
        for start in range(0, end, size_bytes):
            yield os.pread(self._open(name), min(size_bytes, end - start), start)

    def take_changed(self) -> dict[int, tuple[int, int, int]]:
        """Return, for each changed slot, its bytes, their CRC-32, and the bytes of its journal."""
        slots, self._changed = self._changed, set()
        sizes = self._sizes
        return {
            slot: (
                sizes.get(str(slot), 0),
                self._crc(str(slot)) if sizes.get(str(slot)) else 0,
                sizes.get(f"{slot}{NOTES_SUFFIX}", 0),
            )
            for slot in slots
        }

    def changed_again(self, slots: Iterable[int]) -> None:
        """Mark slots as changed again after ``take_changed``, because they could not be saved."""
        self._changed.update(slots)

    def _note_size(self, name: str, size_bytes: int | None) -> bool:
        """Record the size of a file, None: deleted; return whether it existed."""
        stem = name.removesuffix(NOTES_SUFFIX).removesuffix(_BARE_SUFFIX)
        if stem.isdecimal():
            self._changed.add(int(stem))
            if self._withdrawn is not None and self._withdrawn[0] == int(stem):
                self._withdrawn = None
        if size_bytes is None:
            return self._sizes.pop(name, None) is not None
        self._sizes[name] = size_bytes
        return True

    def _crc(self, name: str) -> int:
        crc = self._crcs.get(name)
        if crc is None:
            crc = 0
            for piece in self._pieces(name, 1 << 20):
                crc = zlib.crc32(piece, crc)
            self._crcs[name] = crc
        return crc

    def notes(self, slot: int) -> tuple[list[Note], bool]:
        """Return the recorded deliveries (queue offset, end of the log), and whether all are there.

        Repairs damaged files. Raises OSError.
        """
        bare = self._read_bare_notes(slot)
        name = f"{slot}{NOTES_SUFFIX}"
        if not self._sizes.get(name):
            return bare, True
        read = read_records(self.directory / name)
        if read.damages:
            self._mend(name, read)
        notes = bare
        for kind, payload in read.records:
            if kind == NOTES and len(payload) % _NUMBER.size == 0 and payload:
                (log_end,), *offsets = _NUMBER.iter_unpack(payload)
                notes += [(offset, log_end) for (offset,) in offsets]
        return notes, not read.is_lossy

    def _read_bare_notes(self, slot: int) -> list[Note]:
        path = self.directory / f"{slot}{_BARE_SUFFIX}"
        if path.name not in self._sizes:
            return []
        data = path.read_bytes()
        whole = len(data) - len(data) % _BARE_NOTE.size
        return list(_BARE_NOTE.iter_unpack(data[:whole]))

    def _mend(self, name: str, read: RecordsRead) -> None:
        self._close(name)
        path = self.directory / name
        size_bytes = repair(path, read, self._quarantine, what="delivered timer messages")
        self._note_size(name, size_bytes)

    def append(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Append entries to slots: all of them, or none.

        Raises:
            OSError: the disk is full or failing.
        """
        self._append([(str(slot), data) for slot, data in pieces])

    def note(self, offsets_of: Mapping[int, Sequence[int]], log_end: int) -> None:
        """Record deliveries, given each slot's queue offsets: all of them, or none.

        Raises:
            OSError: the disk is full or failing.
        """
        pieces = [
            (f"{slot}{NOTES_SUFFIX}", _notes_record(log_end, offsets))
            for slot, offsets in offsets_of.items()
        ]
        before = {name: self._sizes.get(name, 0) for name, _ in pieces}
        self._append(pieces)
        self._noted_from = before

    def take_back_note(self) -> None:
        """Undo the last ``note``, because not all of its copies were written. Raises OSError."""
        for name, size_bytes in self._noted_from.items():
            self._cut(name, size_bytes)
            self._unsynced.add(name)
        self._noted_from = {}

    def _append(self, pieces: list[tuple[str, bytes]]) -> None:
        before = {name: self._sizes.get(name, 0) for name, _ in pieces}
        try:
            for name, data in pieces:
                size_bytes = self._sizes.get(name, 0)
                disk.append_whole(self._open(name), size_bytes, data)
                self._note_size(name, size_bytes + len(data))
                self._unsynced.add(name)
                if name in self._crcs:
                    self._crcs[name] = zlib.crc32(data, self._crcs[name])
        except OSError:
            for name, size_bytes in before.items():
                self._cut(name, size_bytes)
            raise

    def rewrite_notes(self, slot: int, notes: Iterable[Note]) -> None:
        """Replace the recorded deliveries of *slot*."""
        offsets_of: dict[int, list[int]] = {}
        for offset, log_end in notes:
            offsets_of.setdefault(log_end, []).append(offset)
        name, bare = f"{slot}{NOTES_SUFFIX}", f"{slot}{_BARE_SUFFIX}"
        data = b"".join([_notes_record(end, offsets) for end, offsets in offsets_of.items()])
        self._close(name)
        disk.write_atomically(self.directory / name, data)
        self._note_size(name, len(data))
        if self._note_size(bare, None):
            disk.remove_files([self.directory / bare])

    def has_bare_notes(self, slot: int) -> bool:
        """Return whether a build before 0.2.0 left a journal of *slot*."""
        return f"{slot}{_BARE_SUFFIX}" in self._sizes

    def trim(self, slot: int, size_bytes: int, end_offset: int) -> None:
        """Truncate the entries to *size_bytes*, and to messages before *end_offset*."""
        name = str(slot)
        kept = min(self._sizes.get(name, 0), size_bytes)
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
            self._note_size(name, size_bytes)
            self._crcs.pop(name, None)

    def _open(self, name: str) -> int:
        descriptor = self.descriptors.get(name)
        if descriptor is not None:
            self.descriptors.move_to_end(name)
            return descriptor
        if len(self.descriptors) >= OPEN_FILES_MAX:
            os.close(self.descriptors.popitem(last=False)[1])
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.directory / name, flags, 0o644)
        self.descriptors[name] = descriptor
        self._sizes.setdefault(name, 0)
        return descriptor

    def _close(self, name: str) -> None:
        descriptor = self.descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def take_unsynced(self) -> list[Path]:
        """Return the files that changed since the last call, for ``disk.sync_paths``."""
        names, self._unsynced = self._unsynced, set()
        return [self.directory / name for name in sorted(names)]

    @property
    def has_unsynced_notes(self) -> bool:
        """Whether a journal has changed since the journals to sync were last taken."""
        return any(name.endswith(NOTES_SUFFIX) for name in self._unsynced)

    def take_unsynced_notes(self) -> list[Path]:
        """Return the changed journals among these files."""
        names = {name for name in self._unsynced if name.endswith(NOTES_SUFFIX)}
        self._unsynced -= names
        return [self.directory / name for name in sorted(names)]

    def unsynced_again(self, paths: Iterable[Path]) -> None:
        """Mark files as unsynced again, because they could not be synced."""
        self._unsynced.update(path.name for path in paths if path.name in self._sizes)

    def drop_entries(self, slot: int) -> None:
        """Delete the entries of a slot; ``drop_notes`` deletes its journal, once this is on disk.

        If a power cut restored a slot without its journal, it would be delivered again.
        """
        self._delete(str(slot))
        self._over.add(slot)

    @property
    def over(self) -> frozenset[int]:
        """The slots whose entries are deleted: sync the directory, then call ``drop_notes``."""
        return frozenset(self._over)

    def drop_notes(self, slots: frozenset[int]) -> None:
        """Delete the journals of slots, except those that have entries again."""
        self._over.difference_update(slots)
        for slot in slots:
            if str(slot) not in self._sizes:
                self._delete(f"{slot}{NOTES_SUFFIX}")
                self._delete(f"{slot}{_BARE_SUFFIX}")

    def _delete(self, name: str) -> None:
        self._close(name)
        self._unsynced.discard(name)
        self._crcs.pop(name, None)
        if self._note_size(name, None):
            (self.directory / name).unlink(missing_ok=True)

    def wipe(self) -> None:
        """Delete every file, before the index is rebuilt."""
        self.close()
        disk.remove_files([self.directory / name for name in self._sizes])
        for name in list(self._sizes):
            self._note_size(name, None)
        self._crcs.clear()
        self._over.clear()
        self._unsynced.clear()

    def close(self) -> None:
        """Close all open files."""
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        self.descriptors.clear()


def _notes_record(log_end: int, offsets: Sequence[int]) -> bytes:
    return encode_record(NOTES, struct.pack(f">q{len(offsets)}q", log_end, *offsets))
