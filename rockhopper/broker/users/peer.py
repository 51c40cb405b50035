"""Peers, as the broker sees them, independent of the protocol.

Members, locks, transactions and waiting requests refer to peers; remoting's Connection is one.
Notifications to a peer are plain values here, and are encoded where its protocol is known
(server/remoting/connection.py).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from rockhopper.protocol.addresses import join_address
from rockhopper.protocol.message import StoredMessage

USERS = "users"
"""The attribute of a connection with the users of its requests."""


class ConsumersChanged(NamedTuple):
    """The members of a group have changed: the queues must be assigned again."""

    group: str


class TransactionCheck(NamedTuple):
    """The question how the transaction of a half message ended."""

    half: StoredMessage
    message: StoredMessage
    """The message as it will be delivered if the transaction commits."""
    broker_name: str


Notice: TypeAlias = ConsumersChanged | TransactionCheck


class Principal(NamedTuple):
    """The identity in whose name a peer sends requests."""

    host: str
    """The peer's address."""
    user: str = ""
    """Empty while it has not authenticated."""


class ConnectionAddresses(NamedTuple):
    """The addresses of both ends of a connection."""

    peer_host: str = ""
    peer_port: int = 0
    local_host: str = ""
    local_port: int = 0
    born_host: bytes = b""
    """The peer's address in the format of records."""

    @property
    def peer(self) -> str:
        """The peer's address as text."""
        return join_address(self.peer_host, self.peer_port)

    @property
    def local(self) -> str:
        """The local address as text."""
        return join_address(self.local_host, self.local_port)


class Peer(Protocol):
    """One client, for as long as it is connected."""

    closed: bool
    principal: Principal
    attributes: dict[str, object]
    """State that other parts keep for it."""
    on_close: "list[Callable[[Peer], None]]"
    """Called once when it has disconnected."""
    addresses: ConnectionAddresses

    @property
    def writing_paused(self) -> bool:
        """Whether it does not read: data sent to it waits here."""

    @property
    def peer(self) -> str:
        """Its address as text, for logs."""

    def notify(self, notice: Notice) -> int:
        """Send it a notification that needs no response; return the size of its body in bytes."""


class Questioned(Protocol):
    """A consumer queried by another protocol than remoting; its answers are RocketMQ's JSON."""

    async def running_info(self, *, with_stacks: bool) -> bytes:
        """Return the consumer's state. Raises ConnectionResetError."""

    async def consume_directly(self, record: bytes) -> bytes:
        """Return the result of consuming a stored message. Raises ConnectionResetError."""
