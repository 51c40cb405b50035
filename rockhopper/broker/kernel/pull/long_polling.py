"""Long polling: pulls that found nothing wait for a message or for their timeout.

A queue knows its waiting pulls, so an arriving message wakes exactly those, in the same iteration
of the loop. RocketMQ scans all waiting pulls every 5 s instead; here one timer runs for the next
deadline. A message that the filter of a pull rejects does not wake it, but reduces its deadline to
5 s, so that its offset moves past messages it does not want.

However many pulls wait, other work continues: after ``TURN_BUDGET_S`` of waking, the rest follows
in the next iteration of the loop. A pull is dropped completely once it is answered.

    pull A waits at offset 10 for the tag x, pull B without a filter; both for 15 s
    a message with the tag y arrives: B is answered at once, A's deadline becomes 5 s from now
    5 s later A is answered without messages, and its next offset is 11
"""

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Set

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.queue_tail import QueueTail, Waiters
from rockhopper.broker.store.reading.property_stage import MessageFilter
from rockhopper.broker.users.peer import Peer

FILTERED_RECHECK_S = 5.0
SUSPEND_S_MAX = 300.0
PARKED_PER_CONNECTION_MAX = 16_384
PARKED_MAX = 262_144
# The length of the time slots that group deadlines.
SLOT_S = 0.01
TURN_BUDGET_S = 0.005


class ParkedPull:
    """One waiting pull. Without a connection, a part of the broker waits."""

    __slots__ = (
        "connection",
        "done",
        "offset",
        "slot",
        "subscription",
        "tail",
    )

    def __init__(
        self,
        connection: Peer | None,
        tail: QueueTail,
        offset: int,
        subscription: MessageFilter | None = None,
    ) -> None:
        self.connection = connection
        self.tail = tail
        self.offset = offset
        self.subscription = subscription
        self.done = False
        self.slot = 0

    def rerun(self) -> None:
        """Execute it again without waiting, and answer it."""
        raise NotImplementedError

    def arrived(self) -> None:
        """Answer it because of a message, in this iteration of the loop or the next."""
        self.rerun()


class QueueWaiters(Waiters):
    """The pulls that wait for one queue."""

    __slots__ = ("polling",)

    polling: "LongPolling"
    """Set by its maker: most queues get and lose their waiters with every message."""

    def arrived(self, tail: QueueTail, max_offset: int, tags_codes: Set[int]) -> None:
        """See Waiters."""
        self.polling.arrived(tail, max_offset, tags_codes)


