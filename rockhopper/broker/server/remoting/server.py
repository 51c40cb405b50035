"""Server: the listening ports of a broker or name server, and their connections."""

import asyncio
import socket
from collections.abc import Iterable

from rockhopper.broker.server.listening.caller import DIRECT, Caller
from rockhopper.broker.server.listening.connections import OpenConnections
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.unfinished import UNKNOWN_BYTES_MAX, Unfinished
from rockhopper.broker.server.loop.fair_scheduler import FairScheduler
from rockhopper.broker.server.remoting.connection import FrameHandler, RemotingConnection
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.guard import guard_of
from rockhopper.broker.users.peer import USERS
from rockhopper.protocol.errors import MalformedFrameError
from rockhopper.protocol.signing import ACCESS_KEY
from rockhopper.tasks import run_in_background

UNREAD_BYTES_MAX = 64 << 20
UNREAD_BYTES_MAX_ALL = 512 << 20
# After this many more written bytes, all connections are added up again.
UNREAD_BYTES_STEP = 16 << 20
SWEEP_INTERVAL_S = 1.0
SWEPT_PER_TURN = 200
CLOSE_TIMEOUT_S = 1.0


class _OpenPort:
    """A listening port, which one server may pass to another."""

    def __init__(self, server: "Server", bound: socket.socket, gate: Gate) -> None:
        self.server = server
        self.listener = Listener(
            bound, self._make_connection, name=server.name, gate=gate, has_room=self._has_room
        )

    def _make_connection(self, caller: Caller) -> RemotingConnection:
        return self.server.make_connection(caller)

    def _has_room(self, arriving: int) -> bool:
        return self.server.has_room(arriving)


class HalfFrames(Unfinished):
    """The incomplete frames of one server's connections: the memory limit of each, and of all.

    If users are required, an unauthenticated peer may begin a frame larger than UNKNOWN_BYTES_MAX
    only if the header names a user: the first request on a connection may be a send of some MiB,
    and its signature covers the body.
    """

    def __init__(self, access: AccessRules | None) -> None:
        self._guard = guard_of(access)
        super().__init__(has_users=self._guard is not None)

    def find_problem(self, connection: RemotingConnection) -> MalformedFrameError | None:
        """Return why *connection* may not continue its incomplete frame, or None."""
        decoder = connection.decoder
        if (
            self._guard is None
            or decoder.pending_bytes <= UNKNOWN_BYTES_MAX
            or self._guard.unsigned_codes
            or connection.attributes.get(USERS)
            or ACCESS_KEY.encode() in decoder.pending_header()
        ):
            return None
        return MalformedFrameError(
            f"an unauthenticated frame of more than {UNKNOWN_BYTES_MAX} bytes"
        )


