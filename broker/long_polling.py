"""Parked pulls: requests that found nothing and wait for a message or for their time to run out.

A queue knows who waits for it, so an arriving message wakes exactly those, in the same turn of the
loop.  RocketMQ scans all waiting pulls every 5 s instead; here one timer runs for the next
deadline.  A message that the waiter's filter rejects does not wake it, but brings its deadline
down to 5 s, so that its offset moves past what does not concern it.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from broker.server import Connection
from broker.store.queue_tail import QueueTail
from protocol.subscription import Subscription

FILTERED_RECHECK_S = 5.0
SUSPEND_S_MAX = 300.0
PARKED_PER_CONNECTION_MAX = 16_384
TIMER_RESOLUTION_S = 0.01


class ParkedPull:
    """One pull that waits: *rerun* executes it again, with no further waiting, and answers it."""

    __slots__ = ("connection", "deadline_s", "done", "offset", "rerun", "subscription", "tail")

    def __init__(
        self,
        connection: Connection,
        tail: QueueTail,
        offset: int,
        subscription: Subscription | None,
        rerun: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.tail = tail
        self.offset = offset
        self.subscription = subscription
        self.rerun = rerun
        self.done = False
        self.deadline_s = 0.0


class LongPolling:
    """All parked pulls of one broker."""

    def __init__(self) -> None:
        self._by_connection: dict[Connection, set[ParkedPull]] = {}
        self._deadlines: list[tuple[float, int, ParkedPull]] = []
        self._sequence = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self.is_closed = False

    def __len__(self) -> int:
        return sum(len(parked) for parked in self._by_connection.values())

    def park(self, parked: ParkedPull, suspend_s: float) -> bool:
        """Keep *parked* for up to *suspend_s*; False when its connection has too many already."""
        connection = parked.connection
        mine = self._by_connection.get(connection)
        if mine is None:
            if connection.closed:
                return True
            mine = self._by_connection[connection] = set()
            connection.on_close.append(self._connection_closed)
        if len(mine) >= PARKED_PER_CONNECTION_MAX or self.is_closed:
            return False
        mine.add(parked)
        tail = parked.tail
        if tail.waiters is None:
            tail.waiters = []
        tail.waiters.append(parked)
        self._set_deadline(parked, min(max(suspend_s, 0.0), SUSPEND_S_MAX))
        return True

    def _set_deadline(self, parked: ParkedPull, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        parked.deadline_s = loop.time() + delay_s
        heapq.heappush(self._deadlines, (parked.deadline_s, next(self._sequence), parked))
        if self._timer is None or parked.deadline_s < self._timer_at_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at_s = parked.deadline_s
            self._timer = loop.call_later(max(delay_s, TIMER_RESOLUTION_S), self._expire)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now_s = loop.time() + TIMER_RESOLUTION_S
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_s:
            deadline_s, _, parked = heapq.heappop(deadlines)
            if not parked.done and parked.deadline_s == deadline_s:
                self._wake(parked)
        while deadlines and deadlines[0][2].done:
            heapq.heappop(deadlines)
        if deadlines and self._timer is None:
            self._timer_at_s = deadlines[0][0]
            self._timer = loop.call_later(
                max(self._timer_at_s - loop.time(), TIMER_RESOLUTION_S), self._expire
            )

    def arrived(self, tail: QueueTail, max_offset: int, tags_code: int) -> None:
        """Wake who waits for a message like the one that now ends the queue at *max_offset*."""
        waiters = tail.waiters
        if not waiters:
            return
        for parked in list(waiters):
            assert isinstance(parked, ParkedPull)
            if parked.done or max_offset <= parked.offset:
                continue
            subscription = parked.subscription
            if subscription is None or subscription.matches_hash(tags_code):
                self._wake(parked)
            elif parked.deadline_s > asyncio.get_running_loop().time() + FILTERED_RECHECK_S:
                self._set_deadline(parked, FILTERED_RECHECK_S)

    def _wake(self, parked: ParkedPull) -> None:
        self._forget(parked)
        self._by_connection.get(parked.connection, set()).discard(parked)
        parked.rerun()

    def _forget(self, parked: ParkedPull) -> None:
        parked.done = True
        waiters = parked.tail.waiters
        if waiters is not None:
            waiters.remove(parked)
            if not waiters:
                parked.tail.waiters = None

    def _connection_closed(self, connection: Connection) -> None:
        for parked in self._by_connection.pop(connection, set()):
            self._forget(parked)

    def close(self) -> None:
        """Answer every parked pull now, with whatever its queue holds, and park no more."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for mine in list(self._by_connection.values()):
            for parked in list(mine):
                self._wake(parked)
        self._by_connection.clear()
        self._deadlines.clear()
