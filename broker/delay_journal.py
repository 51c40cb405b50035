"""The journal of the delay levels: what they were about to deliver; a crash then repeats nothing.

``<store>/rockhopper/delay/journal.0`` and ``.1``, 32-byte notes, big-endian:

    offset  size  field
         0     8  level
         8     8  queue offset of the first message of a pass
        16     8  queue offset behind the last one
        24     8  end of the commit log when the pass was about to be written

Each time that delayOffset.json is saved the older file is emptied and written from then on: what
it told is in delayOffset.json since the save before.  Nothing is synced: after a power cut less of
the log may be left, and the notes are compared with that.
"""

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

import structlog

from broker.store import disk

log = structlog.get_logger("broker.delayed")

_NOTE = struct.Struct(">qqqq")


class Pass(NamedTuple):
    """One pass of one level."""

    level: int
    first_offset: int
    end_offset: int
    log_end: int


class DelayJournal:
    """Both files, open for writing once ``open`` was called."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptors: list[int] = []
        self._current = 0
        self._size_bytes = 0
        self._is_failing = False

    def open(self) -> list[Pass]:
        """What both files tell, in no order; from now on passes can be noted.

        Raises:
            OSError: they cannot be read or made.
        """
        disk.make_directories(self._directory)
        passes = []
        for name in ("journal.0", "journal.1"):
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            descriptor = os.open(self._directory / name, flags, 0o644)
            self._descriptors.append(descriptor)
            size_bytes = os.fstat(descriptor).st_size
            data = os.pread(descriptor, size_bytes - size_bytes % _NOTE.size, 0)
            passes += [Pass(*note) for note in _NOTE.iter_unpack(data)]
        return passes

    def clear(self) -> None:
        """Empty both files: what they told is taken over."""
        for descriptor in self._descriptors:
            os.ftruncate(descriptor, 0)
        self._size_bytes = 0

    def note(self, about: Pass) -> None:
        """Note a pass before it is written.  A note that cannot be made costs a repetition."""
        if not self._descriptors:
            return
        try:
            disk.write_fully(self._descriptors[self._current], self._size_bytes, _NOTE.pack(*about))
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                log.warning("deliveries of delayed messages are not noted", reason=str(error))
            return
        self._is_failing = False
        self._size_bytes += _NOTE.size

    def turn(self) -> None:
        """Go on in the other file: delayOffset.json is being saved."""
        if self._size_bytes == 0 or not self._descriptors:
            return
        self._current = 1 - self._current
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptors[self._current], 0)
        self._size_bytes = 0

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
