"""Who is at the other end, as the broker knows it, whatever protocol it speaks.

Members, locks, transactions and whatever waits keep peers; remoting's Connection is one. What a
peer is told stands here in plain values, and is encoded where its protocol is known
(server/remoting/notices.py).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from rockhopper.protocol.message import StoredMessage

USERS = "users"
"""The attribute of a connection that holds the users whose requests came by it."""


class ConsumersChanged(NamedTuple):
    """The members of a group are others now: the queues have to be shared out again."""

    group: str


class TransactionCheck(NamedTuple):
    """The question how the transaction of a half message ended."""

    half: StoredMessage
    message: StoredMessage
    """The message as it will be, if it will."""
    broker_name: str


Notice: TypeAlias = ConsumersChanged | TransactionCheck


class Principal(NamedTuple):
    """In whose name a peer asks."""

    host: str
    """Its address."""
    user: str = ""
    """Empty while it has not said who it is."""


class Peer(Protocol):
    """One client, for as long as it is connected."""

    closed: bool
    principal: Principal
    writing_paused: bool
    """It does not read: what it is told now waits here."""
    attributes: dict[str, object]
    """What others keep about it."""
    on_close: "list[Callable[[Peer], None]]"
    """Called once when it has gone."""
    peer_host: str
    local_host: str
    """The address of ours that it came to."""

    @property
    def peer(self) -> str:
        """Its address as text, for logs."""

    def notify(self, notice: Notice) -> int:
        """Tell it something that it does not answer; returns the bytes of the body."""


class Questioned(Protocol):
    """A consumer that is asked in other words than remoting's; the answers are RocketMQ's JSON."""

    async def running_info(self, *, with_stacks: bool) -> bytes:
        """What it says of itself. Raises ConnectionResetError."""

    async def consume_directly(self, record: bytes) -> bytes:
        """What became of a stored message that it is to try. Raises ConnectionResetError."""
