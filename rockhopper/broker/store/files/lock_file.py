"""The ``lock`` file: one process at a time uses a store directory, be it Rockhopper or RocketMQ.

It holds the text ``lock``; what counts is an exclusive record lock on its first byte, as Java's
``FileChannel.tryLock(0, 1, false)`` takes it. The kernel drops it when the process ends, however
it ends. The lock comes first, before anything of the store is read: recovery changes files.

Who deletes the file takes nothing from the holder, and lets others in: they make a new one. So the
directories of the store and of its log are locked as well, by ``flock``, which RocketMQ does not
ask for; and the holder looks now and then whether the file is still the one that it has locked.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from rockhopper.broker.store.files.errors import StoreLockedError

_CONTENT = b"lock"

# Closing any descriptor of a file drops all record locks that the process has on it, and record
# locks do not exclude their own process: so a second attempt here must not even open the file.
_held: set[tuple[int, int]] = set()


class StoreLock:
    """The lock on the store in *directory*; taken by the constructor, released by ``release``."""

    def __init__(self, directory: Path, path: Path, holder_path: Path) -> None:
        """Take the lock in the file *path*, which is made if need be.

        *holder_path* is the abort file; it names the process that holds the lock.

        Raises:
            StoreLockedError: somebody has it.
        """
        self._directory = directory
        self._path = path
        self._holder_path = holder_path
        self._descriptor = -1
        self._locked_directories: list[int] = []
        with contextlib.suppress(FileNotFoundError):
            if _identity(path.stat()) in _held:
                raise StoreLockedError(directory, "this very process")
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
        """Keep other stores out of the directory of the log, which need not be below the store's.

        Raises:
            StoreLockedError: another store has it.
        """
        try:
            self._lock_directory(path)
        except StoreLockedError:
            raise StoreLockedError(
                path, "the broker of another store", setting="storePathCommitLog"
            ) from None

    def _lock_directory(self, path: Path) -> None:
        # Some network file systems lock no directories: the lock file has to do there.
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
        """Whether the lock file is still the one that is locked."""
        try:
            return _identity(self._path.stat()) == self._identity
        except OSError:
            return False

    def release(self) -> None:
        """Let others have the store; the file stays."""
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
