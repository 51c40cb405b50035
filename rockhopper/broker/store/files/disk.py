"""The few disk operations whose order decides what survives a crash.

Nothing else in the store calls fsync, fdatasync, rename or posix_fallocate. So the crash tests have
one place to cut the power: they replace the ``os`` calls made here with ones that forget unsynced
bytes.
"""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.store.files.descriptors import descriptor_needed
from rockhopper.protocol.compiled import import_compiled

log = structlog.get_logger("broker.store")

# The disk is full: not a fault of the disk, and over as soon as space is freed.
DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
_NOT_EMPTY_OR_GONE = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
_SLICE_BYTES = 1 << 20
_SOON_READ_BYTES = 64 << 10
COMPILED = import_compiled("rockhopper.broker.store.files._mapping")

DEFAULT_FILE_MODE = 0o666


class DiskUsage(NamedTuple):
    """The bytes of a file system. What root alone may use counts as neither used nor free."""

    total_bytes: int
    used_bytes: int
    free_bytes: int


def read_usage(path: Path) -> DiskUsage:
    """Return the use of the file system that holds *path*. Raises OSError."""
    status = os.statvfs(path)
    return DiskUsage(
        status.f_blocks * status.f_frsize,
        (status.f_blocks - status.f_bfree) * status.f_frsize,
        status.f_bavail * status.f_frsize,
    )


def write_atomically(
    path: Path, data: bytes, backup: bytes | None = None, *, mode: int = DEFAULT_FILE_MODE
) -> None:
    """Make *path* hold exactly *data*, durably, before returning.

    A crash leaves the old content or the new, never a mix. *backup* is written to ``<name>.bak`` a
    moment before; RocketMQ looks there if the file itself does not parse. *mode* is the permission
    bits of the files, reduced by the umask.

    Raises:
        TooManyOpenFilesError: *path* keeps its old content.
        OSError: the disk is full or failing; *path* keeps its old content.
    """
    contents = {path: data} if backup is None else {backup_path(path): backup, path: data}
    temporaries = {path: path.with_name(path.name + ".tmp") for path in contents}
    # Opened before anything changes: without it the new name could not be made durable.
    directory = _open_directory(path.parent)
    try:
        for target, content in contents.items():
            _write_durably(temporaries[target], content, mode)
        for target, temporary in temporaries.items():
            temporary.replace(target)
        os.fsync(directory)
    except OSError:
        with contextlib.suppress(OSError):
            for temporary in temporaries.values():
                temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(directory)


def _open_directory(path: Path) -> int:
    with descriptor_needed():
        return os.open(path, os.O_RDONLY)


def _write_durably(path: Path, data: bytes, mode: int) -> None:
    if mode != DEFAULT_FILE_MODE:
        # A file left by an earlier attempt may have wider permissions.
        path.unlink(missing_ok=True)
    with descriptor_needed():
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb")
    with file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def backup_path(path: Path) -> Path:
    """Return the path of ``write_atomically``'s backup; RocketMQ uses the same name."""
    return path.with_name(path.name + ".bak")


def _read_if_present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def sync_file(descriptor: int) -> None:
    """Make the bytes of an open file durable, including those written through mappings of it.

    Blocks, without the interpreter lock. Raises OSError, after which the content on disk is
    unknown.
    """
    if sys.platform == "linux":
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_file_system(descriptor: int) -> bool:
    """Make all files and names in the file system of an open file durable.

    Blocks, without the interpreter lock. Returns False, with nothing done, if that is not possible
    here, or if a failed write would not be reported.

    Raises:
        OSError: a write failed since *descriptor* was opened, perhaps that of another process.
    """
    return COMPILED is not None and COMPILED.sync_file_system(descriptor)


def sync_directory(path: Path) -> None:
    """Make creations, renames and deletions inside *path* durable."""
    descriptor = _open_directory(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> list[Path]:
    """Make *path* and its missing parents; return the directories that got a new entry.

    The new directories are durable once each of the returned directories is synced.
    """
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
    return [directory.parent for directory in reversed(missing)]


def unmake_directories(path: Path, count: int) -> None:
    """Undo ``make_directories``: remove *path* and parents, *count* in all, if they are empty."""
    for directory in (path, *path.parents)[:count]:
        with contextlib.suppress(OSError):
            directory.rmdir()


def make_directories_durably(path: Path) -> None:
    """Make *path* and its missing parents, and their names, durable."""
    for changed in make_directories(path):
        sync_directory(changed)


def remove_files(paths: Iterable[Path]) -> int:
    """Delete files, durably; return how many existed. A missing file is not an error."""
    directories: set[Path] = set()
    count = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            directories.add(path.parent)
            count += 1
    for directory in directories:
        sync_directory(directory)
    return count


def move(source: Path, target: Path) -> None:
    """Rename a file or a directory, durably.

    After a crash in the middle it may have both names, but never none.

    Raises:
        FileNotFoundError: *source* does not exist.
        OSError: it has its old name, or the new one is not durable.
    """
    source.rename(target)
    sync_directory(target.parent)
    sync_directory(source.parent)


def remove_directory_if_empty(path: Path) -> bool:
    """Delete a directory, durably, if it exists and is empty; return whether it was deleted."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno in _NOT_EMPTY_OR_GONE:
            return False
        raise
    sync_directory(path.parent)
    return True


def preallocate(descriptor: int, size_bytes: int, offset: int = 0) -> None:
    """Reserve disk blocks for *size_bytes* from *offset* on; new bytes read as zeros.

    Afterwards neither a write there nor an access through a mapping can run out of space.
    Copy-on-write file systems cannot guarantee this.

    Raises:
        OSError: the disk is full (ENOSPC); the file may have grown by a part.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, offset, size_bytes)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        else:
            return
    start = max(offset, os.fstat(descriptor).st_size)
    write_fully(descriptor, start, offset + size_bytes - start)


