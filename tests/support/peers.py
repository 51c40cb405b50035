"""A stopped clock and a peer without a socket, for tests of broker state."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from rockhopper.broker.server.listening.caller import DIRECT
from rockhopper.broker.server.remoting.connection import RemotingConnection, request_of
from rockhopper.broker.users.peer import ConnectionAddresses, Notice, Principal


class Clock:
    """A wall clock and a monotonic clock whose time passes only when a test advances it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self._monotonic_ms = 0

    def monotonic_ns(self) -> int:
        """Return the monotonic time."""
        return self._monotonic_ms * 1_000_000

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Let *ms* milliseconds pass."""
        self.now_ms += ms
        self._monotonic_ms += ms

    def set_by(self, ms: int) -> None:
        """Set the wall clock by *ms* milliseconds, forward or back; no time passes."""
        self.now_ms += ms


class Peer:
    """A client from the broker's view: records the requests and answers sent to it."""

    def __init__(self, host: str = "127.0.0.1", port: int = 40_000) -> None:
        born_host = b"\x7f\0\0\1" + port.to_bytes(4, "big")
        self.addresses = ConnectionAddresses(host, port, "127.0.0.1", 10_911, born_host)
        self.closed = self.writing_paused = False
        self.attributes: dict[str, object] = {}
        self.on_close: list[Callable[[RemotingConnection], None]] = []
        self.requests: list[tuple[int, dict[str, str]]] = []
        self.written: list[bytes] = []
        self.answered = asyncio.Event()

    @property
    def peer(self) -> str:
        """The address as text."""
        return self.addresses.peer

    @property
    def principal(self) -> Principal:
        """The principal of its requests."""
        return Principal(self.addresses.peer_host)

    @property
    def connection(self) -> "RemotingConnection":
        """The same object under the type that the broker's code expects."""
        return cast("RemotingConnection", self)

    def notify(self, notice: Notice) -> int:
        """Record a notice, in the form that remoting writes."""
        code, ext, body = request_of(notice)
        self.send_request(code, ext, body)
        return len(body)

    def send_request(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Record a request of the broker."""
        self.requests.append((int(code), dict(ext or {})))

    def write(self, data: bytes) -> None:
        """Record an answer."""
        self.written.append(data)
        self.answered.set()

    def write_parts(self, parts: Sequence[bytes]) -> None:
        """Record answers."""
        self.write(b"".join(parts))

    write_soon = write_parts

    def hang_up(self) -> None:
        """Close the socket, as the broker notices it."""
        self.closed = True
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            callback(self.connection)


class UsersPeer(Peer):
    """A connection of a user."""

    caller = DIRECT

    def __init__(self, host: str, user: str) -> None:
        super().__init__(host)
        self._user = user

    @property
    def principal(self) -> Principal:
        """The principal of its requests."""
        return Principal(self.addresses.peer_host, self._user)
