"""Pieces of the log for tasks, and the written ranges of files."""

import errno
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A range of one file; offsets are commit log offsets."""

    path: str
    base_offset: int
    start: int
    end: int
    readable_end: int
    """How far the file may be read: a record that starts before ``end`` may end after it."""
    is_followed: bool
    """Whether a later file holds records, so that the log does not end in this one."""
    is_live: bool
    """Whether a broker runs on the store: it may be writing after the last record."""
    flushed_ms: int | None = None
    """Records with a later store time are not flushed, so they do not count yet."""
    is_missing: bool = False
    """Whether no file contains the range."""


def data_ranges(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return the written ranges in [start, end) of a file; all of it if they are unknown."""
    found: list[tuple[int, int]] = []
    at = start
    try:
        while at < end:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
            stop = os.lseek(descriptor, at, os.SEEK_HOLE)
            if at < end:
                found.append((at, min(stop, end)))
            at = stop
    except OSError as error:
        if error.errno != errno.ENXIO:
            return [(start, end)]
    return found


def data_ranges_of(path: str, start: int, end: int) -> list[tuple[int, int]]:
    """Like ``data_ranges``, by path; a deleted file counts as written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return [(start, end)]
    try:
        return data_ranges(descriptor, start, end)
    finally:
        os.close(descriptor)
