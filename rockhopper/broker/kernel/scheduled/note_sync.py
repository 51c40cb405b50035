"""NoteSync: makes what was noted durable a moment later, with the fsync off the event loop.

A note goes into the page cache at once, so that a kill loses none. ``soon`` has it on disk within
``INTERVAL_S`` and the time of the fsync: a power cut repeats what was noted since, less than
half a second on a disk that answers in time.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.notes")

NAME = "syncing notes of deliveries"
INTERVAL_S = 0.2
RETRY_S = 5.0


class NoteSync:
    """Syncs the files of one part. Belongs to the event loop."""

    def __init__(
        self, take: Callable[[], list[Path]], give_back: Callable[[list[Path]], None]
    ) -> None:
        """*take* hands out the files to sync, *give_back* gets those that could not be."""
        self._take = take
        self._give_back = give_back
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_failing = False
        self._is_wanted = False

    def soon(self) -> None:
        """Something was noted."""
        if self._running is not None:
            self._is_wanted = True
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._is_wanted = False
        self._running = run_in_background(self._sync(), NAME)

    async def _sync(self) -> None:
        paths = self._take()
        pause_s = INTERVAL_S
        try:
            if paths:
                await asyncio.to_thread(disk.sync_paths, paths)
            self._is_failing = False
        except OSError as error:
            self._give_back(paths)
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
        """Begin no further sync."""
        self._is_wanted = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """Stop, and return when none is running any more."""
        self.stop()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        self.stop()
