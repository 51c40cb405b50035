"""Pops and notifications that found nothing and wait for messages, or for their time to run out.

Every queue that somebody waits on has one bell: a parked entry in long_polling, which rings when a
message arrives.  Who waits is then asked in the order of arrival, in the next turn of the loop and
for as long as ``TURN_BUDGET_S`` lasts, until a pop comes back empty; those that filter in the same
way as one that found nothing are not asked.

RocketMQ: PopLongPollingService, with its limits.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from broker.long_polling import LongPolling, ParkedPull, nobody
from broker.store.message_store import MessageStore

if TYPE_CHECKING:
    from broker.server import Connection

WAITING_MAX = 100_000
WAITING_PER_KEY_MAX = 1024
TURN_BUDGET_S = 0.005
BELL_S = 300.0

# Who waits for what: (group, topic).
Key = tuple[str, str]
Queue = tuple[str, int]


class Waiter:
    """A request that waits.

    *attempt* serves it if it can and says so; with True it must, because its time has run out.
    """

    __slots__ = ("attempt", "connection", "done", "filter_key", "key", "queue_id", "queues")

    def __init__(
        self,
        connection: "Connection",
        key: Key,
        queue_id: int,
        queues: Iterable[Queue],
        filter_key: object,
        attempt: Callable[[bool], bool],
    ) -> None:
        self.connection = connection
        self.key = key
        self.queue_id = queue_id
        self.queues = tuple(queues)
        self.filter_key = filter_key
        self.attempt = attempt
        self.done = False


class PopPolling:
    """All waiting pops of one broker.  Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        long_polling: LongPolling,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._long_polling = long_polling
        self._clock = clock
        self._waiting: dict[Key, dict[Waiter, None]] = {}
        self._by_queue: dict[Queue, dict[Waiter, None]] = {}
        self._by_connection: dict[Connection, set[Waiter]] = {}
        self._bells: set[Queue] = set()
        self._nobody = nobody()
        self._count = 0
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rung: dict[Key, None] = {}
        self._next_turn: asyncio.Handle | None = None
        self.is_closed = False

    def __len__(self) -> int:
        return self._count

    def count(self, group: str, topic: str, queue_id: int) -> int:
        """How many wait for exactly this queue id, −1 for any."""
        waiting = self._waiting.get((group, topic), {})
        return sum(waiter.queue_id == queue_id for waiter in waiting)

    def park(self, waiter: Waiter, wait_s: float) -> bool:
        """Keep *waiter* for up to *wait_s*; False when too many wait already."""
        waiting = self._waiting.setdefault(waiter.key, {})
        if (
            self.is_closed
            or self._count >= WAITING_MAX
            or len(waiting) >= WAITING_PER_KEY_MAX
            or not all(self._hang_bell(queue) for queue in waiter.queues)
        ):
            if not waiting:
                del self._waiting[waiter.key]
            return False
        connection = waiter.connection
        if connection.closed:
            return True
        mine = self._by_connection.get(connection)
        if mine is None:
            mine = self._by_connection[connection] = set()
            connection.on_close.append(self._connection_closed)
        mine.add(waiter)
        waiting[waiter] = None
        for queue in waiter.queues:
            self._by_queue.setdefault(queue, {})[waiter] = None
        self._count += 1
        loop = asyncio.get_running_loop()
        self._sequence += 1
        if len(self._deadlines) > 2 * self._count + 1024:
            self._deadlines = [item for item in self._deadlines if not item[2].done]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (loop.time() + wait_s, self._sequence, waiter))
        if self._deadlines[0][2] is waiter or self._timer is None:
            self._set_timer()
        return True

    # -- arrivals ------------------------------------------------------------------------------

    def _hang_bell(self, queue: Queue) -> bool:
        if queue in self._bells:
            return True
        high = self._store.queue_range(*queue)[1]
        tail = self._store.tail(*queue)
        bell = ParkedPull(self._nobody, tail, high, None, lambda: self._bell(queue))
        if not self._long_polling.park(bell, BELL_S):
            return False
        self._bells.add(queue)
        return True

    def _bell(self, queue: Queue) -> None:
        self._bells.discard(queue)
        waiting = self._by_queue.get(queue)
        if not waiting or self.is_closed:
            return
        for key in dict.fromkeys(waiter.key for waiter in waiting):
            self.ring(key)
        self._hang_bell(queue)

    def ring(self, key: Key) -> None:
        """There may be something for those who wait for *key*: ask them in the next turn."""
        if key not in self._waiting or self.is_closed:
            return
        self._rung[key] = None
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._serve)

    def ring_topic(self, topic: str) -> None:
        """The same for every group that waits for *topic*."""
        for key in list(self._waiting):
            if key[1] == topic:
                self.ring(key)

    def _serve(self) -> None:
        self._next_turn = None
        stop_s = self._clock() + TURN_BUDGET_S
        while self._rung:
            key = next(iter(self._rung))
            del self._rung[key]
            fruitless: set[object] = set()
            for waiter in list(self._waiting.get(key, ())):
                if waiter.done or waiter.filter_key in fruitless:
                    continue
                if waiter.attempt(False):
                    self._forget(waiter)
                else:
                    fruitless.add(waiter.filter_key)
                if self._clock() >= stop_s:
                    self.ring(key)
                    return

    # -- deadlines -----------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        if self._deadlines:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._deadlines[0][0], self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time() + 0.001
        stop_s = self._clock() + TURN_BUDGET_S
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, _, waiter = heapq.heappop(self._deadlines)
            if not waiter.done:
                self._forget(waiter)
                waiter.attempt(True)
            if self._clock() >= stop_s:
                break
        self._set_timer()

    # -- the end -------------------------------------------------------------------------------

    def _forget(self, waiter: Waiter) -> None:
        if waiter.done:
            return
        waiter.done = True
        self._count -= 1
        self._by_connection.get(waiter.connection, set()).discard(waiter)
        _discard(self._waiting, waiter.key, waiter)
        for queue in waiter.queues:
            _discard(self._by_queue, queue, waiter)

    def _connection_closed(self, connection: "Connection") -> None:
        for waiter in list(self._by_connection.pop(connection, ())):
            self._forget(waiter)

    def close(self) -> None:
        """Answer everybody now, and park nobody any more."""
        self.is_closed = True
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()
        self._timer = self._next_turn = None
        for waiting in list(self._waiting.values()):
            for waiter in list(waiting):
                self._forget(waiter)
                waiter.attempt(True)
        self._deadlines.clear()


_AnyKey = TypeVar("_AnyKey")


def _discard(table: dict[_AnyKey, dict[Waiter, None]], key: _AnyKey, waiter: Waiter) -> None:
    waiting = table.get(key)
    if waiting is not None:
        waiting.pop(waiter, None)
        if not waiting:
            del table[key]
