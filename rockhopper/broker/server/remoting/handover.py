"""Splicing: the former master forwards its clients' requests to the new master.

Java clients learn of another master by their routes, every 30 s, and take a refusal for a failure.
So the port keeps listening through a change of roles. Requests are held while the other master
starts, and then forwarded frame by frame; the responses return unchanged, because opaque numbers
are the client's own. The last heartbeat of a connection is sent before its requests, so that the
new master knows its groups.

If a replica becomes the master again while it forwards clients, it serves them itself from then on.
Responses to requests already forwarded still come back by the same connection.

Example: a client has sent requests 1 and 2 when the mastership moves from A to B. A has answered 1,
and holds 2. When B serves, A connects to B, sends the client's last heartbeat and then request 2,
and returns B's response to the client.
"""

import asyncio
from typing import Protocol, cast

import structlog

from rockhopper.broker.server.listening.outgoing import PLAIN, Outgoing
from rockhopper.broker.server.listening.unfinished import Unfinished
from rockhopper.broker.server.remoting.connection import FrameHandler, RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Processor, Request
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.users.guard import guard_of
from rockhopper.protocol.addresses import split_address
from rockhopper.protocol.codes import FLAG_ONEWAY
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame, FrameDecoder, encode_frame
from rockhopper.protocol.names import PROBE_FIELD
from rockhopper.sockets import connect
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.splicing")

HEARTBEAT = "heartbeat"
WAITING_BYTES_MAX = 8 << 20
CONNECT_TIMEOUT_S = 3.0
CONNECT_AGAIN_S = 0.02


def remembering(processor: Processor) -> Processor:
    """Return a HEART_BEAT processor that saves the last one of each connection, to repeat it."""

    def process(request: Request) -> object:
        request.connection.attributes[HEARTBEAT] = request.command
        return processor(request)

    return cast(Processor, process)


class _Held:
    """The held requests of one connection."""

    def __init__(self, connection: RemotingConnection) -> None:
        self._connection = connection
        self.frames: list[Frame] = []
        self.held_bytes = 0

    @property
    def is_known(self) -> bool:
        """Whether its peer is authenticated as a user."""
        return self._connection.is_known

    def hold(self, frames: list[Frame]) -> int:
        """Hold *frames* as well; return their size in bytes."""
        size_bytes = sum(len(header) + len(body) for _, header, body in frames)
        self.frames += frames
        self.held_bytes += size_bytes
        return size_bytes

    def drop_held(self, reason: str) -> None:
        """Drop them, and close at once."""
        self.frames, self.held_bytes = [], 0
        self._connection.abort(reason)


class MasterFinder(Protocol):
    """Knows which broker leads."""

    def master_address(self) -> str:
        """Return the address of the master; blank if there is none, or it is this broker."""


