"""The proven end: up to where the log is known to have been on disk, to report a missing part.

- Inventory and checkpoint prove it, even after a kill.
- After a clean stop, and under SYNC_FLUSH, so does the unit of a record: no message is in a queue
  before it is on disk. The same is true for the index.
- If a run of Rockhopper was killed and neither inventory nor checkpoint is left, units and index
  are
  trusted as well, though some of their records may never have been on disk. A wrongly reported tail
  costs queue offsets; an unreported one costs messages.
"""

from collections.abc import Collection

import structlog

from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.broker.store.recovering.recovery_start import (
    QueueState,
    end_behind_files,
    end_by_units,
    units_from,
)

log = structlog.get_logger("broker.store")

# The index has only the start of a message; seldom is more than this of it missing.
_INDEXED_SIZE_BYTES = 512


class ProvenEnd:
    """The evidence about the end of one log."""

    def __init__(
        self,
        log_files: MappedFileQueue,
        checkpoint: StoreCheckpoint,
        noted: Inventory | None,
        *,
        is_clean: bool,
        is_ours: bool,
    ) -> None:
        """*is_ours*: as far as is known, RocketMQ was not the last to write to the store."""
        self._log_files = log_files
        self._is_clean = is_clean
        self.offset = max(checkpoint.flushed_offset, noted.log_end if noted is not None else 0)
        claimed = checkpoint.flushed_offset or checkpoint.consume_queue_ms
        self.is_without_notes = is_ours and not is_clean and noted is None and not claimed
        """Whether the last run was killed, and both its inventory and its checkpoint are missing.
        """
        self._is_sync = not is_clean and noted is not None and noted.is_sync

    def reach(self, queues: ConsumeQueueTable) -> None:
        """If the newest files are missing, make a file that covers the proven end of the log.

        *queues* must not be recovered yet: that drops the units after the files.
        """
        files = self._log_files
        if files.files and (self._is_sync or self.is_without_notes):
            self.offset = max(self.offset, end_behind_files(queues, files))
        end = self.offset
        if files.files and end > files.next_base_offset:
            log.error(
                "the newest commit log files are missing",
                directory=str(files.directory),
                from_offset=files.next_base_offset,
                to_offset=end,
            )
            file = files.append_file(end - end % files.file_size_bytes)
            file.write_position = file.size_bytes
            file.sync(0)

    def ask(
        self,
        queues: ConsumeQueueTable,
        states: Collection[QueueState],
        index: MessageIndex | None,
    ) -> None:
        """Extend the proven end by what the index and the queues show.

        The queues must have found their ends.
        """
        if self._is_clean:
            self.offset = max([self.offset, *(state.proven_end for state in states)])
        if not (self._is_sync or self.is_without_notes):
            return
        if self.is_without_notes:
            self.offset = max([self.offset, *(state.good_end for state in states)])
        start = max(self.offset, self._log_files.min_offset)
        units: list[tuple[int, int]] = []
        for queue in queues:
            if queue.commit_log_end > start:
                units += units_from(queue, start)
                queue.close()
        self.offset = end_by_units(units, start, self._log_files)
        if index is not None and index.end_commit_log_offset >= self.offset:
            end = index.end_commit_log_offset + _INDEXED_SIZE_BYTES
            if end < self._log_files.next_base_offset:
                self.offset = end
