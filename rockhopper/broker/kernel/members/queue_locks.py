"""Queue locks for consumption in order: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

A lock belongs to a client within its consumer group, and lasts 60 s unless renewed; clients renew
it every 20 s. It ends at once with the client's last connection, so the queues of a crashed
consumer are free immediately. That is the last connection over which the client locked the queue,
because a request may arrive late over a connection that the client has already abandoned. Locks are
in memory only (RocketMQ: RebalanceLockManager).

The master of a replica set replicates the owners of locks. A new master keeps a queue for its owner
until the 60 s are over. A queue without a known owner is granted to no client for 30 s: a client
may believe that it holds the lock, and learns the truth within 20 s.

    0 s     client A locks queue 1 at the old master, which then crashes
    5 s     the new master grants queue 1 only to A; queue 2, of which it knows nothing, to none
    35 s    queue 2 is granted to any client
    60 s    if A has not renewed its lock, queue 1 is granted to any client
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from rockhopper.broker.kernel.state import State
from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.kernel.state_records import Entry, StateKind
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol import fastjson

LEASE_MS = 60_000
UNKNOWN_MS = 30_000
FREE = ""

QueueKey = tuple[str, str, int]
"""Topic, broker name, queue id."""


HeldLocks = Mapping[tuple[str, QueueKey], tuple[str, int]]
"""Maps group and queue to the owner, and to the time of its last known renewal."""


class _Lock:
    __slots__ = ("client_id", "connections", "renewed_ms")

    def __init__(self, client_id: str, connections: tuple[Peer, ...], renewed_ms: int) -> None:
        self.client_id = client_id
        self.connections = connections
        """The open connections over which it was locked."""
        self.renewed_ms = renewed_ms


LOCKS_MAX = 200_000
"""The limit over all groups: beyond it, queues without an owner are not granted."""
CONNECTIONS_PER_LOCK_MAX = 8

# Finds another open connection of a group's member by its client id.
FindConnection = Callable[[str, str], Peer | None]


class LockState(State):
    """The owners of locks, as the followers of a replica set know them; nothing is in files.

    kind  payload
     18   LOCKS: [[group, topic, broker, queue id, client; blank for a released lock], …] as JSON
    """

    kinds = (StateKind.LOCKS,)

    def __init__(self, channels: StateChannels, now_ms: Callable[[], int]) -> None:
        self._channels = channels
        self._channel = channels.channel(StateKind.LOCKS, Channel.GATHERED)
        self._now_ms = now_ms
        self._changes: dict[tuple[str, QueueKey], str] = {}
        self.held: OrderedDict[tuple[str, QueueKey], tuple[str, int]] = OrderedDict()
        """On a follower: the owner of each locked queue, and the time of its record."""

    @property
    def may_grant(self) -> bool:
        """Whether no other broker can grant locks now."""
        return self._channels.leads_alone

    def note(self, group: str, queues: Iterable[QueueKey], client_id: str) -> None:
        """Replicate the owner of queues; blank for released ones."""
        for queue in queues:
            if self._channel.gather():
                self._changes[group, queue] = client_id

    def gathered(self) -> list[Entry]:
        """Return the changed owners as one entry."""
        changes, self._changes = self._changes, {}
        locks = [(group, *queue, client) for (group, queue), client in changes.items()]
        return [(StateKind.LOCKS, fastjson.dumps(locks).encode())] if locks else []

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply changed owners."""
        now_ms = self._now_ms()
        for group, topic, broker, queue_id, client_id in fastjson.loads(payload):
            self.held.pop((group, (topic, broker, queue_id)), None)
            if client_id != FREE:
                # The dictionary stays in the order of the records.
                self.held[group, (topic, broker, queue_id)] = client_id, now_ms
        while self.held and next(iter(self.held.values()))[1] < now_ms - LEASE_MS:
            del self.held[next(iter(self.held))]


