"""MappedFile: one preallocated file of a store directory, read and written through a mapping.

On a full disk, a write through the mapping of a sparse file would kill the process with SIGBUS. So
the file is allocated whole before it is mapped. Queues may have tens of thousands of files with
little data in each, so theirs are allocated step by step: ``reserve`` is called before anything is
written after the allocated part. No mapping covers a byte beyond the end of the file.

Opening is lazy, because a store may hold tens of thousands of files: an object costs neither
descriptor nor mapping until its bytes are needed. Python's mmap keeps a duplicate of the descriptor
as long as the mapping lives. A process that may have 65,000 mappings may have only 20,000
descriptors, so a store with more queues than descriptors would open and close a file for every
message. If the C module was compiled, a mapping holds no descriptor: Python makes an anonymous
mapping of the size, and the module maps the file over it. ``pwrite`` keeps a descriptor until the
file is full and flushed.

Mappings: which files of log and queues are mapped, and which are unmapped for others. Files are
unmapped only when a mapping is added; appends to and reads of a mapped queue never call it. When
room is needed, the oldest mapping is checked: if its file has grown since the last check, it moves
to the end of the list, else it is unmapped (the clock algorithm). Unmapping a file that was written
through loses nothing: its pages stay in the page cache, and the queue stays in the list of queues
to flush.

Drafts: making a directory and a file takes the kernel up to half a millisecond. So the first units
of a new queue are kept in memory (``draft``), and the flush thread makes the file a moment later
(``write_draft``). A draft is in the file whenever that thread flushes; the owner drops it
(``settle``) before it uses the file in any other way. After a kill the units that had no file yet
are missing, and recovery takes them from the log, as it does after a power cut.

Threads: everything belongs to the thread that appends, except ``MappedFile.sync`` and
``write_draft``, which the flush thread calls. ``sync`` neither touches the mapping nor changes a
field that the other thread changes; ``write_draft``, ``settle`` and ``wait_for_writer`` exclude
each other.
"""

import errno
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeVar

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.descriptors import descriptor_needed
from rockhopper.broker.store.files.errors import CorruptFileError, TooManyOpenFilesError

_mapping = disk.COMPILED
HOLDS_DESCRIPTOR = _mapping is None
_GLANCE_BYTES = 4096
DRAFT_BYTES = 1024
MAPPED_FILES_MAX = 32_768
# Made one by one, they take a second: so much longer are a stop, and a recovery after a kill.
DRAFTS_MAX = 4096
# Bounds the time to make room for one mapping.
_SPARED_MAX = 64
# Other parts of the process may have run out of descriptors, so free more than one.
_LET_GO_IN_SHORTAGE = 64

T = TypeVar("T")


def map_whole(descriptor: int, size_bytes: int, *, writable: bool) -> mmap.mmap:
    """Return the mapping of a file of at least *size_bytes*; *descriptor* may be closed afterwards.

    Raises:
        OSError: the process has reached its limit of mappings or descriptors.
    """
    if _mapping is None:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(descriptor, size_bytes, access=access)
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    place = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, protection)
    try:
        _mapping.map_over(place, descriptor)
    except OSError:
        place.close()
        raise
    return place


def _make_file(path: Path, size_bytes: int, reserved_bytes: int, data: bytes) -> None:
    """Make a file of zeros that begins with *data*. Raises OSError: there is none."""
    with descriptor_needed():
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        disk.preallocate(descriptor, min(size_bytes, reserved_bytes))
        os.ftruncate(descriptor, size_bytes)
        if data:
            disk.write_fully(descriptor, 0, data)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


