"""Read-ahead: which parts of the commit log the kernel may read ahead.

It may do so before the end of the log, unless an operator has turned it off. After the end,
read-ahead would fill memory with zeros of unwritten blocks, 8 MiB at a time, whenever a fast
consumer or a follower reads what was just written.
"""

import mmap
import sys
from collections.abc import Iterable

from rockhopper.broker.store.files.mapped_file import MappedFile

STEP_BYTES = 16 << 20
"""The log grows by this much between two calls of ``passed``."""


class ReadAhead:
    """Advises the kernel on the mappings of one log."""

    def __init__(self) -> None:
        """Until ``passed`` is called the log has no end: opening a log reads all of it."""
        self._is_off = False
        self._written_offset = sys.maxsize

    def advise(self, mapping: mmap.mmap, base_offset: int) -> None:
        """Advise the kernel on a mapping of the file that begins at *base_offset*."""
        size = len(mapping)
        behind = 0 if self._is_off else min(max(self._written_offset - base_offset, 0), size)
        behind -= behind % mmap.PAGESIZE
        if behind:
            mapping.madvise(mmap.MADV_NORMAL, 0, behind)
        if behind < size:
            mapping.madvise(mmap.MADV_RANDOM, behind)

    def passed(self, files: Iterable[MappedFile], written_offset: int) -> None:
        """Move the end of the log to *written_offset*; *files* are those it may affect."""
        self._written_offset = written_offset
        self._advise(files)

    def turn(self, files: Iterable[MappedFile], *, enabled: bool) -> None:
        """Turn read-ahead on or off for *files*, and for later mappings."""
        self._is_off = not enabled
        self._advise(files)

    def _advise(self, files: Iterable[MappedFile]) -> None:
        for file in files:
            if file.is_mapped:
                self.advise(file.mapping, file.base_offset)
