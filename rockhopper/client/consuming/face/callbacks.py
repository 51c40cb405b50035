"""Who is told of queues that come and go: two coroutine functions of the application."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rockhopper.client.callbacks import check_coroutine_function
from rockhopper.client.queues import MessageQueue
from rockhopper.tasks import run_apart

log = logging.getLogger(__name__)

QueuesCallback = Callable[[list[MessageQueue]], Awaitable[object]]


@dataclass(frozen=True)
class QueueCallbacks:
    """What is called, and awaited, for queues that were taken over, and for those given up."""

    on_assigned: QueuesCallback | None = None
    on_revoked: QueuesCallback | None = None
    timeout_s: float = 30.0
    """A call that takes longer is cancelled: the group must not wait for it for ever."""

    def __post_init__(self) -> None:
        for name in ("on_assigned", "on_revoked"):
            if (callback := getattr(self, name)) is not None:
                check_coroutine_function(name, callback)

    async def assigned(self, queues: list[MessageQueue]) -> None:
        """Tell of queues of which nothing has been handed out yet."""
        await self._tell("on_assigned", self.on_assigned, queues)

    async def revoked(self, queues: list[MessageQueue]) -> None:
        """Tell of queues before they are committed for the last time."""
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
            log.warning("%s %s; the queues change hands all the same", name, what, exc_info=error)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # and the callback has returned all the same
            raise asyncio.CancelledError
