"""Flush what is derived from the log: queues and index; then save the checkpoint."""

from collections.abc import Iterator

import structlog

from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.files import checkpoint as checkpoints
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.disk import DISK_FULL_ERRNOS
from rockhopper.broker.store.opening import OpenedStore

log = structlog.get_logger("broker.store")


class DerivedFlush:
    """The files that are derived from the log, and how far they are on disk.

    Everything here runs in the flush thread, or while it does not run.
    """

    def __init__(self, opened: OpenedStore, dispatch: Dispatch) -> None:
        """Recovery has dispatched and synced everything up to *dispatch*'s offset."""
        self.opened = opened
        self._dispatch = dispatch
        self._queues_time_ms = self._index_time_ms = dispatch.store_time_ms
        self._is_checkpoint_late = False

    def steps(self, thorough: bool) -> Iterator[None]:
        """Flush queues with enough to flush, or all of them and the index, one file a step."""
        dispatched_time_ms = self._dispatch.store_time_ms
        yield from self.opened.queues.flush_steps(thorough)
        if not thorough:
            return
        self._queues_time_ms = dispatched_time_ms
        if self.opened.index is not None:
            yield from self.opened.index.flush_steps()
            self._index_time_ms = dispatched_time_ms

    def save_checkpoint(self) -> None:
        """Save how far everything is on disk, after the fsyncs.

        Raises:
            TooManyOpenFilesError, OSError: not for a full disk; the old checkpoint is in place.
        """
        saved = self.opened.checkpoint
        commit_log = self.opened.commit_log
        new = StoreCheckpoint(
            commit_log_ms=commit_log.flushed_time_ms,
            consume_queue_ms=self._queues_time_ms,
            index_ms=self._index_time_ms,
            master_flushed_offset=saved.master_flushed_offset,
            confirm_offset=saved.confirm_offset,
            flushed_offset=commit_log.flushed_offset,
        )
        if new == saved:
            return
        try:
            checkpoints.save(self.opened.layout.own_checkpoint, new)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            # The old one is still valid: a crash would only make recovery read more of the log.
            if not self._is_checkpoint_late:
                log.warning("the checkpoint waits for disk space", reason=str(error))
            self._is_checkpoint_late = True
            return
        self._is_checkpoint_late = False
        self.opened.checkpoint = new
