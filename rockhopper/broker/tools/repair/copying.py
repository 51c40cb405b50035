"""Copy the files of a store besides its log to another place."""

import fcntl
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreError, StoreLockedError
from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.broker.store.recovering import inventory, log_identity
from rockhopper.broker.tools.repair.room import room
from rockhopper.protocol.store.store_paths import COMMIT_LOG_DIRECTORY_FILE

STEP_BYTES = 4 << 20

# Specific to the directory or to the run that wrote them; they are created again.
_LEFT_BEHIND = frozenset(
    {
        inventory.INVENTORY_FILE,
        log_identity.IDENTITY_FILE,
        COMMIT_LOG_DIRECTORY_FILE,
        "checkpoint",
        "deleted-queues",
        "index-to-rebuild",
        "quarantine",
        "rebuild",
        "stopped-files.json",
        inventory.QUEUES_FILE,
    }
)


def check_empty(target: Path) -> None:
    """Refuse a directory with files, except those of an interrupted run. Raises StoreError."""
    if not target.exists():
        return
    is_unfinished = StoreLayout.from_config(StoreConfig(root=target)).unfinished.exists()
    if not target.is_dir() or (any(target.iterdir()) and not is_unfinished):
        raise StoreError(f"{target} is not empty: name an empty directory, or a new one")


_UNFINISHED = (
    "The directory is not a complete store yet, and no broker opens it: free some space and "
    "run the same command again, or delete the directory"
)


@contextmanager
def making(target: Path, need_bytes: int = 0) -> Iterator[None]:
    """Create a store in *target*, which is emptied and marked as unfinished until the end.

    *need_bytes* is the known part of the required space. The mark keeps brokers and tools away, and
    its lock keeps a second run away. A new run replaces the files of an interrupted one. If a
    broker is already running there, it keeps its files.

    Raises:
        StoreError: the directory is not empty or in use, or has no room.
        OSError: the disk is failing.
    """
    check_empty(target)
    with room(target, need_bytes, _UNFINISHED, freed=target):
        disk.make_directories_durably(target)
        layout = StoreLayout.from_config(StoreConfig(root=target))
        with _lock_mark(layout) as is_new:
            try:
                with StoreLock(target, layout.lock, layout.abort):
                    _empty(layout)
            except StoreLockedError:
                if is_new:
                    disk.remove_files([layout.unfinished])
                raise
            yield
            disk.remove_files([layout.unfinished])


@contextmanager
def _lock_mark(layout: StoreLayout) -> Iterator[bool]:
    """Hold the mark; yield whether it is new."""
    is_new = not layout.unfinished.exists()
    # If the mark disappears in the meantime, another run has finished the store.
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
    try:
        descriptor = os.open(layout.unfinished, flags, 0o644)
    except (FileExistsError, FileNotFoundError):
        raise _is_made_elsewhere(layout.root) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _is_made_elsewhere(layout.root) from None
        check_empty(layout.root)
        disk.sync_file(descriptor)
        disk.sync_directory(layout.root)
        yield is_new
    finally:
        os.close(descriptor)


def _is_made_elsewhere(root: Path) -> StoreError:
    return StoreError(f"another run is writing the store in {root}: wait until it ends")


def _empty(layout: StoreLayout) -> None:
    for left in layout.root.iterdir():
        if left not in (layout.unfinished, layout.lock):
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def companions(layout: StoreLayout) -> list[Path]:
    """Return the current tables, notes and timer files below the root."""
    places = [layout.config, layout.timer_wheel, layout.timer_log]
    if layout.own.is_dir():
        places += [path for path in layout.own.iterdir() if path.name not in _LEFT_BEHIND]
    found = (file for place in places for file in (place, *place.rglob("*")))
    return sorted(path for path in found if path.suffix != ".tmp" and path.is_file())


def copy_range(
    source: Path, start: int, end: int, write: Callable[[int, bytes], None]
) -> Iterator[int]:
    """Pass [*start*, *end*) of a file to *write*, in pieces; yield the position after each.

    Raises:
        OSError: the file cannot be read, or is shorter.
    """
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            data = os.pread(descriptor, min(STEP_BYTES, end - start), start)
            if not data:
                raise OSError(f"{source} ends at {start}, before {end}: was it truncated?")
            write(start, data)
            start += len(data)
            yield start
    finally:
        os.close(descriptor)


class LogFileCopy:
    """A log file being written: of full length, but with blocks only for nonzero bytes."""

    def __init__(self, path: Path, size_bytes: int, *, is_last: bool = False) -> None:
        """*is_last* reserves all blocks, because the broker continues there. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if is_last:
            disk.preallocate(self._descriptor, size_bytes)
        os.ftruncate(self._descriptor, size_bytes)

    def write(self, position: int, data: bytes) -> None:
        """Write bytes; zeros take no space. Raises OSError."""
        if data.strip(b"\0"):
            disk.write_fully(self._descriptor, position, data)

    def overwrite(self, position: int, data: bytes) -> None:
        """Overwrite bytes. Raises OSError."""
        disk.write_fully(self._descriptor, position, data)

    def close(self) -> None:
        """Sync and close the file. Raises OSError."""
        try:
            disk.sync_file(self._descriptor)
        finally:
            os.close(self._descriptor)


def crc_of(path: Path, size_bytes: int) -> int:
    """Return the CRC-32 of the first bytes of a file. Raises OSError."""
    crc = 0

    def take(_: int, data: bytes) -> None:
        nonlocal crc
        crc = zlib.crc32(data, crc)

    for _ in copy_range(path, 0, size_bytes, take):
        pass
    return crc
