"""The sizes of a store's derived files: of what is there, as long as nobody says else."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.derived.entries import QueueKey
from pipeline.derived.index_files import index_file_size, index_paths
from pipeline.derived.queue_files import QueueFiles, find_queues, rounded_file_size, unit_layout
from pipeline.errors import PipelineError
from protocol.store_paths import INDEX_DIRECTORY, OWN_DIRECTORY

QUEUE_FILE_SIZE_BYTES = 300_000 * 20
BATCH_QUEUE_FILE_SIZE_BYTES = 300_000 * 46
INDEX_SLOT_COUNT = 5_000_000
INDEX_ENTRY_COUNT_MAX = 20_000_000

_GEOMETRY_FILE = "geometry.json"


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of queue files, of batch queue files, and of index files.

    RocketMQ calls them mappedFileSizeConsumeQueue, mapperFileSizeBatchConsumeQueue, maxHashSlotNum
    and maxIndexNum.
    """

    queue_file_size_bytes: int = QUEUE_FILE_SIZE_BYTES
    batch_queue_file_size_bytes: int = BATCH_QUEUE_FILE_SIZE_BYTES
    index_slot_count: int = INDEX_SLOT_COUNT
    index_entry_count_max: int = INDEX_ENTRY_COUNT_MAX

    def queue_file_size(self, key: QueueKey) -> int:
        """The size of the files of a queue."""
        return self.batch_queue_file_size_bytes if key.is_batch else self.queue_file_size_bytes


def find_geometry(
    root: Path | None,
    *,
    queue_file_size_bytes: int | None = None,
    batch_queue_file_size_bytes: int | None = None,
    index_slot_count: int | None = None,
    index_entry_count_max: int | None = None,
) -> Geometry:
    """What is given counts; else what the store in *root* has; else the brokers' defaults.

    Raises:
        PipelineError: the index files are of another geometry, or there is no room for a unit.
    """
    found = _sizes_of_queue_files(root)
    noted = _noted(root)
    slots = index_slot_count or noted.get("indexSlotCount") or INDEX_SLOT_COUNT
    entries = index_entry_count_max or noted.get("indexEntryCountMax") or INDEX_ENTRY_COUNT_MAX
    if slots < 1 or entries < 2:
        raise PipelineError(
            f"index files cannot have {slots} slots and {entries} entries: set --index-slots "
            "to at least 1 and --index-entries to at least 2"
        )
    sizes = [path.stat().st_size for path in index_paths(root / INDEX_DIRECTORY)] if root else []
    if sizes and index_file_size(slots, entries) not in sizes:
        raise PipelineError(
            f"the index files have {sizes[0]} bytes, and {slots} slots with {entries} entries make "
            f"{index_file_size(slots, entries)}: set --index-slots and --index-entries "
            "(index_slots and index_entries) to what maxHashSlotNum and maxIndexNum are in "
            "broker.conf"
        )
    return Geometry(
        rounded_file_size(queue_file_size_bytes or found[False], False),
        rounded_file_size(batch_queue_file_size_bytes or found[True], True),
        slots,
        entries,
    )


def _sizes_of_queue_files(root: Path | None) -> dict[bool, int]:
    found: dict[bool, int] = {}
    for key in _first_queues(root):
        if key.is_batch in found:
            continue
        assert root is not None
        unit = unit_layout(key.is_batch).itemsize
        for file in QueueFiles(root, key).files:
            if file.size_bytes and file.size_bytes % unit == 0:
                found[key.is_batch] = file.size_bytes
                break
    found.setdefault(False, QUEUE_FILE_SIZE_BYTES)
    found.setdefault(True, BATCH_QUEUE_FILE_SIZE_BYTES)
    return found


def _first_queues(root: Path | None) -> Iterable[QueueKey]:
    return () if root is None else find_queues(root)


def _noted(root: Path | None) -> dict[str, int]:
    if root is None:
        return {}
    try:
        document = json.loads((root / OWN_DIRECTORY / _GEOMETRY_FILE).read_bytes())
        return {str(name): int(value) for name, value in document.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
