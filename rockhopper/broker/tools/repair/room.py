"""Disk space: checked before a tool writes, and reported if it runs out anyway."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rockhopper.broker.store.files.disk import DISK_FULL_ERRNOS
from rockhopper.broker.store.files.errors import DiskFullError, StoreError
from rockhopper.broker.tools.output import size_text

_BLOCK_BYTES = 512


class NoRoomError(StoreError):
    """The disk of a directory has too little space for the data."""


@contextmanager
def room(
    directory: Path, need_bytes: int, state: str, *, freed: Path | None = None
) -> Iterator[None]:
    """Refuse data that does not fit, and report the missing space if the disk becomes full.

    *need_bytes* is the known size of the data, and *freed* is deleted first. *state* describes the
    result of an interruption and the remedy.

    Raises:
        NoRoomError: there is too little space, or it has run out.
    """
    if reason := shortage(directory, need_bytes, freed=freed):
        raise NoRoomError(f"{reason}. Nothing was written: free some space first")
    used_before = count_used_bytes(directory)
    try:
        yield
    except (OSError, StoreError) as error:
        cause = error if isinstance(error, OSError) else error.__context__
        is_disk = isinstance(cause, OSError) and cause.errno in DISK_FULL_ERRNOS
        if not is_disk and not isinstance(error, DiskFullError):
            raise
        rest = need_bytes - (count_used_bytes(directory) - used_before)
        more = f"{size_text(rest)} more" if rest > 0 else f"more than {size_text(need_bytes)}"
        why = getattr(cause, "strerror", None) or "the disk is full"
        raise NoRoomError(
            f"{directory}: {more} needed, {size_text(free_bytes(directory))} free "
            f"({why.lower()}). {state}"
        ) from None


def shortage(directory: Path, need_bytes: int, *, freed: Path | None = None) -> str | None:
    """Return a text if *directory* lacks space even without *freed*; None if it does not."""
    free = free_bytes(directory) + (count_used_bytes(freed) if freed is not None else 0)
    if need_bytes <= free:
        return None
    return f"{directory}: {size_text(need_bytes)} needed, {size_text(free)} free"


def free_bytes(directory: Path) -> int:
    """Return the free bytes for this process on the disk of *directory*; it need not exist."""
    status = os.statvfs(next(path for path in (directory, *directory.parents) if path.exists()))
    return status.f_frsize * (status.f_bavail if os.geteuid() else status.f_bfree)


def count_used_bytes(directory: Path) -> int:
    """Return the disk usage of the files below *directory*."""
    return sum(get_allocated_bytes(path) for path in directory.rglob("*") if path.is_file())


def get_allocated_bytes(path: Path) -> int:
    """Return the disk usage of a file; with holes it is less than the size."""
    return path.stat().st_blocks * _BLOCK_BYTES
