"""JournalSync: syncs journal entries to disk a moment later, with the fsync off the event loop.

An entry is in the page cache at once, so a kill loses none. ``soon`` syncs it within ``INTERVAL_S``
plus the time of the fsync. So a power cut repeats the deliveries since then, less than half a
second on a disk that answers in time.
"""

import asyncio
from pathlib import Path
from typing import Protocol

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.notes")

NAME = "syncing notes of deliveries"
INTERVAL_S = 0.2
RETRY_S = 5.0


class UnsyncedFiles(Protocol):
    """The files of a journal."""

    def take_unsynced_notes(self) -> list[Path]:
        """Return the files to sync; they count as synced from now on."""

    def unsynced_again(self, paths: list[Path]) -> None:
        """Put back files that could not be synced."""


class JournalSync:
    """Syncs the files of one part. Belongs to the event loop."""

    def __init__(self, files: UnsyncedFiles) -> None:
        self._files = files
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_failing = False
        self._is_wanted = False

    def soon(self) -> None:
        """Schedule a sync after an entry was written."""
        if self._running is not None:
            self._is_wanted = True
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._is_wanted = False
        self._running = run_in_background(self._sync(), NAME)

    async def _sync(self) -> None:
        paths = self._files.take_unsynced_notes()
        pause_s = INTERVAL_S
        try:
            if paths:
                await asyncio.to_thread(disk.sync_paths, paths)
            self._is_failing = False
        except OSError as error:
            self._files.unsynced_again(paths)
            if not self._is_failing:
                log.error(
                    "deliveries cannot be flushed to disk: after a power cut some are repeated; "
                    "check the disk",
                    reason=str(error),
                )
            self._is_failing = self._is_wanted = True
            pause_s = RETRY_S
        finally:
            self._running = None
        if self._is_wanted:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._begin)

    def stop(self) -> None:
        """Start no further sync."""
        self._is_wanted = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """Stop, and return once no sync is running."""
        self.stop()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        self.stop()
