"""Wait until the store of a running broker has flushed the archived messages.

Archiving over the network copies messages from the broker's memory. The broker flushes them to its
files half a second to a second later.
"""

import time
from collections.abc import Callable, Iterable

import pyarrow.parquet as pq

from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
from rockhopper.pipeline.store_source.directory import Flushed, StoreDirectory, open_store

WAIT_S = 10.0
POLL_S = 0.1


def open_with_archived(
    path: str,
    location: str,
    files: Iterable[ArchivedFile],
    broker: str | None,
    *,
    now_s: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> StoreDirectory:
    """Return the store at *path* once its log has flushed the messages in *files* of *broker*.

    If *broker* is None, files of all brokers count. After a timeout the store is returned anyway;
    the audit then reports what is missing.
    """
    store = open_store(path)
    newest = _Newest(location, files, broker)
    end_s = now_s() + WAIT_S
    while store.is_live and not newest.is_on_disk(store.flushed) and now_s() < end_s:
        wait(POLL_S)
        store = open_store(path)
    return store


class _Newest:
    """The newest archived message of a broker."""

    def __init__(self, location: str, files: Iterable[ArchivedFile], broker: str | None) -> None:
        self._location = location
        of_broker = [
            (queue.max_store_ms, file.path)
            for file in files
            for queue in file.queues
            if broker in (None, queue.broker)
        ]
        self._time_ms = max((at_ms for at_ms, _ in of_broker), default=0)
        self._paths = {path for at_ms, path in of_broker if at_ms == self._time_ms}
        self._offset: int | None = None

    def is_on_disk(self, flushed: Flushed) -> bool:
        """Return whether the log is flushed beyond it, as far as that is known."""
        if flushed.offset is None:
            return flushed.time_ms is None or flushed.time_ms >= self._time_ms
        if self._offset is None:
            ends = (_last_offset(self._location, path) for path in self._paths)
            self._offset = max(ends, default=-1)
        return flushed.offset > self._offset


def _last_offset(location: str, path: str) -> int:
    """Return the largest ``physOffset`` in a file, −1 if unknown."""
    try:
        with files_at(location).open_input(path) as source:
            metadata = pq.ParquetFile(source).metadata
    except (OSError, ValueError):
        return -1  # The audit reports it.
    column = metadata.schema.names.index("physOffset") if metadata.num_row_groups else -1
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    found = (group.column(column).statistics for group in groups)
    return max((int(each.max) for each in found if each and each.has_min_max), default=-1)
