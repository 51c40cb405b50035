"""Which files of a store, beside its log, go with it to another place, and how they are copied."""

import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.recovering import inventory, log_identity
from rockhopper.protocol.store.store_paths import COMMIT_LOG_DIRECTORY_FILE

STEP_BYTES = 4 << 20
MARK = "UNFINISHED"
"""There while a store is being made; what was cut off may be begun again over what it left."""

# Of the directory or of the run that wrote them, and made anew.
_LEFT_BEHIND = frozenset(
    {
        inventory.FILE_NAME,
        log_identity.FILE_NAME,
        COMMIT_LOG_DIRECTORY_FILE,
        "checkpoint",
        "deleted-queues",
        "index-to-rebuild",
        "quarantine",
        "rebuild",
        "stopped-files.json",
    }
)


def check_empty(target: Path) -> None:
    """Refuse a directory that holds something else than what was cut off. Raises StoreError."""
    if not target.exists():
        return
    if not target.is_dir() or (any(target.iterdir()) and not (target / MARK).exists()):
        raise StoreError(f"{target} is not empty: name a directory that is, or a new one")


def begin(target: Path) -> None:
    """Make *target* an empty directory, marked as unfinished. Raises StoreError, OSError."""
    check_empty(target)
    for left in target.iterdir() if target.exists() else ():
        if left.name != MARK:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    disk.make_directories_durably(target)
    disk.write_atomically(target / MARK, b"")


def finish(target: Path) -> None:
    """Take the mark away. Raises OSError."""
    disk.remove_files([target / MARK])


def companions(layout: StoreLayout) -> list[Path]:
    """Tables, notes and files of timers, as they are now; paths below the root."""
    places = [layout.config, layout.timer_wheel, layout.timer_log]
    if layout.own.is_dir():
        places += [path for path in layout.own.iterdir() if path.name not in _LEFT_BEHIND]
    found = (file for place in places for file in (place, *place.rglob("*")))
    return sorted(path for path in found if path.suffix != ".tmp" and path.is_file())


def copy_range(
    source: Path, start: int, end: int, write: Callable[[int, bytes], None]
) -> Iterator[int]:
    """Hand [*start*, *end*) of a file to *write*, in pieces; yields how far it is.

    Raises:
        OSError: it cannot be read, or is shorter.
    """
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            data = os.pread(descriptor, min(STEP_BYTES, end - start), start)
            if not data:
                raise OSError(f"{source} ends at {start}, in front of {end}: was it cut short?")
            write(start, data)
            start += len(data)
            yield start
    finally:
        os.close(descriptor)


class LogFileCopy:
    """A file of a log in the making: all of its length, with blocks only where there are bytes."""

    def __init__(self, path: Path, size_bytes: int, *, is_last: bool = False) -> None:
        """*is_last* reserves all blocks: the broker will go on there. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if is_last:
            disk.preallocate(self._descriptor, size_bytes)
        os.ftruncate(self._descriptor, size_bytes)

    def write(self, position: int, data: bytes) -> None:
        """Put bytes; zeros take no room. Raises OSError."""
        if data.strip(b"\0"):
            disk.write_fully(self._descriptor, position, data)

    def overwrite(self, position: int, data: bytes) -> None:
        """Put bytes over what was put there. Raises OSError."""
        disk.write_fully(self._descriptor, position, data)

    def close(self) -> None:
        """Make it durable. Raises OSError."""
        try:
            disk.sync_file(self._descriptor)
        finally:
            os.close(self._descriptor)


def crc_of(path: Path, size_bytes: int) -> int:
    """The CRC-32 of the first bytes of a file. Raises OSError."""
    crc = 0

    def take(_: int, data: bytes) -> None:
        nonlocal crc
        crc = zlib.crc32(data, crc)

    for _ in copy_range(path, 0, size_bytes, take):
        pass
    return crc
