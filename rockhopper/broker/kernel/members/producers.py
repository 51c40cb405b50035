"""Producers: the clients whose heartbeats name a producer group, by group and by client id.

Each step has the same cost however many groups there are, and sizes are limited, because any user
can fill this table.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import HEARTBEAT_TIMEOUT_MS, Client
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.users.errors import NoPermission, TooManyWait
from rockhopper.broker.users.peer import Peer

GROUPS_PER_CONNECTION_MAX = 2000
GROUPS_MAX = 100_000
"""The limit over all connections: a group counts once for each connection in it."""
EXPIRED_AT_ONCE_MAX = 2000

_Place = tuple[str, Peer]
"""A group, and a connection in it."""


class ProducerTable(Part):
    """The online producers, by group and by client id.

    The broker sends transaction checks to a group, and replies to a client. A client is found by
    its id as long as it is in any group; RocketMQ forgets it when it leaves one of its groups.
    """

    def __init__(
        self, *, now_ms: Callable[[], int], listeners: Sequence[KernelListener] = ()
    ) -> None:
        self._now_ms = now_ms
        self._listeners = listeners
        self._groups: dict[str, dict[Peer, Client]] = {}
        self._groups_of: dict[Peer, set[str]] = {}
        # The number of groups in which a connection uses a client id.
        self._counts: dict[tuple[Peer, str], int] = {}
        # All entries; the one that has been silent longest comes first.
        self._by_age: OrderedDict[_Place, Client] = OrderedDict()
        # Client id -> its connections, newest last.
        self._connections: dict[str, dict[Peer, Client]] = {}

    def groups(self) -> dict[str, list[Client]]:
        """Return every producer group with its clients."""
        return {name: list(clients.values()) for name, clients in self._groups.items()}

    def clients(self, group: str) -> list[Client]:
        """Return the producers of *group*, oldest first; empty if none is online."""
        return list(self._groups.get(group, {}).values())

    def find(self, client_id: str) -> Client | None:
        """Return the producer with this client id in any group.

        Of several connections with this id, return the newest.
        """
        clients = self._connections.get(client_id)
        return next(reversed(clients.values())) if clients else None

    def _check_user(self, client: Client) -> None:
        # All connections with this id belong to one user: one of the first two is not this
        # connection.
        for holder in islice(self._connections.get(client.client_id, {}).values(), 2):
            if holder.user != client.user and holder.connection is not client.connection:
                raise NoPermission(
                    f"the client id {client.client_id} belongs to a client of another user"
                )

    def _take_id(self, group: str, client: Client) -> Client:
        """Return the client known for this connection and id; it is *client* if there was none."""
        clients = self._groups.setdefault(group, {})
        known = clients.get(client.connection)
        if known is not None and known.client_id == client.client_id:
            return known
        if known is not None:
            self._leave_id(known)
        clients[client.connection] = client
        of_id = client.connection, client.client_id
        self._counts[of_id] = self._counts.get(of_id, 0) + 1
        return client

    def register(self, group: str, client: Client) -> None:
        """Record a heartbeat.

        Raises:
            NoPermission: a connection of another user has the id.
            TooManyWait: this connection, or all together, are in too many groups.
        """
        connection = client.connection
        if connection.closed:
            return
        self._check_user(client)
        groups = self._groups_of.get(connection)
        is_new = groups is None or group not in groups
        if is_new:
            self._check_room(0 if groups is None else len(groups))
        if groups is None:
            groups = self._groups_of[connection] = set()
            connection.on_close.append(self._connection_closed)
        known = self._take_id(group, client)
        known.last_seen_ms = self._now_ms()
        known.user = client.user
        self._by_age[group, connection] = known
        self._by_age.move_to_end((group, connection))
        same_id = self._connections.setdefault(client.client_id, {})
        same_id.pop(connection, None)
        same_id[connection] = known
        if is_new:
            groups.add(group)
            for listener in self._listeners:
                listener.producer_joined(group)

    def _check_room(self, count: int) -> None:
        if count >= GROUPS_PER_CONNECTION_MAX:
            raise TooManyWait(
                f"this connection is in {count} producer groups, which is the most: use one "
                "group for each program"
            )
        if len(self._by_age) >= GROUPS_MAX:
            raise TooManyWait(
                f"all connections together are in {GROUPS_MAX} producer groups, which is the "
                "most: find the client that creates them (rockhopper broker status), and let it "
                "use one group"
            )

    def unregister(self, group: str, connection: Peer) -> None:
        """Remove a producer from one group."""
        self._groups_of.get(connection, set()).discard(group)
        clients = self._groups.get(group)
        client = clients.pop(connection, None) if clients is not None else None
        if client is None:
            return
        if not clients:
            del self._groups[group]
        del self._by_age[group, connection]
        self._leave_id(client)

    def _leave_id(self, client: Client) -> None:
        """Remove a client from one group; its id is forgotten with the last one."""
        of_id = client.connection, client.client_id
        left = self._counts.pop(of_id) - 1
        if left:
            self._counts[of_id] = left
            return
        clients = self._connections.get(client.client_id, {})
        clients.pop(client.connection, None)
        if not clients:
            self._connections.pop(client.client_id, None)

    def expire(self) -> None:
        """Remove producers without a heartbeat for 120 s; if there are many, the rest next time."""
        silent_since_ms = self._now_ms() - HEARTBEAT_TIMEOUT_MS
        for _ in range(EXPIRED_AT_ONCE_MAX):
            (group, connection), client = next(iter(self._by_age.items()), (("", None), None))
            if client is None or connection is None or client.last_seen_ms >= silent_since_ms:
                return
            self.unregister(group, connection)

    def _connection_closed(self, connection: Peer) -> None:
        for group in list(self._groups_of.get(connection, ())):
            self.unregister(group, connection)
        self._groups_of.pop(connection, None)
