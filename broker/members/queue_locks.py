"""Which client may consume a queue in order: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

A lock belongs to a client within its consumer group and lasts 60 s unless renewed; clients renew
every 20 s. It goes at once with the last connection of its client, so that the queues of a crashed
consumer need not wait. Locks live in memory (RebalanceLockManager).
"""

from collections.abc import Callable, Iterable

from rockhopper.broker.access.peer import Peer
from rockhopper.broker.loop.part import Part

LEASE_MS = 60_000

QueueKey = tuple[str, str, int]
"""Topic, broker name, queue id."""


class _Lock:
    __slots__ = ("client_id", "connection", "renewed_ms")

    def __init__(self, client_id: str, connection: Peer, renewed_ms: int) -> None:
        self.client_id = client_id
        self.connection = connection
        self.renewed_ms = renewed_ms


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
        self._groups_of: dict[Peer, set[str]] = {}

    def lock(
        self, group: str, client_id: str, connection: Peer, queues: Iterable[QueueKey]
    ) -> list[QueueKey]:
        """Lock or renew what is free, expired or the client's own; return what it now holds."""
        if connection.closed:
            return []
        now_ms = self._now_ms()
        locks = self._locks.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now_ms - lock.renewed_ms > LEASE_MS:
                locks[queue] = _Lock(client_id, connection, now_ms)
                granted.append(queue)
        if granted:
            self._watch(connection).add(group)
        self._forget_if_empty(group)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> None:
        """Give up those of *queues* that *client_id* holds."""
        locks = self._locks.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        self._forget_if_empty(group)

    def is_held_by(self, group: str, connection: Peer) -> bool:
        """Whether the client on *connection* consumes in order in *group*."""
        if group not in self._groups_of.get(connection, ()):
            return False
        now_ms = self._now_ms()
        return any(
            lock.connection is connection and now_ms - lock.renewed_ms <= LEASE_MS
            for lock in self._locks.get(group, {}).values()
        )

    def expire(self) -> None:
        """Drop the locks that were not renewed for 60 s."""
        now_ms = self._now_ms()
        for group in list(self._locks):
            self._locks[group] = {
                queue: lock
                for queue, lock in self._locks[group].items()
                if now_ms - lock.renewed_ms <= LEASE_MS
            }
            self._forget_if_empty(group)

    def _watch(self, connection: Peer) -> set[str]:
        groups = self._groups_of.get(connection)
        if groups is None:
            groups = self._groups_of[connection] = set()
            connection.on_close.append(self._connection_closed)
        return groups

    def _connection_closed(self, connection: Peer) -> None:
        for group in self._groups_of.pop(connection, ()):
            locks = self._locks.get(group, {})
            for queue, lock in list(locks.items()):
                if lock.connection is not connection:
                    continue
                other = self._other_connection(group, lock.client_id)
                if other is None or other is connection or other.closed:
                    del locks[queue]
                else:
                    lock.connection = other
                    self._watch(other).add(group)
            self._forget_if_empty(group)

    def _forget_if_empty(self, group: str) -> None:
        if group in self._locks and not self._locks[group]:
            del self._locks[group]
