"""With which sizes a store directory was made.

Commit log and consume queue files tell their size by themselves. An index file does not: its
length, 40 + 4·slots + 20·entries, fits many pairs, and read with the wrong one it silently finds
nothing. So the pair is written down beside the store, and a setting that contradicts it is refused
while there are index files. A store that RocketMQ made has no such note; there the length decides.

``<root>/rockhopper/geometry.json``, one JSON object with the keys of ``Geometry`` in camel case and
``crc32`` of what they say (0.1.0 wrote none). A damaged note counts as none.
"""

import json
import zlib
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import GeometryError
from rockhopper.broker.store.index.index_file import file_size_bytes

log = structlog.get_logger("broker.store")

FILE_NAME = "geometry.json"


class Geometry(NamedTuple):
    """Slots and entries of an index file; entry 0 counts although it is never used."""

    index_slot_count: int
    index_entry_count_max: int


_KEYS = {"index_slot_count": "indexSlotCount", "index_entry_count_max": "indexEntryCountMax"}


def check(layout: StoreLayout, configured: Geometry) -> None:
    """Refuse index files of another geometry than *configured*; note the geometry otherwise.

    Afterwards an index file of another length is a damaged one.

    Raises:
        GeometryError: names both geometries and what to do.
        OSError: the note cannot be read or written.
    """
    noted = load(layout)
    lengths = _index_file_lengths(layout.index)
    if noted is not None and noted != configured and lengths:
        raise GeometryError(
            f"the index files in {layout.index} were made with {_describe(noted)}, and the "
            f"settings say {_describe(configured)}: set them back, or delete {layout.index} to "
            "have the index built anew from the commit log"
        )
    expected_bytes = file_size_bytes(*configured)
    if noted is None and lengths and expected_bytes not in lengths.values():
        path, actual_bytes = next(iter(lengths.items()))
        raise GeometryError(
            f"{path} is {actual_bytes} bytes long, and {_describe(configured)} make "
            f"{expected_bytes}: set both to what the store was made with (the length is 40 + "
            f"4·maxHashSlotNum + 20·maxIndexNum), or delete {layout.index} to have the index "
            "built anew from the commit log"
        )
    if noted != configured or (layout.own / FILE_NAME).read_bytes() != _encode(configured):
        save(layout, configured)


def load(layout: StoreLayout) -> Geometry | None:
    """What was noted; None for a store that has no note, or an unreadable one."""
    path = layout.own / FILE_NAME
    try:
        fields = json.loads(path.read_bytes())
        geometry = Geometry(**{name: int(fields[key]) for name, key in _KEYS.items()})
        if fields.keys() != set(_KEYS.values()) and fields.get("crc32") != _checksum(geometry):
            raise ValueError("its checksum is wrong")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning(
            "the note of the store's geometry is unreadable", path=str(path), reason=str(error)
        )
        return None
    return geometry


def save(layout: StoreLayout, geometry: Geometry) -> None:
    """Note *geometry*, durably.

    Raises:
        OSError: the former note is still in place.
    """
    disk.make_directories_durably(layout.own)
    disk.write_atomically(layout.own / FILE_NAME, _encode(geometry))


def _encode(geometry: Geometry) -> bytes:
    fields = {_KEYS[name]: value for name, value in geometry._asdict().items()}
    fields["crc32"] = _checksum(geometry)
    return json.dumps(fields).encode()


def _checksum(geometry: Geometry) -> int:
    return zlib.crc32(_describe(geometry).encode())


def _describe(geometry: Geometry) -> str:
    return (
        f"maxHashSlotNum={geometry.index_slot_count} and "
        f"maxIndexNum={geometry.index_entry_count_max}"
    )


def _index_file_lengths(directory: Path) -> dict[Path, int]:
    if not directory.is_dir():
        return {}
    paths = sorted(path for path in directory.iterdir() if path.name.isdecimal())
    return {path: path.stat().st_size for path in paths}
