"""GrpcServer: the gRPC port and its connections."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import structlog

from rockhopper.broker.gateways.grpc.connection import GrpcConnection
from rockhopper.broker.gateways.grpc.service import GrpcService
from rockhopper.broker.server.listening.connections import OpenConnections
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.unfinished import Unfinished
from rockhopper.broker.users.guard import guard_of
from rockhopper.tasks import end_task, run_in_background

log = structlog.get_logger("broker.grpc")

SWEEP_INTERVAL_S = 1.0
SWEPT_PER_TURN = 500
CLOSE_TIMEOUT_S = 1.0
ALPN = "h2"
REQUEST_OVERHEAD_BYTES = 1 << 20


class GrpcServer(OpenConnections[GrpcConnection]):
    """Listens, and tracks the connections."""

    def __init__(
        self, service: GrpcService, *, connections_max: int, message_size_bytes_max: int
    ) -> None:
        super().__init__("grpc", connections_max)
        self.has_users = guard_of(service.access) is not None
        self._unfinished = Unfinished(has_users=self.has_users)
        self.service = service
        self.request_size_bytes_max = message_size_bytes_max + REQUEST_OVERHEAD_BYTES
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_flush: list[GrpcConnection] = []

    async def start_on(self, bound: socket.socket, gate: Gate = OPEN) -> None:
        """Listen on a bound socket, which this server then owns."""
        listener = Listener(
            bound,
            lambda caller: GrpcConnection(self, caller),
            name=self.name,
            gate=gate,
            alpn=(ALPN,),
            has_room=self.has_room,
        )
        await listener.start()
        self._listeners.append(listener)
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep)

    async def stop_listening(self) -> None:
        """Accept no more connections, and no more calls on open ones."""
        self._is_closing = True
        for listener in list(self._listeners):
            await listener.stop()
        self._listeners.clear()
        for connection in list(self.connections):
            connection.leave()

    async def close(self) -> None:
        """Close every connection after sending the queued data."""
        await self.stop_listening()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in list(self._tasks):
            end_task(task)
        # Answers of this iteration of the loop are written in the next one.
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.close()
        await self.all_gone(CLOSE_TIMEOUT_S)

    def count_unfinished(self, size_bytes: int) -> None:
        """Count buffered request data; close the connections that buffer too much if necessary."""
        self._unfinished.count(size_bytes, self.connections)

    def flush_soon(self, connection: GrpcConnection) -> None:
        """Write what *connection* has to send, after the reads of this iteration of the loop."""
        if not self._to_flush:
            connection.loop.call_soon(self._end_turn)
        self._to_flush.append(connection)

    def _end_turn(self) -> None:
        """Store what all connections have sent in this turn, then write the answers to each."""
        try:
            self.service.settle()
        finally:
            connections, self._to_flush = self._to_flush, []
            for connection in connections:
                _flush(connection)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* as its own task, until the server closes."""
        task = run_in_background(work, "a gRPC stream")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def admit(self, connection: GrpcConnection) -> bool:
        """Admit a connection as OpenConnections does, but none while the server closes."""
        return not self._is_closing and super().admit(connection)

    def _sweep(self) -> None:
        self._sweep_piece(list(self.connections), asyncio.get_running_loop().time())

    def _sweep_piece(self, connections: list[GrpcConnection], now_s: float) -> None:
        for connection in connections[-SWEPT_PER_TURN:]:
            reason = connection.find_timeout(now_s)
            if reason is not None:
                connection.abort(reason)
        del connections[-SWEPT_PER_TURN:]
        loop = asyncio.get_running_loop()
        if connections:
            self._sweeper = loop.call_soon(self._sweep_piece, connections, now_s)
        else:
            self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self._sweep)


def _flush(connection: GrpcConnection) -> None:
    try:
        connection.flush()
    except Exception:
        # The others would not be written to again.
        log.exception("the answers of a connection could not be written; it is closed")
        connection.abort("its answers could not be written, see the error next to this line")
