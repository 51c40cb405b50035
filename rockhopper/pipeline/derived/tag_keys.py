"""Detect whether a store's index also holds tags, as in RocketMQ 5.4 and later."""

from pathlib import Path

import numpy as np

from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.pipeline.derived.entries import KIND_TAG, Entries
from rockhopper.pipeline.derived.geometry import Geometry
from rockhopper.pipeline.derived.index_files import (
    IndexFileInfo,
    entries_between,
    index_paths,
    read_index_info,
)
from rockhopper.pipeline.store_source.directory import StoreDirectory
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.scan import DamagedRange, scan
from rockhopper.protocol.store.store_paths import INDEX_DIRECTORY

_LOOKED_AT_BYTES = 1 << 20


def has_tag_keys(root: Path | None, store: StoreDirectory, geometry: Geometry) -> bool:
    """Return whether an index file holds the tags of its first messages; False without files."""
    if root is None:
        return False
    for path in index_paths(root / INDEX_DIRECTORY):
        try:
            info = read_index_info(
                path, geometry.index_slot_count, geometry.index_entry_count_max, look_behind=True
            )
        except (OSError, ValueError):
            continue
        start = info.begin_offset
        for file in store.segments:
            if not file.base_offset <= start < file.end_offset:
                continue
            end = min(start + _LOOKED_AT_BYTES, file.end_offset)
            piece = FilePiece(file.path, file.base_offset, start, end, end, True, store.is_live)
            try:
                is_held = _holds_tags(info, piece)
            except OSError:
                continue
            if is_held is not None:
                return is_held
    return False


def _holds_tags(info: IndexFileInfo, piece: FilePiece) -> bool | None:
    """Return whether the index holds a tag of the records in *piece*; None if it cannot tell."""
    entries = Entries(DispatchRules(delays_ms=(1,), has_tag_keys=True))
    for found in scan(piece):
        if not isinstance(found, DamagedRange):
            entries.append_records(found)
    _, held = entries_between(info, piece.start, piece.end)
    keys = entries.keys()
    tags = keys[keys["kind"] == KIND_TAG]
    if not len(tags) or not len(held):
        return None
    known = (held["position"].astype(np.int64) << 31) | held["hash"]
    wanted = (tags["position"] << 31) | tags["hash"]
    return bool(np.isin(wanted, known).any())
