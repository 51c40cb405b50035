"""Splicing: clients of a broker that hands over go on, over it, with the broker that takes over.

Java clients learn of another master by their routes, each 30 s, and take a refusal for a failure.
So their requests are held while the other begins, and then passed on, frame by frame, with the
answers coming back as they are: opaque numbers are the client's own. The last heartbeat of a
connection goes ahead of its requests, so that the new master knows its groups.
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
from rockhopper.protocol.frame import Frame, encode_frame

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
        for connection in list(left.connections):
            left.connections.discard(connection)
            self._server.adopt(connection)

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
            connection.abort(f"the new master at {self._address} cannot be reached: {error}")
            return
        self._splices.add(splice)
        heartbeat = connection.attributes.get(HEARTBEAT)
        if isinstance(heartbeat, Command):
            heartbeat.flag |= FLAG_ONEWAY
            splice.write(encode_command(heartbeat))
        held = self._held.pop(connection, [])
        splice.pass_on(connection, held)
        connection.handler = splice.pass_on

    def take(self, connection: Connection, frames: list[Frame]) -> int:
        """A handler for connections that come later: hold, and pass on."""
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


class _Splice(asyncio.Protocol):
    """The other end of one client's connection."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._client.on_close.append(lambda _peer: self.close())

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
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
    """Serve requests of *codes* with *known*, and pass a connection on by its first other one."""

    def handle(connection: Connection, frames: list[Frame]) -> int:
        if all(_code_of(frame) in codes for frame in frames):
            return known(connection, frames)
        return handover.take(connection, frames)

    return handle


def _code_of(frame: Frame) -> int:
    try:
        return decode_header(*frame).code
    except MalformedHeaderError:
        return -1
