"""Connections that several clients share: one per broker, under one client id.

A broker associates the groups with the connection, as for RocketMQ's instances, which share
connections in the same way. So a broker's request goes to the client that has the group, and a
group may have only one consumer here.
"""

import asyncio
import os
import time
from typing import Protocol, Self

from rockhopper.client.errors import ClientStateError
from rockhopper.client.network.addresses import parse_nameservers
from rockhopper.client.network.closing import ClosedAtEnd
from rockhopper.client.network.connection import BrokerConnection, RequestAnswer, RequestHandler
from rockhopper.client.network.connection_pool import ConnectionPool
from rockhopper.client.network.credentials import CredentialsChoice, choose_credentials
from rockhopper.client.network.tls import Tls, choose_tls
from rockhopper.protocol.bodies import ConsumerData
from rockhopper.protocol.command import Command
from rockhopper.sockets import find_own_host


class Sharer:
    """The capabilities of a client on shared connections; `Session` is one."""

    producer_groups: set[str]
    checked_group: str | None = None
    """The group whose transaction checks it handles."""
    consumers: dict[str, ConsumerData]
    handle_request: RequestHandler | None

    def connected(self, connection: BrokerConnection) -> None:
        """Handle a new connection before anything is sent over it."""

    def doubt(self, address: str) -> None:
        """Handle an unreachable address."""


class SharedConnections(Protocol):
    """The type of `connections`: Connections of rockhopper or of rockhopper.sync."""

    def current(self) -> "Connections":
        """The connections of this process."""


class Connections(ClosedAtEnd):
    """Connections that several clients share; use it with `async with`, around the clients.

        async with Connections("10.0.0.1:9876") as shared:
            async with Producer(connections=shared) as producer, Consumer(
                "billing", "orders", connections=shared
            ) as consumer:
                ...

    Close the clients before the connections.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        connect_timeout_s: float = 3.0,
        tls: Tls = None,
        credentials: CredentialsChoice = None,
    ) -> None:
        """The arguments are those of the clients, and apply to all of them."""
        self.addresses = parse_nameservers(nameserver)
        self.client_id = f"{find_own_host()}@{os.getpid()}#{time.monotonic_ns()}"
        self.sharers: list[Sharer] = []
        self.pool = ConnectionPool(
            connect_timeout_s=connect_timeout_s,
            handle_request=self._serve,
            credentials=choose_credentials(credentials),
            on_connect=self._connected,
            on_unreachable=self._doubt,
            tls=choose_tls(tls),
        )

    async def __aenter__(self) -> Self:
        return self

    def current(self) -> Self:
        """See SharedConnections."""
        return self

    async def close(self) -> None:
        """Close the connections; close the clients that share them first."""
        await self.pool.close()

    def join(self, sharer: Sharer) -> None:
        """Add a client.

        Raises ClientStateError for a second consumer, or a second checker, of a group.
        """
        for group in sharer.consumers:
            if any(group in other.consumers for other in self.sharers):
                raise ClientStateError(
                    f"a consumer of the group {group!r} shares these connections already",
                    remedy="give the second member of a group its own connections",
                )
        if sharer.checked_group is not None and self.has_checker(sharer.checked_group):
            raise ClientStateError(
                f"a TransactionProducer of group {sharer.checked_group!r} shares these "
                "connections already, and would be checked twice",
                remedy="give the second one its own connections",
            )
        self.sharers.append(sharer)

    def has_checker(self, group: str) -> bool:
        """Whether one of the clients checks the transactions of *group*."""
        return any(each.checked_group == group for each in self.sharers)

    def leave(self, sharer: Sharer) -> None:
        """Remove a client."""
        if sharer in self.sharers:
            self.sharers.remove(sharer)

    def _serve(
        self, connection: BrokerConnection, command: Command
    ) -> RequestAnswer | asyncio.Future[RequestAnswer]:
        fields = command.ext or {}
        group = fields.get("consumerGroup") or fields.get("group")
        asked = [each for each in self.sharers if group is None or group in each.consumers]
        first = None
        for each in asked or self.sharers:
            if each.handle_request is not None:
                answer = each.handle_request(connection, command)
                first = answer if first is None else first
        return first

    def _connected(self, connection: BrokerConnection) -> None:
        for each in list(self.sharers):
            each.connected(connection)

    def _doubt(self, address: str) -> None:
        for each in list(self.sharers):
            each.doubt(address)
