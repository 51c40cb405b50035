"""FairScheduler: a connection with many requests in flight delays others by one pass at most.

A round is one iteration of the event loop. In each round, one pass of frames is served for a
connection:

    FRAMES_PER_PASS   frames of one connection; further frames of the read wait
    PASS_S            the time after which a pass ends, after its current request
    PASS_BYTES_MAX    the bytes of responses after which it ends
    FRAMES_PER_ROUND  frames of all connections that are served as they are read; further reads
                      wait, unless they are small (FRAMES_OF_SMALL_READ)

Waiting frames are served in later rounds: connections take turns, in the order in which they began
to wait, between the reads, writes and timers of all others. Nothing is read from a waiting
connection, so it holds one read at most.

Example: connection 1 sends 1,000 frames in one read. The first 256 are served at once, then
connection 2 is read and served; in each of the next rounds connection 1 gets one more pass.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

# A pass of 16 clients with 64 pending sends each is never cut.
FRAMES_PER_PASS = 256
FRAMES_PER_ROUND = 1024
PASS_S = 0.005
PASS_BYTES_MAX = 1 << 20
# Up to this many frames in this many bytes are served at once, and not counted.
FRAMES_OF_SMALL_READ = 16
SMALL_READ_BYTES = 64 << 10


class WaitingConnection(Protocol):
    """A connection with frames that wait."""

    def serve_waiting(self) -> None:
        """Serve one pass of them."""

    def abort(self, reason: str) -> None:
        """Close at once."""


class FairScheduler:
    """The scheduler of passes. Belongs to the event loop's thread."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._waiting: deque[WaitingConnection] = deque()
        self._frames_left = FRAMES_PER_ROUND
        self._ends = False
        self.number = 0
        """The number of the present round."""

    def admit(self, last_number: int, frame_count: int) -> bool:
        """Return whether a read of *frame_count* frames is served at once.

        *last_number* is the round in which its connection was last served.
        """
        self._end_soon()
        if last_number == self.number or self._frames_left <= 0:
            return False
        self._frames_left -= min(frame_count, FRAMES_PER_PASS)
        return True

    def wait(self, connection: WaitingConnection) -> None:
        """Schedule *connection* for a later round."""
        self._waiting.append(connection)
        self._end_soon()

    def _end_soon(self) -> None:
        if not self._ends:
            self._ends = True
            self._call_soon(self._next)

    def _next(self) -> None:
        """Begin a round with the waiting connections, each once, within the time of a pass."""
        self.number += 1
        self._frames_left = FRAMES_PER_ROUND
        self._ends = False
        ends_at_s = self._clock() + PASS_S
        try:
            for _ in range(len(self._waiting)):
                self._serve(self._waiting.popleft())
                if self._clock() >= ends_at_s:
                    break
        finally:
            if self._waiting:
                self._end_soon()

    def _serve(self, connection: WaitingConnection) -> None:
        try:
            connection.serve_waiting()
        except BaseException:
            # Otherwise it would never be scheduled again, nor read.
            connection.abort("a request failed, see the error next to this line")
            raise
