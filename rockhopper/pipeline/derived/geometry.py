"""The sizes of a store's index files: taken from existing files unless options set them."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rockhopper.pipeline.derived.index_files import index_paths
from rockhopper.pipeline.derived.index_geometry import (
    complete_geometry,
    search_geometry,
    usual_size,
)
from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.store.queue_layout import (
    GEOMETRY_FILE,
    INDEX_ENTRY_COUNT_MAX,
    INDEX_SLOT_COUNT,
    IndexGeometry,
    decode_geometry,
)
from rockhopper.protocol.store.store_paths import INDEX_DIRECTORY, OWN_DIRECTORY

_REMEDY = (
    "set --index-slots and --index-entries (index_slots and index_entries) to what maxHashSlotNum "
    "and maxIndexNum are in broker.conf"
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of index files. RocketMQ calls them maxHashSlotNum and maxIndexNum."""

    index_slot_count: int = INDEX_SLOT_COUNT
    index_entry_count_max: int = INDEX_ENTRY_COUNT_MAX
    index_problem: str = ""
    """Why the geometry of the index files is unknown, and what to do; empty if it is known."""


def find_geometry(
    root: Path | None,
    *,
    index_slot_count: int | None = None,
    index_entry_count_max: int | None = None,
) -> Geometry:
    """Choose the sizes: arguments first, then the files of the store in *root*, then defaults.

    Raises:
        PipelineError: the index files do not have the given geometry.
    """
    index, problem = _index_geometry(root, index_slot_count, index_entry_count_max)
    return Geometry(*index, problem)


def _index_geometry(
    root: Path | None, slots: int | None, entries: int | None
) -> tuple[IndexGeometry, str]:
    """Return the index geometry, and the reason if it is unknown."""
    paths = [] if root is None else index_paths(root / INDEX_DIRECTORY)
    size = usual_size(paths)
    noted = _read_noted(root)
    likely = noted or IndexGeometry(INDEX_SLOT_COUNT, INDEX_ENTRY_COUNT_MAX)
    if slots is not None or entries is not None:
        given = _use_given(slots, entries, likely, size)
        _check_given(given, paths, size)
        return given, ""
    if size is None:
        return likely, ""
    return _detect_geometry(paths, size, likely, is_noted=noted is not None)


def _detect_geometry(
    paths: list[Path], size: int, likely: IndexGeometry, *, is_noted: bool
) -> tuple[IndexGeometry, str]:
    if is_noted and likely.file_size_bytes == size:
        return likely, ""
    found = search_geometry(paths, likely)
    if found is not None:
        return found, ""
    if is_noted or likely.file_size_bytes in _sizes(paths):
        return likely, ""
    return likely, (
        f"the index files have {size} bytes, which fit many geometries, and their entries do not "
        f"tell which: {_REMEDY}"
    )


def _use_given(
    slots: int | None, entries: int | None, likely: IndexGeometry, size: int | None
) -> IndexGeometry:
    given = None
    if size is not None and (slots is None or entries is None):
        given = complete_geometry(slots, entries, size)
    return given or IndexGeometry(
        likely.slot_count if slots is None else slots,
        likely.entry_count_max if entries is None else entries,
    )


def _check_given(given: IndexGeometry, paths: list[Path], size: int | None) -> None:
    if given.slot_count < 1 or given.entry_count_max < 2:
        raise PipelineError(
            f"index files cannot have {given.slot_count} slots and {given.entry_count_max} "
            "entries: set --index-slots to at least 1 and --index-entries to at least 2"
        )
    if size is not None and given.file_size_bytes not in _sizes(paths):
        raise PipelineError(
            f"the index files have {size} bytes, and {given.slot_count} slots with "
            f"{given.entry_count_max} entries make {given.file_size_bytes}: leave the two out, or "
            f"{_REMEDY}"
        )


def _sizes(paths: list[Path]) -> set[int]:
    found = set()
    for path in paths:
        with suppress(FileNotFoundError):  # It has expired.
            found.add(path.stat().st_size)
    return found


def _read_noted(root: Path | None) -> IndexGeometry | None:
    """Return the geometry that Rockhopper stores beside an index that it creates."""
    if root is None:
        return None
    try:
        return decode_geometry((root / OWN_DIRECTORY / GEOMETRY_FILE).read_bytes())
    except (OSError, ValueError):
        return None
