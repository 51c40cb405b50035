"""Rounds: one connection that pipelines keeps nobody waiting for longer than one pass.

A round is one turn of the event loop. In each a connection has one pass of frames served:

    FRAMES_PER_PASS   frames of one connection; what was read beyond them waits
    PASS_S            a pass ends behind the request that it is at after so long
    PASS_BYTES_MAX    or behind so many bytes of answers
    FRAMES_PER_ROUND  frames of all connections that are served as they are read; reads beyond
                      them wait, unless they are small (FRAMES_OF_SMALL_READ)

What waits is served in later rounds, the connections in the order of their waiting, in between the
reads, writes and timers of all others. Nothing is read from a connection that waits, so it holds
one read at most.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

# A pass of 16 clients with 64 sends under way each is never cut.
FRAMES_PER_PASS = 256
FRAMES_PER_ROUND = 1024
PASS_S = 0.005
PASS_BYTES_MAX = 1 << 20
# So few frames in so few bytes are served as they are read, and cost no accounting.
FRAMES_OF_SMALL_READ = 16
SMALL_READ_BYTES = 64 << 10


class Waiting(Protocol):
    """A connection with frames that wait."""

    def serve_waiting(self) -> None:
        """Serve one pass of them."""

    def abort(self, reason: str) -> None:
        """Close at once."""


class Rounds:
    """Who is served in which round. Belongs to the event loop's thread."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._waiting: deque[Waiting] = deque()
        self._frames_left = FRAMES_PER_ROUND
        self._ends = False
        self.number = 0
        """The round that the loop is in."""

    def admit(self, last_number: int, frame_count: int) -> bool:
        """Whether a read of *frame_count* is served at once.

        *last_number* is the round in which its connection was served last.
        """
        self._end_soon()
        if last_number == self.number or self._frames_left <= 0:
            return False
        self._frames_left -= min(frame_count, FRAMES_PER_PASS)
        return True

    def wait(self, connection: Waiting) -> None:
        """Have *connection* served in a later round."""
        self._waiting.append(connection)
        self._end_soon()

    def _end_soon(self) -> None:
        if not self._ends:
            self._ends = True
            self._call_soon(self._next)

    def _next(self) -> None:
        """Begin a round with those that wait, each once, until a pass's time is over."""
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

    def _serve(self, connection: Waiting) -> None:
        try:
            connection.serve_waiting()
        except BaseException:
            # Nobody would take its turn again, nor read from it.
            connection.abort("a request failed, see the error beside this line")
            raise
