"""A peer with scripted answers: it plays broker and name server on a free port."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Self

from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.sockets import close_server

Answer = Command | None
Handler = Callable[[Command], Answer | Awaitable[Answer]]


class FakeServer:
    """Answers requests by code.

    A handler returns the answer, None for none, or an awaitable of either. All requests are in
    `requests`. `echoes_rh` makes it a Rockhopper that negotiates msgpack headers.
    """

    def __init__(self, *, echoes_rh: bool = False) -> None:
        self.requests: list[Command] = []
        self.connections: list[_Peer] = []
        self.handlers: dict[int, Handler] = {}
        self.echoes_rh = echoes_rh
        self.arrived = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self.answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self.answering):
            task.cancel()
        await asyncio.gather(*self.answering, return_exceptions=True)
        await self.stop_listening()
        self.drop_connections()
        for peer in list(self.connections):
            await peer.gone

    async def stop_listening(self) -> None:
        if self._server is not None:
            await close_server(self._server)

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def on(self, code: int, handler: Handler) -> None:
        self.handlers[int(code)] = handler

    def serve_routes(self, routes: dict[str, dict[str, object]]) -> None:
        """Answer route look-ups from this mapping; it may be changed later."""

        def look_up(request: Command) -> Command:
            assert request.ext is not None
            data = routes.get(request.ext["topic"])
            if data is None:
                return Command(17, remark="No topic route info in name server for the topic")
            return Command(0, body=json.dumps(data, separators=(",", ":")).encode())

        self.on(105, look_up)
        self.on(106, lambda _request: Command(3, remark="this name server keeps no clusters"))

    def requests_of(self, code: int) -> list[Command]:
        return [request for request in self.requests if request.code == code]

    async def wait_for(self, code: int, count: int = 1) -> list[Command]:
        """Wait until this many requests of this code have come."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests_of(code)) >= count)
        return self.requests_of(code)

    def drop_connections(self) -> None:
        for peer in list(self.connections):
            peer.transport.abort()

    def take(self, peer: "_Peer", request: Command) -> None:
        self.requests.append(request)
        task = asyncio.get_running_loop().create_task(self._answer(peer, request))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    async def _answer(self, peer: "_Peer", request: Command) -> None:
        async with self.arrived:
            self.arrived.notify_all()
        handler = self.handlers.get(request.code)
        answer: Answer = Command(3, remark=f" request type {request.code} not supported")
        if handler is not None:
            result = handler(request)
            answer = await result if isinstance(result, Awaitable) else result
        if answer is None or request.flag & FLAG_ONEWAY:
            return
        answer.opaque = request.opaque
        answer.flag = FLAG_RESPONSE
        answer.serialize_type = request.serialize_type
        if self.echoes_rh and request.ext and request.ext.get("rh") == "1":
            answer.ext = {**(answer.ext or {}), "rh": "1"}
        if not peer.transport.is_closing():
            peer.transport.write(encode_command(answer))


class _Peer(asyncio.Protocol):
    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.decoder = FrameDecoder()
        self.answers: asyncio.Queue[Command] = asyncio.Queue()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.remove(self)
        self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        for serialize_type, header, body in self.decoder.feed(data):
            command = decode_header(serialize_type, header, body)
            if command.flag & FLAG_RESPONSE:
                self.answers.put_nowait(command)
            else:
                self.server.take(self, command)

    async def ask(self, command: Command) -> Command:
        """Send a request to the client and return its answer."""
        self.transport.write(encode_command(command))
        return await self.answers.get()


def route(
    brokers: dict[str, str], *, queues: int = 4, perm: int = 6, write_queues: int | None = None
) -> dict[str, object]:
    """Return route data: broker name -> address of its master."""
    return {
        "brokerDatas": [
            {"brokerAddrs": {"0": address}, "brokerName": name, "cluster": "DefaultCluster"}
            for name, address in brokers.items()
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": name,
                "perm": perm,
                "readQueueNums": queues,
                "topicSysFlag": 0,
                "writeQueueNums": queues if write_queues is None else write_queues,
            }
            for name in brokers
        ],
    }