class Server(OpenConnections[RemotingConnection]):
    """One or more listening ports and their connections."""

    def __init__(
        self,
        name: str,
        handler: FrameHandler,
        *,
        connections_max: int,
        access: AccessRules | None = None,
    ) -> None:
        """*access* decides whether users are required; None: they are not."""
        super().__init__(name, connections_max)
        self.handler = handler
        self.access = access
        self._half_frames = HalfFrames(access)
        self.scheduler: FairScheduler[RemotingConnection] = FairScheduler(self)
        self._open_ports: list[_OpenPort] = []
        self._heir: Server | None = None
        self._is_closing = False
        self._sweeper: asyncio.TimerHandle | asyncio.Handle | None = None
        self._unread_bytes_since_look = 0
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 picks a free one, which ``port`` then names. Raises OSError."""
        await self.start_on(socket.create_server((host, port)))

    async def start_on(self, bound: socket.socket, gate: Gate = OPEN) -> None:
        """Listen on a socket that is bound already; the server owns it from now on.

        A further call adds another port; ``port`` remains the first one's.

        Raises:
            OSError: another process listens on it.
        """
        open_port = _OpenPort(self, bound, gate)
        await open_port.listener.start()
        self._listen_at([open_port])

    def make_connection(self, caller: Caller = DIRECT) -> RemotingConnection:
        """Return the protocol of a new connection."""
        return RemotingConnection(self, caller)

    def handle_with(self, handler: FrameHandler) -> None:
        """Use *handler* for all further frames, on every connection."""
        self.handler = handler

    def adopt(self, connection: RemotingConnection) -> None:
        """Take over an open connection of another server."""
        if not connection.closed:
            connection.server = self
            self.connections.add(connection)

    def _listen_at(self, open_ports: list[_OpenPort]) -> None:
        if open_ports and not self._open_ports:
            self.port = open_ports[0].listener.port
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self.sweep)
        self._open_ports += open_ports

    def listens_on(self, port: int) -> bool:
        """Return whether this server serves connections to *port*."""
        return any(open_port.listener.port == port for open_port in self._open_ports)

    def give_way_to(self, heir: "Server") -> None:
        """Pass all ports to *heir*, without closing any in between."""
        open_ports, self._open_ports = self._open_ports, []
        for open_port in open_ports:
            open_port.server = heir
        heir._listen_at(open_ports)
        # Arriving connections were made for this server.
        self._heir, heir._heir = heir, None
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def stop_listening(self) -> None:
        """Accept no more connections; open ones stay."""
        for open_port in list(self._open_ports):
            await open_port.listener.stop()
        self._open_ports.clear()

    def begin_to_close(self) -> None:
        """Stop listening, and close every connection after its queued data is sent."""
        self._is_closing = True
        if self._open_ports:
            run_in_background(self.stop_listening(), "closing a port")
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close()

    async def close(self) -> None:
        """Stop listening and close every connection, after sending queued data."""
        self._is_closing = True
        await self.stop_listening()
        self.begin_to_close()
        await self.all_gone(CLOSE_TIMEOUT_S)

    def let_in(self, connection: RemotingConnection) -> bool:
        """Admit a new connection here, or in the server that now has this one's ports."""
        server = self
        while server._heir is not None:
            server = server._heir
        connection.server = server
        return not server._is_closing and server.admit(connection)

    def forget(self, connection: RemotingConnection) -> None:
        """Remove a closed connection."""
        super().forget(connection)
        self.scheduler.forget(connection)

    def count_half_frame(self, connection: RemotingConnection, size_bytes: int) -> None:
        """Count bytes of an incomplete frame; close its connection, or others, if necessary."""
        problem = self._half_frames.find_problem(connection)
        if problem is None:
            self._half_frames.count(size_bytes, self.connections)
        else:
            connection.decoder.forget_pending()
            connection.fail(problem)

    def count_unread(self, connection: RemotingConnection, size_bytes: int) -> None:
        """Count bytes written to a peer that does not read; close it, or others, if necessary.

        Reading from it has stopped, but held and slow requests are still answered.
        """
        if connection.unread_bytes > UNREAD_BYTES_MAX:
            connection.abort(f"{connection.unread_bytes} bytes of answers were not read")
        self._unread_bytes_since_look += size_bytes
        if self._unread_bytes_since_look > UNREAD_BYTES_STEP:
            self._unread_bytes_since_look = 0
            self._close_slowest()

    def _close_slowest(self) -> None:
        slow = sorted((c for c in self.connections if c.writing_paused), key=_unread_bytes)
        unread_bytes_all = sum(map(_unread_bytes, slow))
        while unread_bytes_all > UNREAD_BYTES_MAX_ALL and slow:
            connection = slow.pop()
            unread_bytes_all -= connection.unread_bytes
            connection.abort("all peers together have too many unread answers")

    def sweep(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._sweep_piece(list(self.connections), now_s)

    def _sweep_piece(self, connections: list[RemotingConnection], now_s: float) -> None:
        """Sweep in parts: closing thousands at once, with a log line each, would block the loop."""
        loop = asyncio.get_running_loop()
        sweep_connections(connections[-SWEPT_PER_TURN:], now_s)
        del connections[-SWEPT_PER_TURN:]
        if connections:
            self._sweeper = loop.call_soon(self._sweep_piece, connections, now_s)
        else:
            self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self.sweep)


def _unread_bytes(connection: RemotingConnection) -> int:
    return connection.unread_bytes


def sweep_connections(connections: Iterable[RemotingConnection], now_s: float) -> None:
    """Close those of *connections* that are idle or stuck as of *now_s*, the loop's time."""
    for connection in connections:
        activity = connection.activity
        if activity.stalled_at_s is not None:
            activity.note_progress(now_s, connection.unread_bytes)
        reason = activity.find_timeout(now_s, is_waiting=connection.is_waiting)
        if reason is not None:
            connection.abort(reason)
