"""ConsumeQueueExt: read the extension files that RocketMQ writes for SQL filters.

With ``enableConsumeQueueExt`` the tags code in a consume queue unit may be the address of an
extension unit: its offset minus 2⁶³. The extension unit holds the real tags code. We read such
files and never write one. A unit, big-endian:

    offset  size  field
         0     2  size of the unit in bytes, 20 + n; −1 where a file has no more units
         2     8  tags code
        10     8  store time in ms
        18     2  n, size of the bitmap
        20     n  bitmap of a Bloom filter over consumer groups
"""

import struct
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.protocol.store.queue_layout import EXT_ADDRESS_MAX

_HEAD = struct.Struct(">hqqh")
_ADDRESS_OF_OFFSET_0 = -(2**63)


class ExtensionUnit(NamedTuple):
    """The extension unit at an address."""

    tags_code: int
    store_time_ms: int
    bitmap: bytes


def is_address(tags_code: int) -> bool:
    """Return whether a unit's tags code is an address instead of a hash or a time."""
    return tags_code <= EXT_ADDRESS_MAX


class ConsumeQueueExt:
    """The extension files of one queue."""

    def __init__(self, directory: Path) -> None:
        """Load the files of *directory*, which may be missing.

        Raises:
            CorruptFileError: the files differ in size.
        """
        self._files = MappedFileQueue(directory, 0)
        self._files.load()

    def get(self, address: int) -> ExtensionUnit | None:
        """Return the unit at *address*, or None if there is no valid one."""
        offset = address - _ADDRESS_OF_OFFSET_0
        file = self._files.file_at(offset) if offset >= 0 else None
        if file is None:
            return None
        start = offset - file.base_offset
        try:
            head = file.read(start, start + _HEAD.size)
            if len(head) < _HEAD.size:
                return None
            size_bytes, tags_code, store_time_ms, bitmap_bytes = _HEAD.unpack(head)
            if bitmap_bytes < 0 or size_bytes != _HEAD.size + bitmap_bytes:
                return None
            bitmap = file.read(start + _HEAD.size, start + size_bytes)
        except (CorruptFileError, FileNotFoundError):
            return None
        if len(bitmap) != bitmap_bytes:
            return None
        return ExtensionUnit(tags_code, store_time_ms, bitmap)

    def close(self) -> None:
        """Drop the mappings."""
        self._files.close()
