"""The listening sockets and connections of broker and name server.

A connection splits incoming bytes into frames, passes the complete frames of one read to its
server's handler in one pass, and protects the process against its peer:

    a malformed frame or header          closed, one log line
    no frame within 10 s of connecting   closed
    a frame incomplete for 30 s          closed (a peer that sends byte by byte)
    nothing sent or received for 120 s   closed, as RocketMQ does
    incomplete frames                    closed beyond a budget, see half_frames
    unread responses                     reading stops; closed at 64 MiB or after 30 s without
                                         progress, and the slowest at 512 MiB of all together
    more frames than fit into a pass     reading stops until they are served, see FairScheduler

The handler gets the connection and the frames, writes its responses, and returns how many frames it
served. The connection keeps the others for a later round, or until its peer reads.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import structlog

from rockhopper.broker.server.listening.caller import DIRECT, Caller
from rockhopper.broker.server.listening.connections import OpenConnections
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.socket_names import read_addresses
from rockhopper.broker.server.loop.fair_scheduler import (
    FRAMES_OF_SMALL_READ,
    FRAMES_PER_PASS,
    SMALL_READ_BYTES,
    FairScheduler,
)
from rockhopper.broker.server.remoting.half_frames import HalfFrames
from rockhopper.broker.server.remoting.notices import request_of
from rockhopper.broker.server.remoting.pending_calls import PendingCalls
from rockhopper.broker.server.remoting.sweeping import PeerActivity, sweep_connections
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.peer import USERS, ConnectionAddresses, Notice, Peer, Principal
from rockhopper.protocol.codes import FLAG_ONEWAY
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.sockets import close_in_children

log = structlog.get_logger("broker.server")

UNREAD_BYTES_MAX = 64 << 20
UNREAD_BYTES_MAX_ALL = 512 << 20
# After this many more written bytes, all connections are added up again.
UNREAD_BYTES_STEP = 16 << 20
WRITE_BUFFER_HIGH_BYTES = 1 << 20
# Less is joined before it is written: each part costs about as much as copying that much.
JOINED_BYTES_MAX = 8 << 10
_ANSWERED_WITHIN_S = 1.0
SWEEP_INTERVAL_S = 1.0
SWEPT_PER_TURN = 200
CLOSE_TIMEOUT_S = 1.0
ACCEPTING_TURNS = 4
"""After this many iterations of the loop, an accepted connection is known to its server, or closed.
"""


class FrameHandler(Protocol):
    """Serves the frames of the connections of a server."""

    def serve_frames(self, connection: "RemotingConnection", frames: list[Frame]) -> int:
        """Serve *frames* in order; return how many were served."""


class RemotingConnection(asyncio.Protocol):
    """One peer. All methods belong to the event loop's thread."""

    __slots__ = (
        "_calls",
        "_loop",
        "_outbox",
        "_scheduler",
        "_served_in_round",
        "_transport",
        "activity",
        "addresses",
        "attributes",
        "backlog",
        "caller",
        "closed",
        "decoder",
        "is_waiting",
        "on_close",
        "principal",
        "server",
    )

    def __init__(self, server: "Server", caller: Caller = DIRECT) -> None:
        self.server = server
        """Its handler serves incoming frames."""
        self.caller = caller
        self._loop = asyncio.get_running_loop()
        self.decoder = FrameDecoder()
        self.backlog: list[Frame] = []
        self._scheduler = server.scheduler
        self._served_in_round = -1
        self.is_waiting = False
        """Whether a later round serves received frames; nothing is read meanwhile."""
        self._calls = PendingCalls()
        self._outbox: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.attributes: dict[str, object] = {}
        self.on_close: list[Callable[[Peer], None]] = []
        self.closed = False
        self.activity = PeerActivity(self._loop.time())
        self.addresses = ConnectionAddresses()
        self.principal = Principal("")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or close at once if the server is full."""
        # uvloop's transports are not asyncio.Transport by inheritance.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        close_in_children(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        self.addresses = read_addresses(transport, self.caller)
        self.principal = Principal(self.addresses.peer_host)
        if not self.server.let_in(self):
            self.closed = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify all listeners that have state for this peer."""
        self.closed = True
        self.backlog = []
        self.server.forget(self)
        self._calls.fail(f"{self.peer} closed the connection")
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()

    @property
    def held_bytes(self) -> int:
        """The received bytes of an incomplete frame."""
        return self.decoder.pending_bytes

    @property
    def is_known(self) -> bool:
        """Whether its peer is authenticated as a user."""
        return bool(self.attributes.get(USERS))

    def drop_held(self, reason: str) -> None:
        """Drop an incomplete frame, and close at once."""
        self.decoder.forget_pending()
        self.abort(reason)

    @property
    def writing_paused(self) -> bool:
        """Whether the peer does not read: data sent to it waits here."""
        return self.activity.stalled_at_s is not None

    @property
    def peer(self) -> str:
        """The peer's address as text."""
        return self.addresses.peer

    def data_received(self, data: bytes) -> None:
        """Serve the complete frames in *data*, in one pass, now or in a later round."""
        frames = self.decoder.feed(data)
        pending_bytes = self.decoder.pending_bytes
        count = len(frames)
        self.activity.receive(self._loop.time(), count, pending_bytes)
        if self.backlog:
            self.backlog += frames
        elif frames:
            self.backlog = frames
            is_small = count <= FRAMES_OF_SMALL_READ and len(data) < SMALL_READ_BYTES
            if is_small or self._scheduler.admit(self._served_in_round, count):
                self._serve()
            else:
                self._wait()
        elif self.decoder.error is not None:
            self.fail(self.decoder.error)
        if pending_bytes and not self.closed:
            self.server.count_half_frame(self, len(data))

    def _serve(self) -> None:
        """Serve one pass of the received frames, and schedule the rest."""
        self._served_in_round = self._scheduler.number
        frames = self.backlog
        rest = frames[FRAMES_PER_PASS:]
        if rest:
            del frames[FRAMES_PER_PASS:]
        self.backlog = []
        taken = self.server.handler.serve_frames(self, frames)
        if self.closed:
            return
        if taken < len(frames):
            rest = frames[taken:] + rest
        if rest:
            self.backlog = rest
            self._wait()
        elif self.decoder.error is not None:
            self.fail(self.decoder.error)

    def _wait(self) -> None:
        """Schedule the backlog for a later round; a peer that does not read must read first."""
        if not self.writing_paused and not self.is_waiting:
            self.is_waiting = True
            self._stop_reading()
            self._scheduler.wait(self)

    def serve_waiting(self) -> None:
        """Serve a pass of the backlog, when the scheduler reaches this connection."""
        self.is_waiting = False
        if self.closed or self.writing_paused:
            return
        self._serve()
        self._read_again()

    def serve_held(self, frames: list[Frame]) -> None:
        """Schedule frames that a handler had held, before those received since."""
        self.backlog = frames + self.backlog
        if self.backlog:
            self._wait()

    def _stop_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _read_again(self) -> None:
        """Resume reading if there is room for more."""
        if self.backlog or self.writing_paused or self.closed:
            return
        self.activity.restart_frame(self._loop.time())
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read responses."""
        self.activity.stall(self._loop.time())
        self._stop_reading()

    def resume_writing(self) -> None:
        """Serve waiting frames, then resume reading."""
        self.activity.recover()
        if self.backlog:
            self._wait()
        else:
            self._read_again()

    def write(self, data: bytes) -> None:
        """Send *data*; a closed peer is not an error.

        uvloop raises on a closed transport, and one exception in a loop that releases many held
        responses would leave the others unanswered.
        """
        transport = self._transport
        if data and not self.closed and transport is not None and not transport.is_closing():
            activity = self.activity
            activity.last_active_s = self._loop.time()
            transport.write(data)
            if activity.stalled_at_s is not None:
                self.server.count_unread(self, len(data))

    def write_parts(self, parts: Sequence[bytes]) -> None:
        """Send *parts* in sequence, as ``write`` does, without copying large ones."""
        size_bytes = sum(map(len, parts))
        if size_bytes < JOINED_BYTES_MAX or len(parts) == 1:
            self.write(b"".join(parts))
            return
        transport = self._transport
        if not self.closed and transport is not None and not transport.is_closing():
            activity = self.activity
            activity.last_active_s = self._loop.time()
            transport.writelines(parts)
            if activity.stalled_at_s is not None:
                self.server.count_unread(self, size_bytes)

    def write_soon(self, parts: Sequence[bytes]) -> None:
        """Send *parts* in one write with all data for this peer from this iteration of the loop.

        A message may release many held pulls of one client.
        """
        if not self._outbox:
            self._loop.call_soon(self._empty_outbox)
        self._outbox += parts

    def _empty_outbox(self) -> None:
        parts, self._outbox = self._outbox, []
        if parts:
            self.write_parts(parts)

    def fail(self, error: ProtocolError) -> None:
        """Close on a peer that violates the protocol, with one log line that says how."""
        if not self.closed:
            log.warning("connection closed", peer=self.peer, reason=str(error))
            self.close()

    def close(self) -> None:
        """Send queued data, then close."""
        self._empty_outbox()
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def close_after_answer(self, reason: str) -> None:
        """Accept no more requests, and close after the current response has been sent."""
        if not self.closed:
            log.info("connection closed", peer=self.peer, reason=reason)
            self.backlog = []
            self._stop_reading()
            self._loop.call_later(_ANSWERED_WITHIN_S, self.close)

    def abort(self, reason: str) -> None:
        """Close at once and drop queued data."""
        if not self.closed:
            log.info("connection closed", peer=self.peer, reason=reason)
            self.closed = True
            if self._transport is not None:
                self._transport.abort()

    @property
    def unread_bytes(self) -> int:
        """Bytes written that the peer has not read yet."""
        if self._transport is None or self.closed:
            return 0
        return self._transport.get_write_buffer_size()

    def notify(self, notice: Notice) -> int:
        """Send a notification as a oneway request; return the size of its body in bytes."""
        code, ext, body = request_of(notice)
        self.send_request(code, ext, body)
        return len(body)

    def send_request(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Send a oneway request to the client."""
        opaque = self._calls.next_opaque()
        command = Command(code=code, opaque=opaque, flag=FLAG_ONEWAY, ext=ext, body=body)
        self.write(encode_command(command))

    async def call(
        self, code: int, ext: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> Command:
        """Send a request to the client and wait for its response.

        Raises:
            TimeoutError: no response came in time.
            ConnectionResetError: the client closed the connection.
        """
        if self.closed:
            raise ConnectionResetError(f"{self.peer} closed the connection")
        opaque = self._calls.next_opaque()
        response = self._calls.expect(opaque)
        self.write(encode_command(Command(code=code, opaque=opaque, ext=ext, body=body)))
        try:
            async with asyncio.timeout(timeout_s):
                return await response
        finally:
            self._calls.forget(opaque)

    def response_received(self, command: Command) -> None:
        """Match a response to the pending call; ignore a late one."""
        self._calls.resolve(command)


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
        self.scheduler = FairScheduler(lambda serve: asyncio.get_running_loop().call_soon(serve))
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

    def stop_listening(self) -> None:
        """Accept no more connections; open ones stay."""
        for open_port in self._open_ports:
            open_port.listener.close()
        self._open_ports.clear()

    def begin_to_close(self) -> None:
        """Stop listening, and close every connection after its queued data is sent."""
        self._is_closing = True
        self.stop_listening()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close()

    async def close(self) -> None:
        """Stop listening and close every connection, after sending queued data."""
        self._is_closing = True
        for open_port in self._open_ports:
            open_port.listener.stop_accepting()
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self.begin_to_close()
        await self.all_gone(CLOSE_TIMEOUT_S)

    def let_in(self, connection: RemotingConnection) -> bool:
        """Admit a new connection here, or in the server that now has this one's ports."""
        server = self
        while server._heir is not None:
            server = server._heir
        connection.server = server
        return not server._is_closing and server.admit(connection)

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


def connection_of(peer: Peer) -> RemotingConnection | None:
    """Return the remoting connection of a peer, or None if it uses another protocol."""
    return cast(RemotingConnection, peer) if hasattr(peer, "send_request") else None
