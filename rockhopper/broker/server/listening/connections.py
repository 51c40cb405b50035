"""OpenConnections: the open connections of one server, and their limit."""

import asyncio
import contextlib
from typing import Generic, Protocol, TypeVar

import structlog

from rockhopper.broker.server.listening.caller import Caller
from rockhopper.broker.store.files.descriptors import RAISE_OPEN_FILES_MAX

log = structlog.get_logger("broker.listener")


class Counted(Protocol):
    """The methods of a connection that the registry needs."""

    caller: Caller

    def abort(self, reason: str) -> None:
        """Close at once and drop queued data."""


AnyConnection = TypeVar("AnyConnection", bound=Counted)


class OpenConnections(Generic[AnyConnection]):
    """The open connections of a server; belongs to the event loop."""

    def __init__(self, name: str, connections_max: int) -> None:
        """*name* is for the log, which reports once that there are too many."""
        self.name = name
        self.connections: set[AnyConnection] = set()
        self.connections_max = connections_max
        self.refused_count = 0
        self._all_closed: asyncio.Event | None = None

    @property
    def tls_count(self) -> int:
        """How many connections speak TLS."""
        return sum(connection.caller.is_tls for connection in self.connections)

    def has_room(self, arriving: int) -> bool:
        """Return whether one more may be accepted beside the *arriving* ones; log once if not."""
        if len(self.connections) + arriving < self.connections_max:
            return True
        if self.refused_count == 0:
            log.error(
                f"connections refused: {RAISE_OPEN_FILES_MAX}",
                server=self.name,
                open=len(self.connections),
            )
        self.refused_count += 1
        return False

    def admit(self, connection: AnyConnection) -> bool:
        """Add a new connection, unless there are too many for the remaining file descriptors."""
        if not self.has_room(0):
            return False
        self.connections.add(connection)
        return True

    def forget(self, connection: AnyConnection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        if not self.connections and self._all_closed is not None:
            self._all_closed.set()

    async def all_gone(self, timeout_s: float) -> None:
        """Wait until all connections have closed; abort those still open at the time-out."""
        if self.connections:
            self._all_closed = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._all_closed.wait()
        for connection in list(self.connections):
            # uvloop raises on a transport that is closed.
            with contextlib.suppress(RuntimeError):
                connection.abort("the server is stopping")
