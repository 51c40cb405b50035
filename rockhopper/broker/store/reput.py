"""The reput coroutine: dispatches what is in the commit log and not yet in queues and index.

Sending dispatches its own messages in the same turn of the loop, so there is normally nothing to
do here. The coroutine runs when that failed (no room for a consume queue file, say), reading the
log from where dispatch stopped and going through the same dispatch step. It never polls: it is
woken, and after a failure it tries again a second later.
"""

import asyncio
from collections.abc import Callable

import structlog

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.tasks import end_task, keep_running

log = structlog.get_logger("broker.store")

RETRY_INTERVAL_S = 1.0


class ReputService:
    """Drives *catch_up*, which dispatches a bounded piece and says whether there is more."""

    def __init__(self, catch_up: Callable[[], bool]) -> None:
        self._catch_up = catch_up
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the coroutine; needs a running event loop."""
        self._task = keep_running(self._run, "reput")

    def wake(self) -> None:
        """Say that the log is ahead of the queues."""
        self._wake.set()

    async def stop(self) -> None:
        """End the coroutine between two pieces."""
        if self._task is not None:
            end_task(self._task)
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failing = False
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._catch_up():  # noqa: ASYNC110 - it works; it does not wait
                    await asyncio.sleep(0)
            except (StoreError, OSError) as error:
                if not failing:
                    log.error("dispatch is behind; retrying every second", reason=str(error))
                failing = True
                self._wake.set()
                await asyncio.sleep(RETRY_INTERVAL_S)
            except Exception:
                self._wake.set()  # for the run that begins in place of this one
                raise
            else:
                if failing:
                    log.info("dispatch has caught up")
                failing = False
