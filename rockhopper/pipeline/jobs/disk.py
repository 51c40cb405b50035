"""Turn disk errors into one sentence with a remedy; check in advance that a write can work."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rockhopper.pipeline.errors import PipelineError


@contextmanager
def name_disk_problems() -> Iterator[None]:
    """Turn the OSError of a full disk or a protected directory into a PipelineError.

    It decorates every job. The error of a closed pipe stays unchanged.

    Raises:
        PipelineError: an OSError occurred.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PipelineError(_sentence(error)) from error


def check_writable(directory: Path) -> None:
    """Check that *directory* can be written or created, as far as possible without writing.

    Raises:
        OSError: the error that a write would raise.
    """
    nearest = directory
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise _refusal(errno.ENOTDIR, directory)
    if os.statvfs(nearest).f_flag & os.ST_RDONLY:
        raise _refusal(errno.EROFS, directory)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _refusal(errno.EACCES, directory)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refusal(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def _sentence(error: OSError) -> str:
    place = error.filename or "a file"
    said = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" of {error.filename}" if error.filename else ""
        return f"the disk{where} is full ({said}): make room, and start the job again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"{place} cannot be used ({said}): start the job as a user who may, or choose another "
            "directory"
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{place} cannot be made ({said}): choose another directory"
    return f"{place} cannot be read or written ({said}): correct that, and start the job again"
