"""The note about the sizes of the index files in a store.

``<root>/rockhopper/geometry.json`` is one JSON object with ``indexSlotCount`` and
``indexEntryCountMax``, and ``crc32`` of the two as the settings spell them (builds before 0.2.0
wrote none). The length of an index file fits many such pairs, and with the wrong pair a search
silently finds nothing.
"""

import json
import zlib
from typing import NamedTuple

from rockhopper.protocol.store.queue_layout import index_file_size_bytes

GEOMETRY_FILE = "geometry.json"
_GEOMETRY_KEYS = ("indexSlotCount", "indexEntryCountMax")


class IndexGeometry(NamedTuple):
    """Slots and entries of an index file; entry 0 counts although it is never used."""

    slot_count: int
    entry_count_max: int

    @property
    def file_size_bytes(self) -> int:
        """The length of an index file."""
        return index_file_size_bytes(*self)

    def __str__(self) -> str:
        return f"maxHashSlotNum={self.slot_count} and maxIndexNum={self.entry_count_max}"


def encode_geometry(geometry: IndexGeometry) -> bytes:
    """Encode the note of *geometry*."""
    fields = dict(zip(_GEOMETRY_KEYS, geometry, strict=True)) | {
        "crc32": _geometry_checksum(geometry)
    }
    return json.dumps(fields).encode()


def decode_geometry(data: bytes) -> IndexGeometry:
    """Decode a note. Raises ValueError if it is damaged."""
    try:
        fields = json.loads(data)
        geometry = IndexGeometry(*(int(fields[key]) for key in _GEOMETRY_KEYS))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if fields.keys() != set(_GEOMETRY_KEYS) and fields.get("crc32") != _geometry_checksum(geometry):
        raise ValueError("its checksum is wrong")
    return geometry


def _geometry_checksum(geometry: IndexGeometry) -> int:
    return zlib.crc32(str(geometry).encode())