def reserve(descriptor: int, start: int, end: int) -> None:
    """Reserve disk blocks for [start, end) of a file of at least this length; keep its content.

    Raises:
        OSError: the disk is full (ENOSPC).
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, start, end - start)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        else:
            return
    write_fully(descriptor, start, os.pread(descriptor, end - start, start))


def write_fully(descriptor: int, position: int, data: bytes | memoryview | int) -> None:
    """Write *data* (a number: so many zeros) at *position*, with as many calls as needed.

    Raises:
        OSError: a part may have been written.
    """
    if isinstance(data, int):
        zeros = bytes(min(max(data, 0), _SLICE_BYTES))
        end = position + data
        while position < end:
            position += os.pwrite(descriptor, zeros[: end - position], position)
        return
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], position + written)


def append_whole(descriptor: int, position: int, data: bytes) -> None:
    """Write *data* at *position*, the end of the file, all of it or nothing.

    Raises:
        OSError: nothing was written. If even undoing a partial write fails, the next append at the
            same position overwrites it.
    """
    try:
        write_fully(descriptor, position, data)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, position)
        raise


def sync_paths(paths: Iterable[Path]) -> None:
    """Make files and their names durable; skip missing files. Blocks: call it in a thread."""
    directories: set[Path] = set()
    for path in paths:
        try:
            with descriptor_needed():
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        directories.add(path.parent)
    for directory in directories:
        sync_directory(directory)


def copy_aside(path: Path, target: Path, start: int = 0, end: int | None = None) -> Path:
    """Copy [start, end) of a file, durably, and return the copy's path. Holes take no space.

    The copy is *target*, or another name beside it if that file has different content.

    Raises:
        TooManyOpenFilesError, OSError: there is no copy.
    """
    with descriptor_needed():
        source = path.open("rb")
    with source:
        if end is None:
            end = os.fstat(source.fileno()).st_size
        first, number = target, 0
        while target.exists():
            if _holds(target, source.fileno(), start, end):
                return target  # An interrupted repair made it.
            number += 1
            target = first.with_name(f"{first.name}-{number}")
        make_directories_durably(target.parent)
        temporary = target.with_name(target.name + ".tmp")
        with descriptor_needed():
            copy = temporary.open("wb")
        with copy:
            # The copy of a secret must not be readable by more users than the original.
            os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode))
            _copy_range(source.fileno(), copy.fileno(), start, end)
            os.fsync(copy.fileno())
    temporary.replace(target)
    sync_directory(target.parent)
    return target


def _holds(path: Path, source: int, start: int, end: int) -> bool:
    """Return whether *path* is a copy of [start, end) of an open file."""
    with descriptor_needed():
        file = path.open("rb")
    with file:
        return os.fstat(file.fileno()).st_size == end - start and all(
            file.read(min(_SLICE_BYTES, end - position))
            == os.pread(source, min(_SLICE_BYTES, end - position), position)
            for position in range(start, end, _SLICE_BYTES)
        )


def _copy_range(source: int, copy: int, start: int, end: int) -> None:
    os.ftruncate(copy, end - start)
    for data_start, data_end in data_ranges(source, start, end):
        for position in range(data_start, data_end, _SLICE_BYTES):
            data = os.pread(source, min(_SLICE_BYTES, data_end - position), position)
            write_fully(copy, position - start, data)


def set_size(path: Path, size_bytes: int) -> None:
    """Cut a file to *size_bytes*, or extend it with zeros, durably.

    Raises:
        OSError: it may have grown by a part.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        present_bytes = os.fstat(descriptor).st_size
        if present_bytes < size_bytes:
            preallocate(descriptor, size_bytes - present_bytes, present_bytes)
        else:
            os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def zero_tail(descriptor: int, start: int, end: int) -> bool:
    """Zero the bytes of [start, end) that are not zero; return whether there were any.

    Blocks that were never written are skipped if the file system reports them, so the tail of a
    preallocated file costs nothing.
    """
    changed = False
    for piece_start, piece_end in data_ranges(descriptor, start, end):
        zeros = bytes(min(_SLICE_BYTES, piece_end - piece_start))
        for position in range(piece_start, piece_end, _SLICE_BYTES):
            size_bytes = min(_SLICE_BYTES, piece_end - position)
            if os.pread(descriptor, size_bytes, position) != zeros[:size_bytes]:
                write_fully(descriptor, position, size_bytes)
                changed = True
    return changed


def data_ranges(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges within [start, end) that may hold nonzero bytes.

    The file system reports them. Pages that were only read ahead count as data while they are
    cached, and reading a range caches more of them. So if there is much to read, the cache is
    dropped first (which interrupts every core), and all ranges are found before any is read.
    """
    ranges = _list_data_ranges(descriptor, start, end)
    size_bytes = sum(range_end - range_start for range_start, range_end in ranges)
    if size_bytes > _SOON_READ_BYTES and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
        ranges = _list_data_ranges(descriptor, start, end)
    return ranges


def _list_data_ranges(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    while start < end:
        try:
            data_start = os.lseek(descriptor, start, os.SEEK_DATA)
            data_end = os.lseek(descriptor, data_start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                ranges.append((start, end))
            break
        if data_start >= end:
            break
        ranges.append((data_start, min(data_end, end)))
        start = data_end
    return ranges
