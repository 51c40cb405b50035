"""File descriptors: the limit of this process, and the error if none is free.

A shortage is not a disk fault and changes nothing on disk. It is detected where a descriptor is
opened, not by its error number later: an fsync may fail with any number, and must never be retried.
"""

import errno
import sys

from rockhopper.broker.store.files.errors import TooManyOpenFilesError

RAISE_OPEN_FILES_MAX = (
    "raise the limit on open files (ulimit -n, LimitNOFILE= in a systemd unit, ulimits: in a "
    "compose file)"
)
_NO_DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})


def open_files_max() -> int | None:
    """Return the number of descriptors this process may open, or None without a limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class _DescriptorNeeded:
    # Not a generator: that would cost half as much as opening a file.

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            shortage = shortage_of(error)
            if shortage is not None and shortage is not error:
                raise shortage from error


def descriptor_needed() -> _DescriptorNeeded:
    """Turn an OSError raised because no descriptor is free into a TooManyOpenFilesError."""
    return _DescriptorNeeded()


def shortage_of(error: OSError) -> TooManyOpenFilesError | None:
    """Return the TooManyOpenFilesError for an *error* of opening a file; None for other errors."""
    if isinstance(error, TooManyOpenFilesError):
        return error
    if error.errno not in _NO_DESCRIPTOR_ERRNOS:
        return None
    if error.errno == errno.ENFILE:
        reason = "too many open files in the whole system: raise its limit (sysctl fs.file-max)"
    else:
        limit = open_files_max() or "no more"
        reason = f"too many open files: this process may have {limit}; {RAISE_OPEN_FILES_MAX}"
    return TooManyOpenFilesError(error.errno, reason)
