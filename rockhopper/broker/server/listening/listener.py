"""Listener: accepts the connections of every port.

It accepts a connection, waits for the first bytes, reads what a trusted proxy announces, chooses
TLS or plain as the port's mode allows, and hands the socket to its protocol. If neither TLS nor a
proxy is configured, none of this is needed, and the event loop's own listener is used.

    silent for 10 s, or an incomplete start         closed
    TLS where it is disabled                        handed over, and rejected as invalid
    plain where TLS is enforced                     closed, counted
    a handshake that fails or takes over 10 s       closed, counted
    no descriptor is free                           new connections wait for a second
    more connections than the port may have         closed

However many connections arrive at once, one iteration of the loop accepts and begins only a few.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import structlog

from rockhopper.broker.server.listening.arrivals import Arrival
from rockhopper.broker.server.listening.caller import DIRECT, Caller
from rockhopper.broker.server.listening.failures import Failures
from rockhopper.broker.server.listening.handshakes import Handshake
from rockhopper.broker.server.listening.proxy_protocol import ProxyProtocol
from rockhopper.broker.server.listening.socket_names import socket_address
from rockhopper.broker.server.listening.tls import Tls
from rockhopper.protocol.addresses import join_address
from rockhopper.sockets import close_in_children, close_server, stop_accepting
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.listener")

BACKLOG = 1024
ACCEPTED_PER_TURN = 32
ACCEPT_AGAIN_S = 1.0

Factory = Callable[[Caller], asyncio.BaseProtocol]
"""Makes the protocol of a connection."""


class Gate(NamedTuple):
    """The common configuration of the ports of a process."""

    tls: Tls | None = None
    """None: no TLS."""
    proxy: ProxyProtocol | None = None
    """None: no peer may announce addresses."""


OPEN = Gate()


def _has_room(_arriving: int) -> bool:
    return True


class Listener:
    """One listening socket. Methods belong to the event loop's thread."""

    def __init__(
        self,
        bound: socket.socket,
        factory: Factory,
        *,
        name: str,
        gate: Gate = OPEN,
        alpn: tuple[str, ...] = (),
        has_room: Callable[[int], bool] = _has_room,
    ) -> None:
        """Take over *bound*; *factory* makes the protocol once the peer is known.

        *has_room* returns whether one more connection may be accepted, given the number that arrive
        now. *alpn* is what TLS offers; a protocol that needs it reads its transport's ssl_object.
        """
        self._bound = bound
        self._factory = factory
        self._name = name
        self._tls, self._proxy = gate
        self._alpn = alpn
        self._has_room = has_room
        self._plain: asyncio.Server | None = None
        self._arrivals: set[Arrival] = set()
        self._handshakes: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self.failures = Failures("connections were closed before they were accepted")
        """Plain connections where TLS is enforced, false PROXY headers, and silent peers."""

    @property
    def port(self) -> int:
        """The number of the port; 0 if it is closed."""
        return 0 if self._bound.fileno() < 0 else int(self._bound.getsockname()[1])

    @property
    def arriving(self) -> int:
        """How many connections are arriving."""
        return len(self._arrivals) + len(self._handshakes)

    async def start(self) -> None:
        """Start to accept connections.

        Raises:
            OSError: another process listens on the port.
            TlsError: the certificate has become unusable.
        """
        loop = asyncio.get_running_loop()
        close_in_children(self._bound)
        if self._tls is None and self._proxy is None:
            self._plain = await loop.create_server(
                partial(self._factory, DIRECT), sock=self._bound, backlog=BACKLOG
            )
            return
        if self._tls is not None:
            self._tls.context(self._alpn)
        self._bound.setblocking(False)
        self._bound.listen(BACKLOG)
        loop.add_reader(self._bound.fileno(), self._accept)

    def stop_accepting(self) -> None:
        """Accept no more: connecting peers wait until the port closes, arriving ones continue."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._plain is not None:
            stop_accepting(self._plain)
        elif self._bound.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._bound.fileno())

    async def stop(self) -> None:
        """Close the port and all arriving connections."""
        self.stop_accepting()
        if self._plain is not None:
            await close_server(self._plain)
            return
        self._bound.close()
        for arrival in list(self._arrivals):
            arrival.close("")
        if self._tls is not None:
            for connected in list(self._handshakes):
                self._tls.handshakes.cancel(connected)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                connected, name = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Mostly because no descriptor is free.
                self._pause(error)
                return
            self._take(connected, name)

    def _pause(self, error: OSError) -> None:
        """Accept nothing for a while: the socket stays readable, and the loop would spin."""
        self.failures.count_one("unknown", str(error))
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound.fileno())
        self._again = loop.call_later(
            ACCEPT_AGAIN_S, loop.add_reader, self._bound.fileno(), self._accept
        )

    def _take(self, connected: socket.socket, name: object) -> None:
        if not self._has_room(self.arriving):
            connected.close()
            return
        connected.setblocking(False)
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = socket_address(name)
        arrival = Arrival(
            connected,
            join_address(host, port),
            self,
            may_be_announced=self._proxy is not None and self._proxy.trusts(host),
        )
        self._arrivals.add(arrival)
        arrival.look()

    def peer_gone(self, arrival: Arrival, reason: str) -> None:
        """See ArrivalOwner."""
        self._arrivals.discard(arrival)
        if reason:
            self.failures.count_one(arrival.peer, reason)

    def peer_known(self, arrival: Arrival, *, speaks_tls: bool) -> None:
        """See ArrivalOwner."""
        self._arrivals.discard(arrival)
        connected, tls = arrival.connected, self._tls
        caller = Caller(arrival.address, is_tls=speaks_tls and tls is not None)
        factory = partial(self._factory, caller)
        if tls is not None and speaks_tls:
            self._handshakes.add(connected)
            context = tls.context(self._alpn)
            tls.handshakes.start(Handshake(connected, context, factory, arrival.peer, self))
        elif tls is not None and tls.is_enforced:
            connected.close()
            self.failures.count_one(
                arrival.peer, "it does not use TLS, which tlsServerMode=enforcing requires"
            )
        else:
            task = run_in_background(_connect(connected, factory), "a new connection")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def handshake_ended(self, connected: socket.socket) -> None:
        """See HandshakeOwner."""
        self._handshakes.discard(connected)


async def _connect(connected: socket.socket, factory: Callable[[], asyncio.BaseProtocol]) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(factory, connected)
    except OSError as error:
        # The peer closed it at that moment.
        connected.close()
        log.debug("connection lost", reason=str(error))
