"""Splicing: clients of a broker that hands over go on, over it, with the broker that takes over.

Java clients learn of another master by their routes, each 30 s, and take a refusal for a failure.
So their requests are held while the other begins, and then passed on, frame by frame, with the
answers coming back as they are: opaque numbers are the client's own. The last heartbeat of a
connection goes ahead of its requests, so that the new master knows its groups.

A replica that leads again while it passes clients on serves them itself from then on; what they had
asked the other master is answered over the way that it went.
"""

import asyncio
from typing import cast

import structlog

from rockhopper.broker.remoting.dispatcher import Processor, Request
from rockhopper.broker.remoting.server import Connection, FrameHandler, Server
from rockhopper.protocol.addresses import split_address
from rockhopper.protocol.codes import FLAG_ONEWAY
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame, FrameDecoder, encode_frame
from rockhopper.protocol.names import PROBE_FIELD

log = structlog.get_logger("broker.splicing")

HEARTBEAT = "heartbeat"
WAITING_BYTES_MAX = 8 << 20


def remembering(processor: Processor) -> Processor:
    """A HEART_BEAT processor that keeps the last one of each connection, to be said again."""

    def process(request: Request) -> object:
        request.connection.attributes[HEARTBEAT] = request.command
        return processor(request)

    return cast(Processor, process)


class Handover:
    """Holds the requests of all connections of a server, then passes them on."""

    def __init__(self, server: Server) -> None:
        """Hold from now on what comes, on connections that are to come as well."""
        self._server = server
        self._held: dict[Connection, list[Frame]] = {}
        self._splices: set[_Splice] = set()
        self._address = ""
        server.handle_with(self._hold)

    def _hold(self, connection: Connection, frames: list[Frame]) -> int:
        self._held.setdefault(connection, []).extend(frames)
        return len(frames)

    def leave(self) -> None:
        """Take the connections away from the server, which may close then."""
        left, self._server = self._server, Server("splicing", self._hold, connections_max=0)
        self._take_from(left)

    def recall(self, server: Server) -> None:
        """Pass nobody on any more, but hold; and hold the clients of *server*, which may close."""
        self._address = ""
        for splice in self._splices:
            splice.is_over = True
        self._take_from(server)
        self._server.handle_with(self._hold)

    def _take_from(self, server: Server) -> None:
        for connection in list(server.connections):
            self._adopt(connection)

    def _adopt(self, connection: Connection) -> None:
        connection.server.connections.discard(connection)
        # What the broker's parts keep of it ends with them.
        connection.on_close.clear()
        self._server.adopt(connection)

    def come_home(self, server: Server) -> None:
        """Have *server* serve all of them, beginning with what was held."""
        for connection in list(self._server.connections):
            self._server.connections.discard(connection)
            server.adopt(connection)
            connection.handler = server.handler
            heartbeat = _last_heartbeat(connection)
            connection.attributes.clear()
            frames = FrameDecoder().feed(heartbeat) if heartbeat else []
            connection.serve_held(frames + self._held.pop(connection, []))

    async def splice(self, address: str) -> None:
        """Pass everything on to the broker at *address*.

        Connections that cannot be passed on are closed.
        """
        self._address = address
        waiting = list(self._server.connections)
        await asyncio.gather(*(self._pass_on(each) for each in waiting))
        log.info("clients are passed on", to=address, connections=len(self._splices))

    async def _pass_on(self, connection: Connection) -> None:
        if connection.closed:
            return
        host, port = split_address(self._address)
        assert port is not None
        loop = asyncio.get_running_loop()
        try:
            _, splice = await loop.create_connection(lambda: _Splice(connection), host, port)
        except OSError as error:
            if self._address:
                connection.abort(f"the new master at {self._address} cannot be reached: {error}")
            return
        if not self._address:
            splice.is_over = True
            splice.close()
            return
        self._splices.add(splice)
        splice.write(_last_heartbeat(connection))
        held = self._held.pop(connection, [])
        splice.pass_on(connection, held)
        connection.handler = splice.pass_on

    def take(self, connection: Connection, frames: list[Frame]) -> int:
        """A handler for connections that come later: hold, and pass on."""
        self._adopt(connection)
        connection.handler = self._hold
        asyncio.get_running_loop().create_task(self._pass_on(connection))
        return self._hold(connection, frames)

    def close(self) -> None:
        """Close every connection that is passed on: its client looks for the master anew."""
        splices, self._splices = self._splices, set()
        for splice in splices:
            splice.close()
        for connection in list(self._server.connections):
            connection.close()


def _last_heartbeat(connection: Connection) -> bytes:
    heartbeat = connection.attributes.get(HEARTBEAT)
    if not isinstance(heartbeat, Command):
        return b""
    heartbeat.flag |= FLAG_ONEWAY
    return encode_command(heartbeat)


class _Splice(asyncio.Protocol):
    """The other end of one client's connection."""

    def __init__(self, client: Connection) -> None:
        self.is_over = False
        """Whether the client is served by this broker again, and only answers come here."""
        self._client = client
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._client.on_close.append(lambda _peer: self.close())

    def data_received(self, data: bytes) -> None:
        # Whole frames only: the client may get answers of this broker in between.
        self._client.write(b"".join(encode_frame(*frame) for frame in self._decoder.feed(data)))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_over:
            self._client.close()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)

    def pass_on(self, connection: Connection, frames: list[Frame]) -> int:
        """A handler of the client's frames."""
        assert self._transport is not None
        self.write(b"".join(encode_frame(*frame) for frame in frames))
        if self._transport.get_write_buffer_size() > WAITING_BYTES_MAX:
            connection.abort("the new master does not read what this client sends")
        return len(frames)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def passed_on_unless(
    known: FrameHandler, handover: Handover, codes: frozenset[int]
) -> FrameHandler:
    """Serve requests of *codes* with *known*, and pass a connection on by its first other one.

    Not so a replica that asks whether this one leads: its clients wait for that, and what it asks
    would wait with them if this one still passed it on to it.
    """

    def handle(connection: Connection, frames: list[Frame]) -> int:
        if all(_is_for_us(frame, codes) for frame in frames):
            return known(connection, frames)
        return handover.take(connection, frames)

    return handle


def _is_for_us(frame: Frame, codes: frozenset[int]) -> bool:
    try:
        command = decode_header(*frame)
    except MalformedHeaderError:
        return False
    return command.code in codes or PROBE_FIELD in (command.ext or {})
