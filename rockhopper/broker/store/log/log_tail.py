"""Cut the commit log off at its end, and save the bytes that were cut."""

import os
from typing import NamedTuple

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue

_SLICE_BYTES = 1 << 20


class CutTail(NamedTuple):
    """Bytes cut off after the end of the log, up to the last nonzero one."""

    offset: int
    size_bytes: int
    kept_as: str


def cut_tail(layout: StoreLayout, files: MappedFileQueue, end: int) -> CutTail | None:
    """End the log at *end*: copy the bytes after it to the quarantine, then zero them, durably.

    Returns None if there were only zeros after it.

    Raises:
        OSError: the log may still have its old content.
    """
    tail = None
    for file in files.files:
        if file.end_offset > end:
            start = max(end, file.base_offset)
            kept = _keep_tail(layout, file, start)
            if kept is not None and tail is not None:
                kept = CutTail(tail.offset, tail.size_bytes + kept.size_bytes, tail.kept_as)
            tail = kept or tail
    files.truncate_to(end)
    return tail


def _keep_tail(layout: StoreLayout, file: MappedFile, start: int) -> CutTail | None:
    position = start - file.base_offset
    last = _last_written(file, position)
    if last < position:
        return None
    target = layout.quarantine / f"commitlog-{start:020d}"
    kept_as = disk.copy_aside(file.path, target, position, last + 1)
    return CutTail(start, last + 1 - position, str(kept_as))


def is_all_zeros(file: MappedFile) -> bool:
    """Return whether all bytes of *file* are zero."""
    return _last_written(file, 0) < 0


def _last_written(file: MappedFile, position: int) -> int:
    """Return the position of the last nonzero byte from *position* on; −1 if there is none."""
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        ranges = list(disk.data_ranges(descriptor, position, file.size_bytes))
    finally:
        os.close(descriptor)
    for start, end in reversed(ranges):
        while end > start:
            slice_start = max(start, end - _SLICE_BYTES)
            written = file.read(slice_start, end).rstrip(b"\0")
            if written:
                return slice_start + len(written) - 1
            end = slice_start
    return -1
