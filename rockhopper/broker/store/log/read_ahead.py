"""Read-ahead: where in the commit log the kernel may read more than it is asked for.

In front of where the log ends, unless an operator has turned it off. Behind, it would fill memory
with zeros of blocks that are not written yet, 8 MiB at a time, whenever somebody reads what was
just written: consumers that keep up, and a replica set's followers.
"""

import mmap
import sys
from collections.abc import Iterable

from rockhopper.broker.store.files.mapped_file import MappedFile

STEP_BYTES = 16 << 20
"""So far the log grows between two calls of ``passed``."""


class ReadAhead:
    """Advises the kernel on the mappings of one log."""

    def __init__(self) -> None:
        """Until ``passed`` is called there is no end: who opens a log reads all of it."""
        self._is_off = False
        self._written_offset = sys.maxsize

    def advise(self, mapping: mmap.mmap, base_offset: int) -> None:
        """Tell the kernel of a mapping of the file that begins at *base_offset*."""
        size = len(mapping)
        behind = 0 if self._is_off else min(max(self._written_offset - base_offset, 0), size)
        behind -= behind % mmap.PAGESIZE
        if behind:
            mapping.madvise(mmap.MADV_NORMAL, 0, behind)
        if behind < size:
            mapping.madvise(mmap.MADV_RANDOM, behind)

    def passed(self, files: Iterable[MappedFile], written_offset: int) -> None:
        """Take note of where the log ends; *files* are those that this may concern."""
        self._written_offset = written_offset
        self._advise(files)

    def turn(self, files: Iterable[MappedFile], *, enabled: bool) -> None:
        """Turn it on or off for *files*, and for what is mapped later."""
        self._is_off = not enabled
        self._advise(files)

    def _advise(self, files: Iterable[MappedFile]) -> None:
        for file in files:
            if file.is_mapped:
                self.advise(file.mapping, file.base_offset)
