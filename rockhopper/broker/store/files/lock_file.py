"""The files ``lock`` and ``abort``: who uses a store directory, and how the last use ended.

Only one process, Rockhopper or RocketMQ, uses a store directory at a time. The file ``lock`` holds
the text ``lock``. The lock itself is an exclusive record lock on its first byte, as Java's
``FileChannel.tryLock(0, 1, false)`` takes it. The kernel drops it when the process ends, in
whatever way. The broker takes it before it reads anything of the store, because recovery changes
files.

Deleting the file does not release the holder's lock, but lets other processes in: they make a new
file. So the directories of the store and of its log are locked as well, by ``flock``, which
RocketMQ does not check. If the directory of the commit log is deleted or moved, the broker keeps
writing to files that nobody will find. Neither makes a write or an fsync fail, so now and then
``StoreWatch`` compares the inodes behind the names with the first ones seen. A check costs three
calls of ``stat``.

``abort`` exists while a broker runs: found at a start, it means an unclean stop. It holds the
process id as text. The broker writes it right after it takes the lock, and makes it durable before
it changes anything else. RocketMQ writes it last, which leaves a window in which a crash looks like
a clean stop.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.disk import remove_files, write_atomically
from rockhopper.broker.store.files.errors import StoreLockedError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue

Identity = tuple[int, int]
# Inode, and the times of the last changes of content and of the inode.
FileState = tuple[int, int, int]

_CONTENT = b"lock"

# Closing any descriptor of a file drops all record locks that the process has on it, and record
# locks do not exclude their own process. So a second attempt in this process must not even open the
# file.
_held: set[Identity] = set()


class StoreLock:
    """The lock on the store in *directory*; taken by the constructor, released by ``release``."""

    def __init__(
        self, directory: Path, path: Path, holder_path: Path, *, is_check: bool = False
    ) -> None:
        """Take the lock on the file *path*, and make the file if it is missing.

        *holder_path* is the abort file; it names the process that holds the lock. With *is_check*
        nothing is written to the file: the next ``StoreLock`` finds its state unchanged.

        Raises:
            StoreLockedError: another process, or this one, holds the lock.
        """
        self._directory = directory
        self._path = path
        self._holder_path = holder_path
        self._descriptor = -1
        self._locked_directories: list[int] = []
        self.found_state: FileState = (0, 0, 0)
        """The state of the file before this process wrote to it; RocketMQ writes to it, too."""
        self.state: FileState = (0, 0, 0)
        """Its state since then, unless another process has written to it."""
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
            self.found_state = _state(os.fstat(descriptor))
            if not is_check:
                os.pwrite(descriptor, _CONTENT, 0)
            self.state = _state(os.fstat(descriptor))
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


def _state(status: os.stat_result) -> FileState:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _holder(path: Path) -> str:
    try:
        process = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return "another process"
    return f"process {process}" if process.isdecimal() else "another process"


class StoreWatch:
    """Checks the lock file and the commit log of an open store; for one thread."""

    def __init__(
        self, layout: StoreLayout, files: MappedFileQueue, is_locked: Callable[[], bool]
    ) -> None:
        """*files* are those of the commit log, whose directory exists."""
        self._layout = layout
        self._files = files
        self._is_locked = is_locked
        self._directory = _identity_at(layout.commit_log)
        self._newest: tuple[Path | None, Identity | None] = (None, None)

    def describe_loss(self) -> str | None:
        """Return a sentence that says what is missing and what to do; None if all is well."""
        if not self._is_locked():
            return (
                f"{self._layout.lock} was deleted or replaced, and with it the lock that keeps "
                f"other brokers out: make sure that no other broker runs on {self._layout.root}, "
                "then restart"
            )
        if not self._is_log_in_place():
            return (
                f"the commit log in {self._layout.commit_log} was deleted, moved, replaced or "
                "truncated: restore it (is its disk still mounted?), then restart"
            )
        return None

    def _is_log_in_place(self) -> bool:
        if _identity_at(self._layout.commit_log) != self._directory:
            return False
        newest = self._files.files[-1].path
        status = _status(newest)
        if status is None or status.st_size < self._files.file_size_bytes:
            return False
        identity = status.st_dev, status.st_ino
        if newest != self._newest[0]:
            self._newest = newest, identity
        return identity == self._newest[1]


def _identity_at(path: Path) -> Identity | None:
    status = _status(path)
    return None if status is None else (status.st_dev, status.st_ino)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def was_left_in_use(path: Path) -> bool:
    """Return whether the last run did not stop cleanly. Call it before ``mark_in_use``."""
    return path.exists()


def mark_in_use(path: Path) -> None:
    """Mark the store as in use, durably."""
    write_atomically(path, str(os.getpid()).encode())


def mark_stopped(path: Path) -> None:
    """Mark the store as stopped cleanly, durably. This is the last step of closing a store."""
    remove_files([path])
