"""The index geometry that a store directory was made with.

Commit log and consume queue files show their size themselves. An index file does not: its length,
40 + 4·slots + 20·entries, fits many pairs, and with the wrong pair a search silently finds nothing.
So the pair is saved beside the store, and a setting that contradicts it is refused while there are
index files. A store made by RocketMQ has no such note; there the length decides.

protocol.store.geometry_note defines the note; a damaged one counts as missing.
"""

from pathlib import Path

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import GeometryError
from rockhopper.protocol.store.geometry_note import (
    FILE_NAME,
    IndexGeometry,
    decode_geometry,
    encode_geometry,
)

log = structlog.get_logger("broker.store")


def check_geometry(layout: StoreLayout, configured: IndexGeometry) -> None:
    """Refuse index files of another geometry than *configured*, else save the geometry.

    Afterwards an index file of another length is a damaged one.

    Raises:
        GeometryError: names both geometries and what to do.
        OSError: the note cannot be read or written.
    """
    noted = load_geometry(layout)
    lengths = _index_file_lengths(layout.index)
    if noted is not None and noted != configured and lengths:
        raise GeometryError(
            f"the index files in {layout.index} were created with {noted}, but the settings are "
            f"{configured}: change them back, or delete {layout.index} to rebuild the index from "
            "the commit log"
        )
    expected_bytes = configured.file_size_bytes
    if noted is None and lengths and expected_bytes not in lengths.values():
        path, actual_bytes = next(iter(lengths.items()))
        raise GeometryError(
            f"{path} is {actual_bytes} bytes long, but {configured} make {expected_bytes}: set "
            "both to the values that the store was created with (the length is 40 + "
            f"4·maxHashSlotNum + 20·maxIndexNum), or delete {layout.index} to rebuild the index "
            "from the commit log"
        )
    if noted != configured or (layout.own / FILE_NAME).read_bytes() != encode_geometry(configured):
        save_geometry(layout, configured)


def load_geometry(layout: StoreLayout) -> IndexGeometry | None:
    """Return the saved geometry; None if the store has no note, or an unreadable one."""
    path = layout.own / FILE_NAME
    try:
        return decode_geometry(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        log.warning("the saved index geometry is unreadable", path=str(path), reason=str(error))
        return None


def save_geometry(layout: StoreLayout, geometry: IndexGeometry) -> None:
    """Save *geometry*, durably.

    Raises:
        OSError: the former note is still in place.
    """
    disk.make_directories_durably(layout.own)
    disk.write_atomically(layout.own / FILE_NAME, encode_geometry(geometry))


def _index_file_lengths(directory: Path) -> dict[Path, int]:
    if not directory.is_dir():
        return {}
    paths = sorted(path for path in directory.iterdir() if path.name.isdecimal())
    return {path: path.stat().st_size for path in paths}