class QueueLocks(Part):
    """The locks of all groups.

    *other_connection* finds another open connection of a client whose connection was closed.
    """

    def __init__(
        self,
        state: LockState,
        *,
        now_ms: Callable[[], int],
        other_connection: FindConnection = lambda _group, _client_id: None,
    ) -> None:
        self._state = state
        self._now_ms = now_ms
        self._other_connection = other_connection
        self._locks: dict[str, dict[QueueKey, _Lock]] = {}
        # An upper limit of the count; it ignores locks that ended with a connection since the last
        # expiry.
        self._count = 0
        # The locks that each connection holds, by group.
        self._queues_of: dict[Peer, dict[str, set[QueueKey]]] = {}
        # The number of connections before each one.
        self._firsts: dict[Peer, int] = {}
        self._numbers = count()
        # A blank owner: this broker has granted the lock since.
        self._before: dict[tuple[str, QueueKey], tuple[str, int]] = {}
        self._leads_from_ms: int | None = None

    def lead(self, before: HeldLocks) -> None:
        """Start to grant locks after a failover; *before* are the locks of the previous master."""
        self._before, self._leads_from_ms = dict(before), self._now_ms()

    def _is_kept(self, group: str, client_id: str, queue: QueueKey, now_ms: int) -> bool:
        """Return whether another client may still hold an apparently free queue from before."""
        if self._leads_from_ms is None or now_ms - self._leads_from_ms > LEASE_MS:
            self._before, self._leads_from_ms = {}, None
            return False
        holder, renewed_ms = self._before.get((group, queue), (None, 0))
        if holder is None:
            return now_ms - self._leads_from_ms <= UNKNOWN_MS
        return holder not in (client_id, FREE) and now_ms - renewed_ms <= LEASE_MS

    def lock(
        self, group: str, client_id: str, connection: Peer, queues: Iterable[QueueKey]
    ) -> list[QueueKey]:
        """Lock or renew queues that are free, expired or the client's own; return the granted ones.

        Grants nothing while another master may have been elected, because that one grants them.
        """
        if connection.closed or not self._state.may_grant:
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
            self._state.note(group, granted, client_id)
        self._forget_if_empty(group)
        return granted

    def unlock(
        self, group: str, client_id: str, connection: Peer, queues: Iterable[QueueKey]
    ) -> None:
        """Release those of *queues* that *client_id* owns.

        A queue that the client has since locked over a newer connection stays locked: then this
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
                self._state.note(group, (queue,), FREE)
        self._forget_if_empty(group)

    def _is_late(self, connection: Peer, lock: _Lock) -> bool:
        first = self._firsts.get(connection)
        return first is not None and first < max(map(self._firsts.__getitem__, lock.connections))

    def is_held_by(self, group: str, connection: Peer) -> bool:
        """Return whether the client on *connection* consumes in order in *group*."""
        queues = self._queues_of.get(connection, {}).get(group, ())
        locks, now_ms = self._locks.get(group, {}), self._now_ms()
        return any(now_ms - locks[queue].renewed_ms <= LEASE_MS for queue in queues)

    def expire(self) -> None:
        """Drop locks that were not renewed for 60 s."""
        now_ms = self._now_ms()
        for group in list(self._locks):
            locks = self._locks[group]
            late = [queue for queue, lock in locks.items() if now_ms - lock.renewed_ms > LEASE_MS]
            for queue in late:
                self._unwatch(group, queue, locks.pop(queue))
            self._forget_if_empty(group)
        self._count = sum(map(len, self._locks.values()))

    def _watch(self, group: str, queue: QueueKey, lock: _Lock) -> None:
        """Index a lock by its connections."""
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
                    self._state.note(group, (queue,), FREE)
                else:
                    lock.connections = (other,)
                    self._watch(group, queue, lock)
            self._forget_if_empty(group)

    def _forget_if_empty(self, group: str) -> None:
        if group in self._locks and not self._locks[group]:
            del self._locks[group]
