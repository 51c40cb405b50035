"""ClientPorts: the ports that a replica opens for clients, from role to role."""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from rockhopper.broker.server.remoting.handover import MasterFinder


class HandedOffConnections(Protocol):
    """Client connections that are being handed over to another master."""

    def leave(self) -> None:
        """Detach their connections from the server, which closes."""


class ClientPorts(Protocol):
    """The ports that the surrounding broker opens for clients."""

    def load_names(self) -> None:
        """Create this process's name server, from the tables that were just read."""

    async def open_names(self, undo: contextlib.AsyncExitStack) -> None:
        """Answer routes and register with name servers, until *undo*."""

    async def refuse(self, undo: contextlib.AsyncExitStack) -> None:
        """Refuse clients on the broker's port, because it is not the master, until *undo*."""

    async def build_parts(self) -> None:
        """Stop refusing clients, and build the parts."""

    async def serve(self, undo: contextlib.AsyncExitStack, begin: Callable[[], None]) -> None:
        """Open the parts, call *begin*, then start the parts and admit clients, until *undo*."""

    def hold_clients(self) -> HandedOffConnections:
        """Hold all client requests until they are handed over."""

    async def pass_on(self, handed_off: Any, finder: MasterFinder) -> None:
        """Forward held requests to the master once it serves, and new ones to the leader."""

    def advertisement_changed(self) -> None:
        """Notify name servers of the change."""

    def cannot_go_on(self) -> None:
        """Stop the process, so that a supervisor restarts it."""
