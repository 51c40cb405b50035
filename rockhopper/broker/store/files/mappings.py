"""Mappings: which files of log and queues are mapped, and which are let go of for others.

A mapping holds a file descriptor, and a store may have more queues in use than a process may have
descriptors. Room is made only where a mapping is added: nothing here is called for an append to a
queue that is mapped, or for a read of one. Instead the oldest mapping is asked then whether its
file has grown since it was last asked, and if so goes to the end of the row (the clock algorithm).

Letting go of a mapping that was written through loses nothing: its pages stay in the page cache,
and the queue stays in the list of those to be flushed.

Everything here belongs to the thread that appends.
"""

import mmap
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from rockhopper.broker.store.files.errors import TooManyOpenFilesError
from rockhopper.broker.store.files.mapped_file import MappedFile

MAPPED_FILES_MAX = 32_768
# Bounds the time that making room for one mapping takes.
_SPARED_MAX = 64
# The shortage may be somebody else's, who needs room as well.
_LET_GO_IN_SHORTAGE = 64

T = TypeVar("T")


class Holder(Protocol):
    """Who uses the mappings of some files."""

    def has_grown(self, file: MappedFile) -> bool:
        """Whether anything may have been appended to *file* since the last call."""

    def let_go(self, file: MappedFile) -> None:
        """Unmap *file*; it is mapped anew when needed."""


class Mappings:
    """The mapped files of a store, at most *count_max*."""

    def __init__(self, count_max: int = MAPPED_FILES_MAX) -> None:
        self.count_max = count_max
        # Files that were unmapped for other reasons stay in it until their turn comes.
        self._mapped: OrderedDict[MappedFile, Holder] = OrderedDict()

    def map(self, file: MappedFile, holder: Holder) -> mmap.mmap:
        """Map *file*, which is not mapped.

        Raises:
            TooManyOpenFilesError: no descriptor is free, though mappings were let go of.
            OSError: it cannot be opened.
        """
        while len(self._mapped) >= self.count_max:
            self._let_go_of_one(_SPARED_MAX)
        mapping = self.with_room(file.map)
        self._mapped[file] = holder
        self._mapped.move_to_end(file)
        return mapping

    def with_room(self, action: Callable[[], T]) -> T:
        """Do what needs a descriptor, a second time after letting go of mappings if none is free.

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
        """Let go of some mappings, the idle ones first; return of how many."""
        spared_max = len(self._mapped)
        count = 0
        while self._mapped and count < _LET_GO_IN_SHORTAGE:
            was_mapped, spared = self._let_go_of_one(spared_max)
            spared_max -= spared
            count += was_mapped
        return count

    def _let_go_of_one(self, spared_max: int) -> tuple[bool, int]:
        """Take one file out; return whether it was mapped, and how many were spared before it."""
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
        """Let go of every mapping."""
        while self._mapped:
            file, holder = self._mapped.popitem()
            holder.let_go(file)

    def forget_unmapped(self) -> None:
        """Forget the files that were unmapped for other reasons."""
        for file in [file for file in self._mapped if not file.is_mapped]:
            del self._mapped[file]