class MappedFile:
    """The bytes [base_offset, base_offset + size_bytes) of an address space.

    Appends continue at ``write_position``; the bytes up to ``flushed_position`` are durable. Both
    count from the start of the file.
    """

    __slots__ = (
        "_descriptor",
        "_device",
        "_draft",
        "_failure",
        "_glance",
        "_is_deleted",
        "_is_made",
        "_is_writable",
        "_lock",
        "_map_file",
        "_mapping",
        "_path",
        "_unsynced_directories",
        "base_offset",
        "flushed_position",
        "size_bytes",
        "write_position",
    )

    def __init__(
        self,
        path: Path | str,
        base_offset: int,
        size_bytes: int,
        *,
        writable: bool = False,
        map_file: "MapFile | None" = None,
    ) -> None:
        """Wrap the existing file *path*; with *writable* its mapping can be written through.

        *map_file* is called in place of ``map``, and calls ``map`` itself.
        """
        # A string, not a Path, to save memory: there may be tens of thousands.
        self._path = os.fspath(path)
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.write_position = 0
        self.flushed_position = 0
        self._is_writable = writable
        self._map_file = map_file
        self._mapping: mmap.mmap | None = None
        self._descriptor = -1
        # That of the file system, once it is known.
        self._device = -1
        self._glance = b""
        # The first bytes of a file that is not made yet, or not mapped since.
        self._draft: bytearray | None = None
        self._is_made = True
        self._unsynced_directories: Sequence[Path] = ()
        self._failure: OSError | None = None
        self._is_deleted = False
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: Path,
        base_offset: int,
        size_bytes: int,
        *,
        writable: bool = False,
        map_file: "MapFile | None" = None,
        unsynced_directories: Sequence[Path] = (),
        reserved_bytes: int | None = None,
    ) -> Self:
        """Make the file, filled with zeros, and allocate all its blocks or only *reserved_bytes*.

        The name becomes durable with the first ``sync``, which also syncs *unsynced_directories*,
        the directories that were made for it.

        Raises:
            FileExistsError: the file exists; it is left as it is.
            OSError: the disk is full (ENOSPC) or another failure; nothing is left behind.
        """
        _make_file(path, size_bytes, reserved_bytes or size_bytes, b"")
        file = cls(path, base_offset, size_bytes, writable=writable, map_file=map_file)
        file._unsynced_directories = (*unsynced_directories, path.parent)
        return file

    def begin_draft(self) -> None:
        """Keep the first bytes of the file in memory; it must not exist yet."""
        self._draft = bytearray(min(DRAFT_BYTES, self.size_bytes))
        self._is_made = False

    @property
    def is_made(self) -> bool:
        """Whether the file is on disk."""
        return self._is_made

    def draft_for(self, end: int) -> bytearray | None:
        """Return the draft if bytes up to *end* may be written to it, until the file is made."""
        draft = self._draft
        return None if draft is None or self._is_made or end > len(draft) else draft

    def write_draft(self, reserved_bytes: int) -> None:
        """Write the draft to the file, if there is one; make the file if it is missing.

        Any thread.

        Raises:
            TooManyOpenFilesError: no descriptor is free.
            OSError: the disk is full, or another failure; the file is made, or nothing of it is.
        """
        if self._draft is not None:
            with self._lock:
                self._write_draft(reserved_bytes)

    def settle(self, reserved_bytes: int = DRAFT_BYTES) -> None:
        """Write the draft to the file, and drop it. Raises as ``write_draft``."""
        if self._draft is not None:
            with self._lock:
                self._write_draft(reserved_bytes)
                self._draft = None

    def _write_draft(self, reserved_bytes: int) -> None:
        draft = self._draft
        if draft is None or self._is_deleted:
            return
        if not self._is_made:
            directory = self.path.parent
            changed = disk.make_directories(directory)
            try:
                _make_file(self.path, self.size_bytes, reserved_bytes, bytes(draft))
            except OSError:
                # Otherwise the next attempt would find them and see no reason to sync them.
                disk.unmake_directories(directory, len(changed))
                raise
            self._unsynced_directories = (*changed, directory)
            self._is_made = True
            return
        # Units may have been added since it was made.
        with descriptor_needed():
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            disk.write_fully(descriptor, 0, bytes(draft))
        finally:
            os.close(descriptor)

    @classmethod
    def open(cls, path: Path, size_bytes: int | None = None, *, writable: bool = False) -> Self:
        """Wrap the existing file *path*, whose name is its base offset.

        Raises:
            CorruptFileError: the name is not an offset, or the size is not *size_bytes*.
        """
        actual_bytes = path.stat().st_size
        if not path.name.isdecimal():
            raise CorruptFileError(path, "the name is not the offset of the file's first byte")
        if size_bytes is not None and actual_bytes != size_bytes:
            raise CorruptFileError(path, f"{actual_bytes} bytes long, not {size_bytes}")
        return cls(path, int(path.name), actual_bytes, writable=writable)

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self._path)

    @property
    def end_offset(self) -> int:
        """The offset after the last byte that the file has room for."""
        return self.base_offset + self.size_bytes

    @property
    def is_mapped(self) -> bool:
        """Whether the file is mapped (and the mapping holds a descriptor)."""
        return self._mapping is not None

    @property
    def mapping(self) -> mmap.mmap:
        """The mapping of the whole file, made at the first access.

        Raises:
            CorruptFileError: the file has been cut short since; touching its pages would be fatal.
            TooManyOpenFilesError: no descriptor is free.
            OSError: it cannot be opened.
        """
        if self._mapping is None:
            self._mapping = self.map() if self._map_file is None else self._map_file(self)
        return self._mapping

    def map(self) -> mmap.mmap:
        """Make another mapping; called by the owner of *map_file*. Raises as ``mapping``."""
        self.settle()
        self._glance = b""
        flags = os.O_RDWR if self._is_writable else os.O_RDONLY
        with descriptor_needed():
            descriptor = os.open(self._path, flags | os.O_CLOEXEC)
        try:
            actual_bytes = os.fstat(descriptor).st_size
            if actual_bytes < self.size_bytes:
                raise CorruptFileError(
                    self.path, f"{actual_bytes} bytes long, not {self.size_bytes}"
                )
            with descriptor_needed():
                return map_whole(descriptor, self.size_bytes, writable=self._is_writable)
        finally:
            os.close(descriptor)

    def glance(self) -> None:
        """Cache the first page, so that ``read`` needs no mapping, until a write or ``close``.

        For stores with many files that hold little: a mapping costs several times as much.

        Raises:
            TooManyOpenFilesError: no descriptor is free.
            OSError: it cannot be read.
        """
        if self._mapping is None and not self._glance and self._draft is None:
            with descriptor_needed():
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._glance = os.pread(descriptor, _GLANCE_BYTES, 0)
            finally:
                os.close(descriptor)

    def note_read(self, device: int, data: bytes) -> None:
        """Note the file's device, and cache *data*, its beginning, as ``glance`` does."""
        self._device = device
        self._glance = data

    def reserve(self, start: int, end: int) -> None:
        """Allocate the blocks of [start, end), counted from the start of the file.

        Raises:
            TooManyOpenFilesError: no descriptor is free.
            OSError: the disk is full (ENOSPC), or another failure.
        """
        self.settle(end)
        with descriptor_needed():
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            disk.reserve(descriptor, start, min(end, self.size_bytes))
        finally:
            os.close(descriptor)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of [start, end), counted from the start of the file."""
        mapping = self._mapping
        if mapping is None:
            if end <= len(self._glance):
                return self._glance[start:end]
            draft = self._draft
            if draft is not None and end <= len(draft):
                return bytes(draft[start:end])
            mapping = self.mapping
        return mapping[start:end]

    def pwrite(self, position: int, data: bytes | memoryview) -> None:
        """Write all of *data* at *position*; unlike ``append``, do not move ``write_position``.

        Raises:
            OSError: a part of it may have been written.
        """
        if position + len(data) > self.size_bytes:
            raise ValueError(f"{len(data)} bytes at {position} do not fit {self.path}")
        self.settle()
        self._glance = b""
        with self._lock:
            if self._descriptor < 0:
                with descriptor_needed():
                    self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            descriptor = self._descriptor
        disk.write_fully(descriptor, position, data)

    def append(self, data: bytes) -> None:
        """Write *data* at ``write_position``, which moves only once all of it is written."""
        self.pwrite(self.write_position, data)
        self.write_position += len(data)

    def sync(self, position: int | None = None) -> None:
        """Make everything up to *position*, or ``write_position``, and the file's name durable.

        Blocks, and may run in another thread than the appends. After a failure each further call
        fails in the same way: a repeated fsync can succeed although the kernel dropped the bytes.

        Raises:
            TooManyOpenFilesError: no descriptor is free; nothing has failed, and a retry is safe.
            OSError: the content on disk is unknown.
        """
        if self._failure is not None:
            raise self._failure
        target = self.write_position if position is None else position
        try:
            descriptor = self._descriptor_to_sync()
        except FileNotFoundError:
            if self._is_deleted:
                return
            raise
        try:
            disk.sync_file(descriptor)
            self._check_name(descriptor)
            for directory in self._unsynced_directories:
                disk.sync_directory(directory)
        except TooManyOpenFilesError:
            raise
        except OSError as error:
            if self._is_deleted and isinstance(error, FileNotFoundError):
                return
            self._failure = OSError(error.errno, error.strerror, str(self.path))
            raise self._failure from error
        finally:
            os.close(descriptor)
        self._note_synced(target)

    def note_synced(self, position: int, device: int) -> bool:
        """Note that the file system *device* was synced after the file was written to *position*.

        Returns False, with nothing done, if the file is not there; ``sync`` then decides.
        """
        if self._device < 0:
            try:
                self._device = os.stat(self._path).st_dev
            except OSError:
                return False
        if self._device != device or self._failure is not None:
            return False
        self._note_synced(position)
        return True

    def _note_synced(self, position: int) -> None:
        self._unsynced_directories = ()
        self.flushed_position = max(self.flushed_position, position)
        if self.flushed_position == self.size_bytes:
            self._release_descriptor()

    def _check_name(self, descriptor: int) -> None:
        """Raise FileNotFoundError if the synced file has no name any more. ``sync`` handles it."""
        if not os.fstat(descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "it was deleted", str(self.path))

    def _descriptor_to_sync(self) -> int:
        # A duplicate shares the open file that was written through, so the kernel reports to it
        # every failure to write that file back. No other thread can close it meanwhile.
        with descriptor_needed():
            with self._lock:
                if self._descriptor >= 0:
                    return os.dup(self._descriptor)
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def zero_from(self, position: int) -> bool:
        """Zero and sync all bytes from *position* on; return whether any was not zero.

        Raises:
            OSError: the tail may still have its old content.
        """
        self.settle()
        with descriptor_needed():
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            changed = disk.zero_tail(descriptor, position, self.size_bytes)
            if changed:
                self._glance = b""
                disk.sync_file(descriptor)
        finally:
            os.close(descriptor)
        return changed

    def unmap(self) -> None:
        """Drop the mapping; the next access makes a new one.

        Readers that still hold a piece of it keep it alive: nothing is ever unmapped under them.
        """
        self._mapping = None

    def _release_descriptor(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def close(self) -> None:
        """Release mapping and descriptor; the file stays. Flushes nothing."""
        self._glance = b""
        self.unmap()
        self._release_descriptor()

    def mark_deleted(self) -> None:
        """Record that the caller deletes the file; no thread begins to write its draft any more.

        ``wait_for_writer`` and ``close`` must still be called.
        """
        self._is_deleted = True

    def wait_for_writer(self) -> None:
        """Return when no thread writes the draft."""
        with self._lock:
            pass

    def delete(self) -> None:
        """Close and delete the file; the caller syncs the directory once for all files it deletes.

        A missing file is not an error.
        """
        self.mark_deleted()
        self.wait_for_writer()
        self.close()
        self.path.unlink(missing_ok=True)


MapFile = Callable[[MappedFile], mmap.mmap]


class MappingOwner(Protocol):
    """The owner of some mapped files."""

    def has_grown(self, file: MappedFile) -> bool:
        """Return whether anything may have been appended to *file* since the last call."""

    def let_go(self, file: MappedFile) -> None:
        """Unmap *file*; the next access maps it again."""


class Mappings:
    """The mapped files of a store, at most *count_max*."""

    def __init__(self, count_max: int = MAPPED_FILES_MAX) -> None:
        self.count_max = count_max
        # Files that were unmapped for other reasons stay in it until they become the oldest.
        self._mapped: OrderedDict[MappedFile, MappingOwner] = OrderedDict()
        self.drafts_max = 0
        """How many new files may wait for the flush thread to make them; 0 without that thread."""
        self.drafts: set[MappedFile] = set()
        """Those that wait."""

    def may_draft(self, size_bytes: int) -> bool:
        """Return whether a new file may begin as a draft, which needs room for *size_bytes*."""
        return size_bytes <= DRAFT_BYTES and len(self.drafts) < self.drafts_max

    def map(self, file: MappedFile, holder: MappingOwner) -> mmap.mmap:
        """Map *file*, which must not be mapped yet.

        Raises:
            TooManyOpenFilesError: no descriptor is free, even after files were unmapped.
            OSError: it cannot be opened.
        """
        while len(self._mapped) >= self.count_max:
            self._let_go_of_one(_SPARED_MAX)
        mapping = self.with_room(file.map)
        self._mapped[file] = holder
        self._mapped.move_to_end(file)
        return mapping

    def with_room(self, action: Callable[[], T]) -> T:
        """Run *action*; if no descriptor is free, unmap some files and run it once more.

        Raises:
            TooManyOpenFilesError: none is free then either.
        """
        try:
            return action()
        except TooManyOpenFilesError:
            if not self.make_room():
                raise
        return action()

    def make_room(self) -> int:
        """Unmap some files, the idle ones first; return how many."""
        spared_max = len(self._mapped)
        count = 0
        while self._mapped and count < _LET_GO_IN_SHORTAGE:
            was_mapped, spared = self._let_go_of_one(spared_max)
            spared_max -= spared
            count += was_mapped
        return count

    def _let_go_of_one(self, spared_max: int) -> tuple[bool, int]:
        """Remove one file; return whether it was mapped, and how many growing files it skipped."""
        for spared in range(spared_max + 1):
            file, holder = self._mapped.popitem(last=False)
            if not file.is_mapped:
                return False, spared
            if spared == spared_max or not holder.has_grown(file):
                holder.let_go(file)
                return True, spared
            self._mapped[file] = holder
        raise AssertionError("the last of them is let go of")

    def release_all(self) -> None:
        """Unmap every file."""
        while self._mapped:
            file, holder = self._mapped.popitem()
            holder.let_go(file)

    def forget_unmapped(self) -> None:
        """Remove the files that were unmapped for other reasons."""
        for file in [file for file in self._mapped if not file.is_mapped]:
            del self._mapped[file]
