"""Which client may consume a queue in order: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

A lock belongs to a client within its consumer group and lasts 60 s unless renewed; clients renew
every 20 s. It goes at once with the last connection of its client, so that the queues of a crashed
consumer need not wait: the last over which it was locked, for a request may come late over one that
its client has given up already. Locks live in memory (RebalanceLockManager).

The master of a replica set tells the others who holds what. Whoever leads next keeps a queue for
its holder until the 60 s are over. One that nobody spoke of goes to nobody for 30 s: a client may
think that it holds it, and finds out within 20.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.users.peer import Peer

LEASE_MS = 60_000
UNKNOWN_MS = 30_000
FREE = ""

QueueKey = tuple[str, str, int]
"""Topic, broker name, queue id."""


HeldLocks = Mapping[tuple[str, QueueKey], tuple[str, int]]
"""Group and queue -> the client that holds it, and when it is known to have renewed that."""


class _Lock:
    __slots__ = ("client_id", "connections", "renewed_ms")

    def __init__(self, client_id: str, connections: tuple[Peer, ...], renewed_ms: int) -> None:
        self.client_id = client_id
        self.connections = connections
        """Over which it was locked, while they are open."""
        self.renewed_ms = renewed_ms


LOCKS_MAX = 200_000
"""Of all groups together: with so many, queues that nobody holds are not granted."""
CONNECTIONS_PER_LOCK_MAX = 8

# Another open connection of a member of a group, by its client id.
FindConnection = Callable[[str, str], Peer | None]


class QueueLocks(Part):
    """The locks of all groups.

    *other_connection* finds where else the client of a closed connection is still there.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        other_connection: FindConnection = lambda _group, _client_id: None,
    ) -> None:
        self._now_ms = now_ms
        self._other_connection = other_connection
        self._locks: dict[str, dict[QueueKey, _Lock]] = {}
        # How many there are at most: of those that ended with a connection, since the last expiry.
        self._count = 0
        # What each connection is among the connections of, by group.
        self._queues_of: dict[Peer, dict[str, set[QueueKey]]] = {}
        # Of each connection: how many there were before it.
        self._firsts: dict[Peer, int] = {}
        self._numbers = count()
        # A blank holder: it was granted here since.
        self._before: dict[tuple[str, QueueKey], tuple[str, int]] = {}
        self._leads_from_ms: int | None = None
        self.on_changed: Callable[[str, QueueKey, str], None] | None = None
        """Called with group, queue and holder when that is granted, renewed or, blank, over."""
        self.may_grant: Callable[[], bool] = lambda: True
        """Whether no other broker can be granting these locks by now."""

    def lead(self, before: HeldLocks) -> None:
        """Begin to grant locks in another master's place, which had granted those *before*."""
        self._before, self._leads_from_ms = dict(before), self._now_ms()

    def _is_kept(self, group: str, client_id: str, queue: QueueKey, now_ms: int) -> bool:
        """Whether a queue that is free here may be held by another client from before."""
        if self._leads_from_ms is None or now_ms - self._leads_from_ms > LEASE_MS:
            self._before, self._leads_from_ms = {}, None
            return False
        holder, renewed_ms = self._before.get((group, queue), (None, 0))
        if holder is None:
            return now_ms - self._leads_from_ms <= UNKNOWN_MS
        return holder not in (client_id, FREE) and now_ms - renewed_ms <= LEASE_MS

    def _tell(self, group: str, queues: Iterable[QueueKey], client_id: str) -> None:
        if self.on_changed is not None:
            for queue in queues:
                self.on_changed(group, queue, client_id)

    def lock(
        self, group: str, client_id: str, connection: Peer, queues: Iterable[QueueKey]
    ) -> list[QueueKey]:
        """Lock or renew what is free, expired or the client's own; return what it now holds.

        That is nothing while another master may have been elected: it grants them.
        """
        if connection.closed or not self.may_grant():
            return []
        now_ms = self._now_ms()
        locks = self._locks.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None and (
                self._count >= LOCKS_MAX or self._is_kept(group, client_id, queue, now_ms)
            ):
                continue
            if lock is None or lock.client_id == client_id or now_ms - lock.renewed_ms > LEASE_MS:
                before = lock.connections if lock and lock.client_id == client_id else ()
                others = tuple(each for each in before if each is not connection)
                others = others[1 - CONNECTIONS_PER_LOCK_MAX :]
                self._count += lock is None
                if lock is not None:
                    self._unwatch(group, queue, lock)
                lock = locks[queue] = _Lock(client_id, (*others, connection), now_ms)
                self._watch(group, queue, lock)
                if self._leads_from_ms is not None:
                    self._before[group, queue] = FREE, now_ms
                granted.append(queue)
        if granted:
            self._tell(group, granted, client_id)
        self._forget_if_empty(group)
        return granted

    def unlock(
        self, group: str, client_id: str, connection: Peer, queues: Iterable[QueueKey]
    ) -> None:
        """Give up those of *queues* that *client_id* holds.

        Not what it has locked since over a connection that it began to lock over later: this
        request is late.
        """
        locks = self._locks.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id != client_id:
                continue
            if not self._is_late(connection, lock):
                del locks[queue]
                self._unwatch(group, queue, lock)
                self._count -= 1
                self._tell(group, (queue,), FREE)
        self._forget_if_empty(group)

    def _is_late(self, connection: Peer, lock: _Lock) -> bool:
        first = self._firsts.get(connection)
        return first is not None and first < max(map(self._firsts.__getitem__, lock.connections))

    def is_held_by(self, group: str, connection: Peer) -> bool:
        """Whether the client on *connection* consumes in order in *group*."""
        queues = self._queues_of.get(connection, {}).get(group, ())
        locks, now_ms = self._locks.get(group, {}), self._now_ms()
        return any(now_ms - locks[queue].renewed_ms <= LEASE_MS for queue in queues)

    def expire(self) -> None:
        """Drop the locks that were not renewed for 60 s."""
        now_ms = self._now_ms()
        for group in list(self._locks):
            locks = self._locks[group]
            late = [queue for queue, lock in locks.items() if now_ms - lock.renewed_ms > LEASE_MS]
            for queue in late:
                self._unwatch(group, queue, locks.pop(queue))
            self._forget_if_empty(group)
        self._count = sum(map(len, self._locks.values()))

    def _watch(self, group: str, queue: QueueKey, lock: _Lock) -> None:
        """Find a lock by its connections from now on."""
        for connection in lock.connections:
            of_connection = self._queues_of.get(connection)
            if of_connection is None:
                of_connection = self._queues_of[connection] = {}
                self._firsts[connection] = next(self._numbers)
                connection.on_close.append(self._connection_closed)
            of_connection.setdefault(group, set()).add(queue)

    def _unwatch(self, group: str, queue: QueueKey, lock: _Lock) -> None:
        for connection in lock.connections:
            of_connection = self._queues_of.get(connection, {})
            queues = of_connection.get(group, set())
            queues.discard(queue)
            if not queues:
                of_connection.pop(group, None)

    def _connection_closed(self, connection: Peer) -> None:
        self._firsts.pop(connection, None)
        for group, queues in self._queues_of.pop(connection, {}).items():
            locks = self._locks[group]
            for queue in queues:
                lock = locks[queue]
                lock.connections = tuple(each for each in lock.connections if each != connection)
                if lock.connections:
                    continue
                other = self._other_connection(group, lock.client_id)
                if other is None or other is connection or other.closed:
                    del locks[queue]
                    self._tell(group, (queue,), FREE)
                else:
                    lock.connections = (other,)
                    self._watch(group, queue, lock)
            self._forget_if_empty(group)

    def _forget_if_empty(self, group: str) -> None:
        if group in self._locks and not self._locks[group]:
            del self._locks[group]