class Handover(FrameHandler):
    """Holds the requests of all connections of a server, then forwards them."""

    def __init__(self, server: Server, outgoing: Outgoing = PLAIN) -> None:
        """Hold all further requests, also on new connections."""
        self._server = server
        self._outgoing = outgoing
        self._held: dict[RemotingConnection, _Held] = {}
        self._unfinished = Unfinished(has_users=guard_of(server.access) is not None)
        self._forwarded: dict[RemotingConnection, _Splice | None] = {}
        """The connections to be forwarded; None while the master is not connected."""
        self._finder: MasterFinder | None = None
        """None unless connections are forwarded."""
        self._codes: frozenset[int] = frozenset()
        server.handle_with(self)

    @property
    def is_holding(self) -> bool:
        """Whether any requests are held."""
        return bool(self._held)

    @property
    def held_bytes(self) -> int:
        """The size of the held requests."""
        return sum(each.held_bytes for each in self._held.values())

    @property
    def has_clients(self) -> bool:
        """Whether any client to be forwarded is connected."""
        return bool(self._server.connections)

    def serve_frames(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        """Hold *frames*, or forward them."""
        splice = self._forwarded.get(connection)
        if splice is not None:
            return splice.pass_on(connection, frames)
        if self._is_undecided(connection) and not _are_for_us(frames, self._codes):
            return self.forward(connection, frames)
        return self._hold(connection, frames)

    def _is_undecided(self, connection: RemotingConnection) -> bool:
        """Return whether a later connection has only sent requests that are not forwarded."""
        return self._finder is not None and connection not in self._forwarded

    def _hold(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        held = self._held.get(connection)
        if held is None:
            held = self._held[connection] = _Held(connection)
        self._unfinished.count(held.hold(frames), self._held.values())
        return len(frames)

    def _take_held(self, connection: RemotingConnection) -> list[Frame]:
        held = self._held.pop(connection, None)
        return [] if held is None else held.frames

    def leave(self) -> None:
        """Take connections and ports from the server, which may then close.

        Requests on new connections are held as well, until ``let_in_by`` or ``come_home``.
        """
        left = self._server
        self._server = Server(
            "splicing", self, connections_max=left.connections_max, access=left.access
        )
        self._take_from(left)

    def let_in_by(self, server: Server) -> None:
        """Pass new connections to *server*, and those that have only sent requests it serves."""
        self._server.give_way_to(server)
        for connection in list(self._server.connections):
            if self._is_undecided(connection):
                self._give(connection, server, self._take_held(connection))

    def recall(self, server: Server) -> None:
        """Hold requests again instead of forwarding them; afterwards *server* may close."""
        self._finder = None
        forwarded, self._forwarded = self._forwarded, {}
        for splice in forwarded.values():
            if splice is not None:
                splice.end_when_answered()
        self._take_from(server)

    def _take_from(self, server: Server) -> None:
        server.give_way_to(self._server)
        for connection in list(server.connections):
            self._adopt(connection)

    def _adopt(self, connection: RemotingConnection) -> None:
        connection.server.connections.discard(connection)
        # The state of the broker's parts for it ends with them.
        connection.on_close.clear()
        self._server.adopt(connection)

    def come_home(self, server: Server) -> None:
        """Pass all connections to *server*, with their held requests, and all new ones."""
        self._server.give_way_to(server)
        for connection in list(self._server.connections):
            heartbeat = _last_heartbeat(connection)
            connection.attributes.clear()
            frames = FrameDecoder().feed(heartbeat) if heartbeat else []
            self._give(connection, server, frames + self._take_held(connection))

    def _give(self, connection: RemotingConnection, server: Server, held: list[Frame]) -> None:
        self._server.connections.discard(connection)
        server.adopt(connection)
        connection.serve_held(held)

    async def splice(self, finder: MasterFinder, codes: frozenset[int] = frozenset()) -> None:
        """Forward everything to the master that *finder* names.

        It is asked again for later connections, and while the address refuses connections. A
        connection that cannot be forwarded for three seconds is closed. A later connection that
        sends only requests of *codes*, such as a replica that probes, waits for ``let_in_by``.
        """
        self._finder, self._codes = finder, codes
        waiting = list(self._server.connections)
        self._forwarded = dict.fromkeys(waiting)
        await asyncio.gather(*(self._pass_on(each, finder) for each in waiting))
        log.info(
            "forwarding clients to the new master",
            to=finder.master_address(),
            connections=sum(splice is not None for splice in self._forwarded.values()),
        )

    async def _pass_on(self, connection: RemotingConnection, finder: MasterFinder) -> None:
        splice = await self._connect(connection, finder)
        if splice is None:
            self.forget(connection)
            return
        self._forwarded[connection] = splice
        splice.write(_last_heartbeat(connection))
        held = self._take_held(connection)
        splice.pass_on(connection, held)

    def forget(self, connection: RemotingConnection) -> None:
        """Forget a connection that is not forwarded any more."""
        self._forwarded.pop(connection, None)

    async def _connect(
        self, connection: RemotingConnection, finder: MasterFinder
    ) -> "_Splice | None":
        """Return a connection to the master for *connection*; None if it needs none any more."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CONNECT_TIMEOUT_S
        while not connection.closed and self._finder is not None:
            host, port = split_address(finder.master_address())
            try:
                if port is None:
                    raise ConnectionRefusedError("no other replica leads")
                options = self._outgoing.options(host)
                connected = await connect(host, port, max(deadline_s - loop.time(), 0))
                _, splice = await loop.create_connection(
                    lambda: _Splice(self, connection), sock=connected, **options
                )
            except OSError as error:
                if loop.time() >= deadline_s:
                    connection.abort(f"the new master cannot be reached: {error}")
                    return None
                await asyncio.sleep(CONNECT_AGAIN_S)
                continue
            if self._finder is not None:
                return splice
            splice.end_when_answered()
        return None

    def forward(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        """Hold *frames* of a later connection, and forward it once the master is connected."""
        self._adopt(connection)
        if self._finder is not None:
            self._forwarded[connection] = None
            run_in_background(self._pass_on(connection, self._finder), "passing a connection on")
        return self._hold(connection, frames)

    def close(self) -> None:
        """Close every forwarded connection: its client then looks up the master.

        A port that no other server has taken over is closed.
        """
        for splice in list(self._forwarded.values()):
            if splice is not None:
                splice.close()
        self._server.begin_to_close()


def _last_heartbeat(connection: RemotingConnection) -> bytes:
    heartbeat = connection.attributes.get(HEARTBEAT)
    if not isinstance(heartbeat, Command):
        return b""
    heartbeat.flag |= FLAG_ONEWAY
    return encode_command(heartbeat)


class _Splice(asyncio.Protocol):
    """The connection to the new master for one client."""

    def __init__(self, handover: Handover, client: RemotingConnection) -> None:
        self._handover = handover
        self._is_over = False
        self._client = client
        self._decoder = FrameDecoder()
        self._asked: set[int] = set()
        """Opaque numbers of unanswered requests."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._client.on_close.append(lambda _peer: self.close())

    def data_received(self, data: bytes) -> None:
        # Whole frames only: this broker's responses may go to the client in between.
        frames = self._decoder.feed(data)
        self._client.write(b"".join(encode_frame(*frame) for frame in frames))
        self._asked -= {command.opaque for command in map(_header, frames) if command.is_response}
        self._end_if_answered()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_over:
            self._handover.forget(self._client)
            self._client.close()

    def end_when_answered(self) -> None:
        """Forward nothing more, and close, without the client, when all is answered."""
        self._is_over = True
        self._end_if_answered()

    def _end_if_answered(self) -> None:
        if self._is_over and not self._asked and self._transport is not None:
            self._transport.close()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)

    def pass_on(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        """Forward the client's frames."""
        assert self._transport is not None
        self._asked |= {
            command.opaque for command in map(_header, frames) if not command.flag & FLAG_ONEWAY
        }
        self.write(b"".join(encode_frame(*frame) for frame in frames))
        if self._transport.get_write_buffer_size() > WAITING_BYTES_MAX:
            connection.abort("the new master does not read what this client sends")
        return len(frames)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Forwarding(FrameHandler):
    """A handler that serves some codes by another handler, and forwards connections otherwise.

    The first request of another code makes it forward the connection. A replica that asks whether
    this one leads is not forwarded: its own clients wait for the response, and the request would
    wait with them if it were forwarded to the replica itself.
    """

    def __init__(self, known: FrameHandler, handover: Handover, codes: frozenset[int]) -> None:
        """Serve *codes* by *known*, and forward other connections by *handover*."""
        self._known = known
        self._handover = handover
        self._codes = codes

    def serve_frames(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        """Serve *frames*, or forward their connection."""
        if _are_for_us(frames, self._codes):
            return self._known.serve_frames(connection, frames)
        return self._handover.forward(connection, frames)


def _are_for_us(frames: list[Frame], codes: frozenset[int]) -> bool:
    return all(_is_for_us(frame, codes) for frame in frames)


def _is_for_us(frame: Frame, codes: frozenset[int]) -> bool:
    command = _header(frame)
    return command.code in codes or PROBE_FIELD in (command.ext or {})


def _header(frame: Frame) -> Command:
    """Return a header; an unreadable one becomes a oneway request with an unknown code."""
    try:
        return decode_header(*frame)
    except MalformedHeaderError:
        return Command(code=-1, flag=FLAG_ONEWAY)
