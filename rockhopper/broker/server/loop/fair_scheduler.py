"""FairScheduler: serves the frames of all connections in turns, so that none delays the others.

A turn is one iteration of the event loop. What was read from all connections in one iteration is
served at the beginning of the next one, before anything else is read: first the sends and pulls of
all, whose messages are written to the log together, then one pass of the other frames of each
connection. So a hundred connections with one request each cost one write to the log, and nothing
waits for a timer.

A connection that had the last turn for itself, and sends one request, is served as soon as it is
read, if no other is scheduled: the next turn would have nothing else to serve.

    PASS_S           the time of what a turn serves together, and of its passes, up to a request
    GROUP_MAX        connections that are served together, between two looks at the clock
    FRAMES_PER_PASS  frames of one connection between two looks at the clock
    PASS_BYTES_MAX   the bytes of responses after which a pass ends

Connections that a turn did not reach come first in the next one; those with frames left come last.
In between the loop reads, writes and runs the timers of all others. A connection that was read
twice is not read again until it is served, so it holds two reads at most.

Example: connection 1 sends 1,000 queries in one read, connection 2 one. The first turn serves 256
of connection 1, then the one of connection 2; the next turns serve the others.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from rockhopper.protocol.frame import Frame

log = structlog.get_logger("broker.server")

GROUP_MAX = 384
FRAMES_PER_PASS = 256
PASS_S = 0.005
PASS_BYTES_MAX = 1 << 20


class ScheduledConnection(Protocol):
    """A connection with frames to be served."""

    is_scheduled: bool
    closed: bool
    backlog: list[Frame]
    writing_paused: bool
    """Whether its peer must read before it is served."""
    is_waiting: bool
    """Whether it must be served even without frames, to read again."""

    @property
    def server(self) -> object:
        """The server that it belongs to now."""

    def serve(self) -> None:
        """Serve one pass of its frames, or read again if there are none."""

    def abort(self, reason: str) -> None:
        """Close at once."""


Connection = TypeVar("Connection", bound=ScheduledConnection)
_Served = TypeVar("_Served", contravariant=True)


class TurnHandler(Protocol[_Served]):
    """The handler of a server's frames."""

    def serve_together(self, connections: Sequence[_Served], has_time: Callable[[], bool]) -> None:
        """Serve the sends and pulls of many connections together, while there is time."""


class ScheduledServer(Protocol[_Served]):
    """The server whose connections take turns."""

    @property
    def handler(self) -> TurnHandler[_Served]:
        """Serves the frames of its connections."""


class FairScheduler(Generic[Connection]):
    """The turns of one server. Belongs to the event loop's thread."""

    def __init__(
        self,
        server: ScheduledServer[Connection],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._server = server
        # Found at the first turn: to look it up costs a system call.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clock = clock
        self._scheduled: list[Connection] = []
        self.alone: Connection | None = None
        """The only connection of the last turn; None if it had more."""
        self._ends_at_s = 0.0
        self._is_due = False

    def schedule(self, connection: Connection) -> None:
        """Serve *connection* in the next turn."""
        connection.is_scheduled = True
        self._scheduled.append(connection)
        if not self._is_due:
            self._request_turn()

    def serve_or_schedule(self, connection: Connection) -> None:
        """Serve *connection*, which has just been read, at once if it is alone."""
        if (
            connection is not self.alone
            or self._scheduled
            or len(connection.backlog) > 1
            or connection.closed
            or connection.writing_paused
            or connection.server is not self._server
        ):
            self.schedule(connection)
            return
        self._ends_at_s = self._clock() + PASS_S
        self._serve_group([connection])
        if connection.backlog:
            self._serve(connection)

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        if connection is self.alone:
            self.alone = None

    def _request_turn(self) -> None:
        self._is_due = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._serve_turn)

    def _has_time(self) -> bool:
        return self._clock() < self._ends_at_s

    def _serve_turn(self) -> None:
        self._is_due = False
        self._ends_at_s = self._clock() + PASS_S
        reached = self._serve_groups()
        # Many sends must not keep the other requests waiting.
        self._ends_at_s = self._clock() + PASS_S
        self.alone = reached[0] if len(reached) == 1 and not self._scheduled else None
        served = 0
        try:
            for connection in reached:
                served += 1
                if connection.backlog or connection.is_waiting:
                    self._serve(connection)
                    if not self._has_time():
                        break
        finally:
            if served < len(reached):
                self._schedule_first(reached[served:])
            if self._scheduled and not self._is_due:
                self._request_turn()

    def _serve_groups(self) -> list[Connection]:
        """Serve sends and pulls while there is time; return the connections that were reached.

        The others stay scheduled, and cost nothing until they are reached.
        """
        # Another server may have adopted a connection.
        server = self._server
        reached: list[Connection] = []
        count = len(self._scheduled)
        while len(reached) < count:
            group = self._scheduled[: min(GROUP_MAX, count - len(reached))]
            del self._scheduled[: len(group)]
            reached += group
            for connection in group:
                connection.is_scheduled = False
            ready = [
                connection
                for connection in group
                if connection.backlog
                and not (connection.closed or connection.writing_paused)
                and connection.server is server
            ]
            self._serve_group(ready)
            if not self._has_time():
                break
        return reached

    def _serve_group(self, ready: Sequence[Connection]) -> None:
        try:
            self._server.handler.serve_together(ready, self._has_time)
        except Exception:
            # Alone, only the connection that causes it is closed.
            log.exception("the sends of a turn failed; serving each connection alone")

    def _schedule_first(self, unreached: list[Connection]) -> None:
        """Schedule those of *unreached* that have anything to be served, before all others."""
        first = [
            connection
            for connection in unreached
            if (connection.backlog or connection.is_waiting)
            and not (connection.closed or connection.is_scheduled)
        ]
        for connection in first:
            connection.is_scheduled = True
        self._scheduled[:0] = first

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        except BaseException:
            # Otherwise it would never be scheduled again, nor read.
            connection.abort("a request failed, see the error next to this line")
            raise
