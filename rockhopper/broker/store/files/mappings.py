"""Mappings: which files of log and queues are mapped, and which are unmapped for others.

A mapping holds a file descriptor, and a store may use more queues than a process may have
descriptors. Files are unmapped only when a mapping is added; appends to and reads of a mapped queue
never call this module. When room is needed, the oldest mapping is checked: if its file has grown
since the last check, it moves to the end of the list, else it is unmapped (the clock algorithm).

Unmapping a file that was written through loses nothing: its pages stay in the page cache, and the
queue stays in the list of queues to flush.

Everything here belongs to the thread that appends.
"""

import mmap
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from rockhopper.broker.store.files.errors import TooManyOpenFilesError
from rockhopper.broker.store.files.mapped_file import MappedFile

MAPPED_FILES_MAX = 32_768
# Bounds the time to make room for one mapping.
_SPARED_MAX = 64
# Other parts of the process may have run out of descriptors, so free more than one.
_LET_GO_IN_SHORTAGE = 64

T = TypeVar("T")


class MappingOwner(Protocol):
    """The owner of some mapped files."""

    def has_grown(self, file: MappedFile) -> bool:
        """Return whether anything may have been appended to *file* since the last call."""

    def let_go(self, file: MappedFile) -> None:
        """Unmap *file*; the next access maps it again."""


class Mappings:
    """The mapped files of a store, at most *count_max*."""

    def __init__(self, count_max: int = MAPPED_FILES_MAX) -> None:
        self.count_max = count_max
        # Files that were unmapped for other reasons stay in it until they become the oldest.
        self._mapped: OrderedDict[MappedFile, MappingOwner] = OrderedDict()

    def map(self, file: MappedFile, holder: MappingOwner) -> mmap.mmap:
        """Map *file*, which must not be mapped yet.

        Raises:
            TooManyOpenFilesError: no descriptor is free, even after files were unmapped.
            OSError: it cannot be opened.
        """
        while len(self._mapped) >= self.count_max:
            self._let_go_of_one(_SPARED_MAX)
        mapping = self.with_room(file.map)
        self._mapped[file] = holder
        self._mapped.move_to_end(file)
        return mapping

    def with_room(self, action: Callable[[], T]) -> T:
        """Run *action*; if no descriptor is free, unmap some files and run it once more.

        Raises:
            TooManyOpenFilesError: none is free then either.
        """
        try:
            return action()
        except TooManyOpenFilesError:
            if not self.make_room():
                raise
        return action()

    def make_room(self) -> int:
        """Unmap some files, the idle ones first; return how many."""
        spared_max = len(self._mapped)
        count = 0
        while self._mapped and count < _LET_GO_IN_SHORTAGE:
            was_mapped, spared = self._let_go_of_one(spared_max)
            spared_max -= spared
            count += was_mapped
        return count

    def _let_go_of_one(self, spared_max: int) -> tuple[bool, int]:
        """Remove one file; return whether it was mapped, and how many growing files it skipped."""
        for spared in range(spared_max + 1):
            file, holder = self._mapped.popitem(last=False)
            if not file.is_mapped:
                return False, spared
            if spared == spared_max or not holder.has_grown(file):
                holder.let_go(file)
                return True, spared
            self._mapped[file] = holder
        raise AssertionError("the last of them is let go of")

    def release_all(self) -> None:
        """Unmap every file."""
        while self._mapped:
            file, holder = self._mapped.popitem()
            holder.let_go(file)

    def forget_unmapped(self) -> None:
        """Remove the files that were unmapped for other reasons."""
        for file in [file for file in self._mapped if not file.is_mapped]:
            del self._mapped[file]
