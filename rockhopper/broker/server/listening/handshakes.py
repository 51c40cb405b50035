"""Handshakes: the TLS handshakes of all ports, a few per iteration of the event loop.

The server's side of a handshake costs 0.4 ms of the loop (EC P-256) to 1.1 ms (RSA 2048), nearly
all of it when the client's first record is read. Five hundred at once would block all other work as
long as they take. So only a few begin per iteration, and the rest wait. Half of each iteration's
places go to the newest connections, so that neither a continuing flood nor a past one blocks all
others.

A handshake in progress that waits for its peer only costs memory. But if all continued in the same
iteration, at 0.055 ms each, that would be a flood too. So their number is limited: at the limit,
those that take over half a second are ended, and new ones wait.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import structlog

from rockhopper.broker.server.listening.failures import Failures
from rockhopper.tasks import start_task

log = structlog.get_logger("broker.tls")

BEGUN_PER_TURN = 4
UNDER_WAY_MAX = 320
# At the limit, handshakes without progress for this long are ended.
PATIENCE_S = 0.5
LOOK_AGAIN_S = 0.05
ENDED_PER_LOOK = 32
HANDSHAKE_TIMEOUT_S = 10.0
SHUTDOWN_TIMEOUT_S = 2.0


class HandshakeOwner(Protocol):
    """Waits for handshakes."""

    def handshake_ended(self, connected: socket.socket) -> None:
        """Note that the handshake on *connected* has succeeded or failed."""


class Handshake(NamedTuple):
    """A handshake to be made."""

    connected: socket.socket
    context: ssl.SSLContext
    factory: Callable[[], asyncio.BaseProtocol]
    peer: str
    owner: HandshakeOwner


class Handshakes:
    """The handshakes of one process. Methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self.failures = Failures("TLS handshakes failed")
        self._waiting: deque[Handshake] = deque()
        self._under_way: dict[asyncio.Task[None], tuple[Handshake, float]] = {}
        """With their start times, the oldest first."""
        self._is_beginning = False

    @property
    def count(self) -> int:
        """How many wait or are in progress."""
        return len(self._waiting) + len(self._under_way)

    @property
    def waiting(self) -> list[socket.socket]:
        """The connections whose handshakes have not begun."""
        return [handshake.connected for handshake in self._waiting]

    def start(self, handshake: Handshake) -> None:
        """Start the handshake, in this iteration of the loop or a later one."""
        self._waiting.append(handshake)
        self._begin_soon()

    def cancel(self, connected: socket.socket) -> None:
        """Cancel the handshake on *connected*, if there is one."""
        for handshake in self._waiting:
            if handshake.connected is connected:
                self._waiting.remove(handshake)
                connected.close()
                handshake.owner.handshake_ended(connected)
                return
        for task, (handshake, _) in self._under_way.items():
            if handshake.connected is connected:
                task.cancel()
                return

    def _begin_soon(self) -> None:
        if not self._is_beginning:
            self._is_beginning = True
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._is_beginning = False
        loop = asyncio.get_running_loop()
        room = UNDER_WAY_MAX - len(self._under_way)
        count = min(BEGUN_PER_TURN, len(self._waiting), room)
        for number in range(count):
            handshake = self._waiting.pop() if number % 2 else self._waiting.popleft()
            task = start_task(self._make(handshake))
            self._under_way[task] = handshake, loop.time()
            task.add_done_callback(self._finish)
        if self._waiting and count:
            self._begin_soon()
        elif self._waiting:
            self._end_those_before(loop.time() - PATIENCE_S)
            self._is_beginning = True
            loop.call_later(LOOK_AGAIN_S, self._begin_some)

    def _end_those_before(self, time_s: float) -> None:
        for task, (_, begun_at_s) in list(self._under_way.items())[:ENDED_PER_LOOK]:
            if begun_at_s > time_s:
                return
            task.cancel()

    def _finish(self, task: "asyncio.Task[None]") -> None:
        handshake, _ = self._under_way.pop(task)
        # In any case: if it succeeded, the transport owns the descriptor.
        handshake.owner.handshake_ended(handshake.connected)
        if task.cancelled():
            handshake.connected.close()
            self.failures.count_one(
                handshake.peer, "there were too many other handshakes, or the port was closed"
            )
        elif (error := task.exception()) is not None:
            handshake.connected.close()
            self.failures.count_one(handshake.peer, reason_of(error))

    async def _make(self, handshake: Handshake) -> None:
        timeouts: dict[str, Any] = {
            "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
            "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
        }
        await asyncio.get_running_loop().connect_accepted_socket(
            handshake.factory, handshake.connected, ssl=handshake.context, **timeouts
        )


def reason_of(error: BaseException) -> str:
    """Return why a handshake failed, with the remedy if it is known."""
    text = f"{type(error).__name__} {error}"
    for mark, meaning in _MEANINGS.items():
        if mark in text:
            return meaning
    return str(error) or text


_MEANINGS = {
    "UNKNOWN_CA": "the client does not trust the certificate: give it the CA's",
    "BAD_CERTIFICATE": "the client refuses the certificate: see its log",
    "CERTIFICATE_UNKNOWN": "the client refuses the certificate: give it the CA's",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client presents no certificate, and one is required",
    "CERTIFICATE_VERIFY_FAILED": "no CA in tlsTrustCertPath signed the client's certificate",
    "UNSUPPORTED_PROTOCOL": "the client supports only TLS older than 1.2",
    "ConnectionResetError": "the client disconnected, perhaps because it distrusts the certificate",
    "taking longer": "the client did not complete the handshake in time",
}