class LongPolling:
    """All waiting pulls of one broker."""

    def __init__(
        self, store: MessageStore | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """*store* forgets unused queues for which no pull waits any more; None: it keeps them.

        *clock* measures the time budget; deadlines use the loop's time.
        """
        self._store = store
        self._clock = clock
        self._count = 0
        self._by_connection: dict[Peer | None, set[ParkedPull]] = {}
        # Deadlines: the pulls due in each slot, and the slots in order.
        self.slots: dict[int, set[ParkedPull]] = {}
        self.slot_heap: list[int] = []
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._timer_slot = 0
        # Arrivals: the end of the queue and the tags, for queues whose pulls were not examined
        # since; and the pulls of the queue that is being examined.
        self._arrivals: OrderedDict[QueueTail, tuple[int, set[int]]] = OrderedDict()
        self._round: list[object] = []
        self._round_arrival: tuple[int, set[int]] = (0, set())
        self._next_turn: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, cached because fetching it is a system call."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def __len__(self) -> int:
        """Return the number of waiting clients' pulls."""
        return self._count

    def has_room(self, connection: Peer, count: int) -> bool:
        """Return whether *count* more pulls of a client may wait."""
        mine = len(self._by_connection.get(connection, ())) + count
        return (
            mine <= PARKED_PER_CONNECTION_MAX
            and self._count + count <= PARKED_MAX
            and not self.is_closed
        )

    def park(self, parked: ParkedPull, suspend_s: float) -> bool:
        """Hold *parked* for up to *suspend_s*; return False if too many wait already."""
        is_taken = self._park(parked, suspend_s)
        self._forget_unused(parked.tail)
        return is_taken

    def watch(self, parked: ParkedPull) -> bool:
        """Hold *parked* for a part of the broker.

        It is rerun once: soon after a message is behind its offset, or after ``SUSPEND_S_MAX``,
        when queues are purged, or on shutdown. Return False if too many wait, so that it is never
        rerun.
        """
        return self.park(parked, SUSPEND_S_MAX)

    def _forget_unused(self, tail: QueueTail) -> None:
        if tail.waiters is None and self._store is not None:
            self._store.staging.forget_unused(tail)

    def _park(self, parked: ParkedPull, suspend_s: float) -> bool:
        connection = parked.connection
        mine = self._by_connection.get(connection)
        if mine is None:
            if connection is not None:
                if connection.closed:
                    return True
                connection.on_close.append(self._connection_closed)
            mine = self._by_connection[connection] = set()
        if len(mine) >= PARKED_PER_CONNECTION_MAX or self._count >= PARKED_MAX or self.is_closed:
            return False
        mine.add(parked)
        self._count += connection is not None
        tail = parked.tail
        waiters = tail.waiters
        if waiters is None:
            waiters = tail.waiters = made = QueueWaiters()
            made.polling = self
        waiters[parked] = None
        self._set_deadline(parked, min(max(suspend_s, 0.0), SUSPEND_S_MAX))
        return True

    def _set_deadline(self, parked: ParkedPull, delay_s: float) -> None:
        if parked.slot:
            self._clear_deadline(parked)
        loop = self._loop or self.loop
        slot = parked.slot = int((loop.time() + delay_s) / SLOT_S) + 1
        due = self.slots.get(slot)
        if due is None:
            due = self.slots[slot] = set()
            heapq.heappush(self.slot_heap, slot)
        due.add(parked)
        if self._timer is None or slot < self._timer_slot:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_slot = slot
            self._timer = loop.call_at(slot * SLOT_S, self._expire)

    def _clear_deadline(self, parked: ParkedPull) -> None:
        due = self.slots.get(parked.slot)
        if due is not None:
            due.discard(parked)

    def _expire(self) -> None:
        loop = self.loop
        now_slot = int(loop.time() / SLOT_S)
        slots, heap = self.slots, self.slot_heap
        stop_s = self._clock() + TURN_BUDGET_S
        # The timer's own slot is due, even if the loop's clock rounds just below it.
        while heap and (heap[0] <= now_slot or heap[0] <= self._timer_slot or not slots[heap[0]]):
            due = slots[heap[0]]
            while due:
                self._wake(due.pop())
                if self._clock() >= stop_s:
                    self._timer = loop.call_soon(self._expire)
                    return
            del slots[heapq.heappop(heap)]
        self._timer = None
        if heap:
            self._timer_slot = heap[0]
            self._timer = loop.call_at(heap[0] * SLOT_S, self._expire)

    def arrived(self, tail: QueueTail, max_offset: int, tags_codes: Set[int]) -> None:
        """Wake the pulls that match the new messages; the queue now ends at *max_offset*."""
        waiters = tail.waiters
        if not waiters:
            return
        if len(waiters) == 1 and self._next_turn is None:
            # Nearly always: no other arrival is to be examined before.
            (parked,) = waiters
            self._look_at(parked, max_offset, tags_codes)
            return
        _, codes = self._arrivals.get(tail, (0, set()))
        codes.update(tags_codes)
        self._arrivals[tail] = (max_offset, codes)
        if self._next_turn is None:
            self._look()

    def wake_all(self, tail: QueueTail) -> None:
        """Answer every pull that waits on a queue, for a rare reason other than a message."""
        for parked in list(tail.waiters or ()):
            if isinstance(parked, ParkedPull):
                self._wake(parked)
        self._forget_unused(tail)

    def wake_topic(self, topic: str) -> None:
        """Answer every client that waits on a queue of *topic*, which was deleted."""
        for connection, mine in list(self._by_connection.items()):
            if connection is None:
                continue
            for parked in [each for each in mine if each.tail.topic == topic]:
                self._wake(parked)

    def purge(self) -> None:
        """Answer every waiting pull, also those of the broker itself.

        The queues are being deleted.
        """
        for mine in list(self._by_connection.values()):
            for parked in list(mine):
                self._wake(parked)

    def _look(self) -> None:
        """Examine the pulls of queues with arrivals, within the time budget."""
        self._next_turn = None
        stop_s = self._clock() + TURN_BUDGET_S
        while True:
            while self._round:
                self._look_at(self._round.pop(), *self._round_arrival)
                if self._clock() >= stop_s:
                    self._next_turn = self.loop.call_soon(self._look)
                    return
            if not self._arrivals:
                return
            tail = next(iter(self._arrivals))
            self._round_arrival = self._arrivals.pop(tail)
            # Reversed, so that the pull that has waited longest is woken first.
            self._round = list(tail.waiters or ())[::-1]

    def _look_at(self, parked: object, max_offset: int, tags_codes: Set[int]) -> None:
        assert isinstance(parked, ParkedPull)
        if parked.done or max_offset <= parked.offset:
            return
        subscription = parked.subscription
        if subscription is None or any(map(subscription.matches_hash, tags_codes)):
            self._release(parked)
            if parked.connection is None or not parked.connection.closed:
                parked.arrived()
        elif parked.slot * SLOT_S > self._compute_filtered_deadline() + SLOT_S:
            self._set_deadline(parked, FILTERED_RECHECK_S)

    def _compute_filtered_deadline(self) -> float:
        return self.loop.time() + FILTERED_RECHECK_S

    def _release(self, parked: ParkedPull) -> None:
        self._forget(parked)
        self._by_connection.get(parked.connection, set()).discard(parked)

    def _wake(self, parked: ParkedPull) -> None:
        self._release(parked)
        if parked.connection is None or not parked.connection.closed:
            parked.rerun()

    def _forget(self, parked: ParkedPull) -> None:
        parked.done = True
        self._count -= parked.connection is not None
        self._clear_deadline(parked)
        waiters = parked.tail.waiters
        if waiters is not None:
            waiters.pop(parked, None)
            if not waiters:
                parked.tail.waiters = None
                self._forget_unused(parked.tail)

    def _connection_closed(self, connection: Peer) -> None:
        for parked in self._by_connection.pop(connection, set()):
            self._forget(parked)

    def stop(self) -> None:
        """Answer every waiting pull with its queue's messages, and hold no more pulls."""
        self.is_closed = True
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()
        self._timer = self._next_turn = None
        for mine in list(self._by_connection.values()):
            for parked in list(mine):
                self._wake(parked)
        self._by_connection.clear()
        self._arrivals.clear()
        self._round.clear()
        self.slots.clear()
        self.slot_heap.clear()
