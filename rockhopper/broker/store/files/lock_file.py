"""The ``lock`` file: only one process, Rockhopper or RocketMQ, uses a store directory at a time.

The file holds the text ``lock``. The lock itself is an exclusive record lock on its first byte, as
Java's ``FileChannel.tryLock(0, 1, false)`` takes it. The kernel drops it when the process ends, in
whatever way. The broker takes it before it reads anything of the store, because recovery changes
files.

Deleting the file does not release the holder's lock, but lets other processes in: they make a new
file. So the directories of the store and of its log are locked as well, by ``flock``, which
RocketMQ does not check. The holder also checks now and then whether the file is still the one that
it has locked.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from rockhopper.broker.store.files.errors import StoreLockedError

_CONTENT = b"lock"

# Closing any descriptor of a file drops all record locks that the process has on it, and record
# locks do not exclude their own process. So a second attempt in this process must not even open the
# file.
_held: set[tuple[int, int]] = set()


class StoreLock:
    """The lock on the store in *directory*; taken by the constructor, released by ``release``."""

    def __init__(self, directory: Path, path: Path, holder_path: Path) -> None:
        """Take the lock on the file *path*, and make the file if it is missing.

        *holder_path* is the abort file; it names the process that holds the lock.

        Raises:
            StoreLockedError: another process, or this one, holds the lock.
        """
        self._directory = directory
        self._path = path
        self._holder_path = holder_path
        self._descriptor = -1
        self._locked_directories: list[int] = []
        with contextlib.suppress(FileNotFoundError):
            if _identity(path.stat()) in _held:
                raise StoreLockedError(directory, "this process itself")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            raise StoreLockedError(directory, _holder(holder_path)) from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._identity = _identity(os.fstat(descriptor))
        _held.add(self._identity)
        try:
            self._lock_directory(directory)
            os.pwrite(descriptor, _CONTENT, 0)
        except BaseException:
            self.release()
            raise

    def lock_commit_log(self, path: Path) -> None:
        """Lock the directory of the log as well, which may be outside the store's directory.

        Raises:
            StoreLockedError: another store holds it.
        """
        try:
            self._lock_directory(path)
        except StoreLockedError:
            raise StoreLockedError(
                path, "the broker of another store", setting="storePathCommitLog"
            ) from None

    def _lock_directory(self, path: Path) -> None:
        # Some network file systems cannot lock directories: there only the lock file protects.
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreLockedError(path, _holder(self._holder_path)) from None
        except OSError:
            os.close(descriptor)
        else:
            self._locked_directories.append(descriptor)

    def is_in_place(self) -> bool:
        """Return whether the lock file is still the one that is locked."""
        try:
            return _identity(self._path.stat()) == self._identity
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock; the file stays."""
        for directory in self._locked_directories:
            # A process that was forked meanwhile has the descriptor, too.
            fcntl.flock(directory, fcntl.LOCK_UN)
            os.close(directory)
        self._locked_directories.clear()
        if self._descriptor >= 0:
            _held.discard(self._identity)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _holder(path: Path) -> str:
    try:
        process = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return "another process"
    return f"process {process}" if process.isdecimal() else "another process"
