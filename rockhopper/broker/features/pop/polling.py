"""Pops and notifications that found nothing and wait for messages, or for their time to run out.

The store reports every message of a topic that a request waits for. In the next iteration of the
event loop, the waiting requests are tried in the order of arrival, for at most ``TURN_BUDGET_S``,
until a pop finds nothing. Requests with the same filter as one that found nothing are skipped. A
request that searches many queues does so in steps; others continue in between.

RocketMQ: PopLongPollingService, with its limits.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Generator, Iterable

from rockhopper.broker.features.pop.lanes import Lanes
from rockhopper.broker.features.pop.sources import ANY_QUEUE, Queue
from rockhopper.broker.server.loop.cooperative_work import CooperativeWork, run_at_once
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.peer import Peer

WAITING_MAX = 100_000
WAITING_PER_KEY_MAX = 1024
WAIT_S_MAX = 300.0
TURN_BUDGET_S = 0.005

# The key of waiting requests: (group, topic).
Key = tuple[str, str]
Steps = Generator[None, None, None]


class Waiter:
    """A request that waits.

    *attempt* returns steps that try to serve the request, beginning near a queue, and report
    whether they did. They must answer if ``is_last`` is set, because its time has run out.
    *attempt_id* is the attempt id of an orderly pop.
    """

    __slots__ = (
        "attempt",
        "attempt_id",
        "connection",
        "done",
        "filter_key",
        "has_turn",
        "is_asked",
        "is_last",
        "key",
        "queue_id",
        "queues",
    )

    def __init__(
        self,
        connection: Peer,
        key: Key,
        queue_id: int,
        queues: Iterable[Queue],
        filter_key: object,
        attempt: Callable[["Waiter", Queue | None], Generator[None, None, bool]],
        *,
        attempt_id: str | None = None,
    ) -> None:
        """*queues*: the queues that it waits for; ANY_QUEUE means all of a topic."""
        self.connection = connection
        self.key = key
        self.queue_id = queue_id
        self.queues = tuple(queues)
        self.filter_key = filter_key
        self.attempt = attempt
        self.attempt_id = attempt_id
        self.is_asked = False
        self.is_last = False
        self.has_turn: bool | None = None
        """Whether its filter may run now; None while it does not wait for the filter budget."""
        self.done = False


class PopPolling:
    """All waiting pops of one broker. Belongs to the event loop."""

    def __init__(
        self, store: MessageStore, lanes: Lanes, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lanes = lanes
        self._clock = clock
        self._waiting: dict[Key, dict[Waiter, None]] = {}
        # Topic -> queue id or ANY_QUEUE -> the number of waiting requests, by key.
        self._watched: dict[str, dict[int, dict[Key, int]]] = {}
        self._watchers = store.dispatch.watchers
        self._by_connection: dict[Peer, set[Waiter]] = {}
        self._count = 0
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        # The requests to try, and near which queue; and the ones being tried.
        self._rung: dict[Key, Queue | None] = {}
        self._rounds: dict[Key | Waiter, Steps] = {}
        self._next_turn: asyncio.Handle | None = None
        self.is_closed = False

    def __len__(self) -> int:
        return self._count

    def has_group(self, group: str) -> bool:
        """Whether any request waits for messages of a group."""
        return any(key[0] == group for key in self._waiting)

    def count(self, group: str, topic: str, queue_id: int) -> int:
        """The number of requests that wait for exactly this queue id; −1 is any queue."""
        waiting = self._waiting.get((group, topic), {})
        return sum(waiter.queue_id == queue_id for waiter in waiting)

    def park(self, waiter: Waiter, wait_s: float) -> bool:
        """Hold *waiter* for up to *wait_s*; return False if too many requests wait already."""
        wait_s = min(wait_s, WAIT_S_MAX)
        waiting = self._waiting.setdefault(waiter.key, {})
        if self.is_closed or self._count >= WAITING_MAX or len(waiting) >= WAITING_PER_KEY_MAX:
            if not waiting:
                del self._waiting[waiter.key]
            return False
        connection = waiter.connection
        if connection.closed:
            if not waiting:
                del self._waiting[waiter.key]
            return True
        mine = self._by_connection.get(connection)
        if mine is None:
            mine = self._by_connection[connection] = set()
            connection.on_close.append(self._connection_closed)
        mine.add(waiter)
        waiting[waiter] = None
        self._watch(waiter)
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

    def _watch(self, waiter: Waiter) -> None:
        for topic, queue_id in waiter.queues:
            self._watchers[topic] = self
            keys = self._watched.setdefault(topic, {}).setdefault(queue_id, {})
            keys[waiter.key] = keys.get(waiter.key, 0) + 1

    def _unwatch(self, waiter: Waiter) -> None:
        for topic, queue_id in waiter.queues:
            watched = self._watched[topic]
            keys = watched[queue_id]
            keys[waiter.key] -= 1
            if not keys[waiter.key]:
                del keys[waiter.key]
            if not keys:
                del watched[queue_id]
            if not watched:
                del self._watched[topic], self._watchers[topic]

    def arrived(self, topic: str, queue_id: int) -> None:
        """Try the requests that wait for a queue with new messages."""
        watched = self._watched[topic]
        for waited_for in (ANY_QUEUE, queue_id):
            for key in watched.get(waited_for, ()):
                self.ring(key, (topic, queue_id))

    def ring(self, key: Key, near: Queue | None = None) -> None:
        """Try the requests that wait for *key* in the next iteration: new messages may match."""
        if key in self._waiting and not self.is_closed:
            self._rung[key] = near
            self._ask_soon()

    def ask(self, waiter: Waiter) -> None:
        """Try only *waiter*, in the next iteration."""
        if not waiter.done and not waiter.is_asked and not self.is_closed:
            self._rounds[waiter] = self._try(waiter, None)
            self._ask_soon()

    def ring_topic(self, topic: str) -> None:
        """The same for every group that waits for *topic*."""
        for key in list(self._waiting):
            if key[1] == topic:
                self.ring(key)

    def _ask_soon(self) -> None:
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._next_turn = None
        stop_s = self._clock() + TURN_BUDGET_S
        rounds = self._rounds
        while self._rung or rounds:
            for key in [key for key in self._rung if key not in rounds]:
                rounds[key] = self._ask(key, self._rung.pop(key))
            asked = next(iter(rounds))
            steps = rounds.pop(asked)
            # After the others, if there is more to do.
            if next(steps, _OVER) is not _OVER:
                rounds[asked] = steps
            if self._clock() >= stop_s:
                if self._rung or rounds:
                    self._ask_soon()
                return

    def _ask(self, key: Key, near: Queue | None) -> Steps:
        """Try the requests that wait for *key*."""
        fruitless: set[object] = set()
        # A queue that an attempt holds is open to this attempt, but not to others.
        holding = self._lanes.attempts_holding(key[0], near)
        for waiter in list(self._waiting.get(key, ())):
            if waiter.done or waiter.is_asked:
                continue
            if waiter.filter_key in fruitless and waiter.attempt_id not in holding:
                continue
            yield from self._try(waiter, near)
            if not waiter.done:
                fruitless.add(waiter.filter_key)
            yield

    def _try(self, waiter: Waiter, near: Queue | None) -> Steps:
        """Serve *waiter* if a message matches, or if its time has run out."""
        waiter.is_asked = True
        work = CooperativeWork(waiter.attempt(waiter, near))
        while not work.step():
            yield
            if waiter.done:
                return
        waiter.is_asked = False
        if work.result:
            self._forget(waiter)

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
                waiter.is_last = True
                self.ask(waiter)
            if self._clock() >= stop_s:
                break
        self._set_timer()

    def _forget(self, waiter: Waiter) -> None:
        if waiter.done:
            return
        waiter.done = True
        self._count -= 1
        self._by_connection.get(waiter.connection, set()).discard(waiter)
        waiting = self._waiting[waiter.key]
        del waiting[waiter]
        if not waiting:
            del self._waiting[waiter.key]
        self._unwatch(waiter)

    def _connection_closed(self, connection: Peer) -> None:
        for waiter in list(self._by_connection.pop(connection, ())):
            self._forget(waiter)

    def close(self) -> None:
        """Answer all waiting requests now, and hold no further ones."""
        self.is_closed = True
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()
        self._timer = self._next_turn = None
        for waiting in list(self._waiting.values()):
            for waiter in list(waiting):
                self._forget(waiter)
                waiter.is_last = True
                run_at_once(waiter.attempt(waiter, None))


_OVER = object()
