"""Check that the file system can hold a store, in its directory and before any file is made.

Some network and user-space file systems accept files, but lack file locks, shared mappings or fsync
of directories. They would fail at the first message or, worse, at the first crash.
"""

import contextlib
import errno
import fcntl
import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import UnfitFileSystemError

_NOT_THERE = {
    errno.EINVAL,
    errno.ENODEV,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOTTY,
}


def check_file_system(directory: Path) -> None:
    """Check that files in *directory* can be locked and mapped, and that it can be synced itself.

    Raises:
        UnfitFileSystemError: the file system does not support one of these.
        OSError: something else is wrong.
    """
    with tempfile.TemporaryFile(dir=directory, prefix=".tried-") as file:
        with _explain_lack(directory, "no file locks"):
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        file.truncate(mmap.PAGESIZE)
        has_room = _has_room(file.fileno())
        with (
            _explain_lack(directory, "no shared writable mappings"),
            mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapped,
        ):
            if has_room:
                mapped[0] = 1
                mapped.flush()
    with _explain_lack(directory, "no fsync of directories"):
        disk.sync_directory(directory)


def _has_room(descriptor: int) -> bool:
    """Reserve the page to write: on a full disk a signal would kill the process."""
    try:
        disk.reserve(descriptor, 0, mmap.PAGESIZE)
    except OSError as error:
        if error.errno not in disk.DISK_FULL_ERRNOS:
            raise
        return False
    return True


@contextlib.contextmanager
def _explain_lack(directory: Path, lack: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise UnfitFileSystemError(directory, lack, error) from error
        raise
