"""A piece of the log, as a task gets it, and where in a file anything was ever written."""

import errno
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one file; offsets are commit log offsets."""

    path: str
    base_offset: int
    start: int
    end: int
    readable_end: int
    """Up to where the file may be looked at: a record that starts in front of ``end`` may end
    behind it."""
    is_followed: bool
    """Whether a later file holds records, so that the log does not end in this one."""
    is_live: bool
    """Whether a broker runs on the store: it may be writing behind the last record."""
    flushed_ms: int | None = None
    """Where records with a later store time do not count yet."""
    is_missing: bool = False
    """Whether the range is in no file at all."""


def data_ranges(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """Where in [start, end) of a file something was written; all of it if that is not known."""
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
    """The same by name; a file that is gone counts as written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return [(start, end)]
    try:
        return data_ranges(descriptor, start, end)
    finally:
        os.close(descriptor)
