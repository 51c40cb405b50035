"""Who produces: the clients whose heartbeats name a producer group, by group and by client id."""

from collections.abc import Callable

from rockhopper.broker.access.errors import NoPermission
from rockhopper.broker.access.peer import Peer
from rockhopper.broker.loop.part import Part
from rockhopper.broker.members.consumer_groups import HEARTBEAT_TIMEOUT_MS, Client


class ProducerTable(Part):
    """The producers that are online, by group and by client id.

    The broker calls a group back about transactions, and a client with replies to its requests. A
    client stays known by its id as long as it is in any group; RocketMQ forgets it when one of its
    groups goes.
    """

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._groups: dict[str, dict[Peer, Client]] = {}
        self._groups_of: dict[Peer, set[str]] = {}
        # Client id -> its connections, newest last.
        self._connections: dict[str, dict[Peer, Client]] = {}
        self.on_joined: Callable[[str], None] | None = None
        """Called with a group when another connection joins it."""

    def groups(self) -> dict[str, list[Client]]:
        """Every producer group and who is in it."""
        return {name: list(clients.values()) for name, clients in self._groups.items()}

    def clients(self, group: str) -> list[Client]:
        """The producers of *group*, oldest first; empty if nobody is online."""
        return list(self._groups.get(group, {}).values())

    def find(self, client_id: str) -> Client | None:
        """The producer with this client id in any group; of several connections the newest."""
        clients = self._connections.get(client_id)
        return next(reversed(clients.values())) if clients else None

    def register(self, group: str, client: Client) -> None:
        """Take a heartbeat. Raises NoPermission: another connection of another user has the id."""
        connection = client.connection
        if connection.closed:
            return
        for holder in self._connections.get(client.client_id, {}).values():
            if holder.user != client.user and holder.connection is not connection:
                raise NoPermission(
                    f"the client id {client.client_id} is that of another user's client"
                )
        clients = self._groups.setdefault(group, {})
        known = clients.get(connection)
        if known is None or known.client_id != client.client_id:
            if known is not None:
                self._forget_id(known)
            known = clients[connection] = client
        known.last_seen_ms = self._now_ms()
        known.user = client.user
        same_id = self._connections.setdefault(client.client_id, {})
        same_id.pop(connection, None)
        same_id[connection] = known
        groups = self._groups_of.get(connection)
        if groups is None:
            groups = self._groups_of[connection] = set()
            connection.on_close.append(self._connection_closed)
        if group not in groups:
            groups.add(group)
            if self.on_joined is not None:
                self.on_joined(group)

    def unregister(self, group: str, connection: Peer) -> None:
        """Take a producer out of one group."""
        groups = self._groups_of.get(connection, set())
        groups.discard(group)
        clients = self._groups.get(group)
        client = clients.pop(connection, None) if clients is not None else None
        if client is None:
            return
        if not clients:
            del self._groups[group]
        if not any(self._groups[name][connection].client_id == client.client_id for name in groups):
            self._forget_id(client)

    def _forget_id(self, client: Client) -> None:
        clients = self._connections.get(client.client_id, {})
        clients.pop(client.connection, None)
        if not clients:
            self._connections.pop(client.client_id, None)

    def expire(self) -> None:
        """Take out who has sent no heartbeat for 120 s."""
        now_ms = self._now_ms()
        silent = [
            (group, connection)
            for group, clients in self._groups.items()
            for connection, client in clients.items()
            if now_ms - client.last_seen_ms > HEARTBEAT_TIMEOUT_MS
        ]
        for group, connection in silent:
            self.unregister(group, connection)

    def _connection_closed(self, connection: Peer) -> None:
        for group in list(self._groups_of.get(connection, ())):
            self.unregister(group, connection)
        self._groups_of.pop(connection, None)
