"""The application's callbacks for queues that are assigned and revoked."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rockhopper.client.queues import MessageQueue
from rockhopper.tasks import run_apart

log = logging.getLogger(__name__)

QueuesCallback = Callable[[list[MessageQueue]], Awaitable[object]]


@dataclass(frozen=True)
class QueueCallbacks:
    """Two coroutine functions, awaited when queues are assigned and when they are revoked."""

    on_assigned: QueuesCallback | None = None
    on_revoked: QueuesCallback | None = None
    timeout_s: float = 30.0
    """A call that takes longer is cancelled, so that the group never waits for it forever."""

    async def assigned(self, queues: list[MessageQueue]) -> None:
        """Report queues of which no message has been delivered yet."""
        await self._tell("on_assigned", self.on_assigned, queues)

    async def revoked(self, queues: list[MessageQueue]) -> None:
        """Report queues before their last commit."""
        await self._tell("on_revoked", self.on_revoked, queues)

    async def _tell(
        self, name: str, callback: QueuesCallback | None, queues: list[MessageQueue]
    ) -> None:
        if callback is None or not queues:
            return
        try:
            async with asyncio.timeout(self.timeout_s) as limit:
                await run_apart(callback, sorted(queues))
        except Exception as error:
            what = f"took longer than {self.timeout_s:g} s" if limit.expired() else "failed"
            log.warning("%s %s; the queues are reassigned anyway", name, what, exc_info=error)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the callback ignored the cancellation
            raise asyncio.CancelledError
