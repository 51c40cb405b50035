"""The reput coroutine: dispatches records of the log that queues and index do not have yet.

A send dispatches its own messages in the same iteration of the loop, so normally there is nothing
to do here. If that failed (no space for a consume queue file, say), the coroutine reads the log
from where dispatch stopped and runs the same dispatch step. It never polls: it is notified, and
retries a second after a failure.
"""

import asyncio
from collections.abc import Callable

import structlog

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.tasks import end_task, keep_running

log = structlog.get_logger("broker.store")

RETRY_INTERVAL_S = 1.0


class ReputService:
    """Drives *catch_up*, which dispatches a limited part and returns whether there is more."""

    def __init__(self, catch_up: Callable[[], bool]) -> None:
        self._catch_up = catch_up
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the coroutine; needs a running event loop."""
        self._task = keep_running(self._run, "reput")

    def wake(self) -> None:
        """Notify the coroutine that the log is ahead of the queues."""
        self._wake.set()

    async def stop(self) -> None:
        """End the coroutine between two parts."""
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
                self._wake.set()  # for the run that replaces this one
                raise
            else:
                if failing:
                    log.info("dispatch has caught up")
                failing = False
