"""WorkWatch: logs messages that a handler has processed for a minute, and again every minute.

A message that never finishes blocks its queue: no later offset is committed.
"""

import asyncio
import logging
import time

from rockhopper.client.received import ReceivedMessage

log = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 5.0
_LONG_S = 60.0


class WorkWatch:
    """The messages that the handlers of one consumer are processing."""

    def __init__(self, group: str) -> None:
        self.at_work: dict[asyncio.Task[None], tuple[ReceivedMessage, float]] = {}
        """The message and its start time, in seconds of time.monotonic, for each handler task."""
        self._group = group
        self._told_s: dict[int, float] = {}

    async def run(self) -> None:
        """Check every few seconds."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            self.report(time.monotonic())

    def report(self, now_s: float) -> None:
        """Log each message that has been processed for another minute."""
        told_s = self._told_s
        for key in told_s.keys() - {id(message) for message, _ in self.at_work.values()}:
            del told_s[key]
        for message, since_s in self.at_work.values():
            if now_s - told_s.get(id(message), since_s) >= _LONG_S:
                told_s[id(message)] = now_s
                log.warning(
                    "the handler of group %r has been working on %r for %d s: no later message "
                    "in its queue is committed before it ends",
                    self._group,
                    message,
                    now_s - since_s,
                )
