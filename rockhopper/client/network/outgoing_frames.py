"""OutgoingFrames: the frames that a connection sends, and the senders that wait for a slow peer.

All frames of one event loop iteration leave in one write. A frame leaves at once if no request is
in flight and the previous frame left alone. Frames that are written while the connection handles
received data leave when it has handled all of it.

If one iteration sends more than 256 KiB, the data is written before its end: then the transport
reports whether the peer accepts it. Until it does, later senders wait and continue in order of
arrival.
"""

import asyncio
from collections import deque

from rockhopper.client.network.in_flight_requests import InFlightRequests

_SIZE_BYTES_MAX = 256 * 1024
STALL_NOTED_S = 0.05
"""If the loop was busy for this long, the time is added to the timeouts of waiting requests."""


class OutgoingFrames:
    """The frames of one connection; those written before `open` and after its end are dropped."""

    def __init__(self, pending: InFlightRequests) -> None:
        self._pending = pending
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames: list[bytes] = []
        self._size_bytes = 0
        self._since_s = 0.0
        self._comes_alone = False
        self.is_held = False
        """Whether `release` will write the frames."""
        self._is_paused = False
        self.is_writable = True
        """False while the peer reads more slowly than the client sends."""
        # The senders that wait to write, and how many bytes each has.
        self._writers: deque[tuple[asyncio.Future[None], int]] = deque()

    def open(self, transport: asyncio.Transport) -> None:
        """Write to *transport* from now on."""
        self._transport = transport

    async def wait_writable(self, size_bytes: int = 0) -> None:
        """Wait until the peer has accepted earlier data, including that of earlier waiters.

        The caller may then write `size_bytes`, before it awaits anything else.
        """
        if not self.is_writable:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._writers.append((turn, size_bytes))
            await turn

    def write(self, frame: bytes) -> None:
        """Send a frame, by the end of this iteration of the event loop."""
        frames = self._frames
        if not frames:
            if self._comes_alone and not self._pending and self._transport is not None:
                self._transport.write(frame)
                return
            self._since_s = self._loop.time()
            if not self.is_held:
                self._loop.call_soon(self.flush)
        frames.append(frame)
        self._size_bytes += len(frame)
        if self._size_bytes > _SIZE_BYTES_MAX:
            self.flush()

    def release(self) -> None:
        """Write the frames that were held."""
        self.is_held = False
        if self._frames:
            self.flush()

    def flush(self) -> None:
        """Write the frames that have not left yet."""
        frames = self._frames
        if not frames:
            return
        self._frames = []
        self._size_bytes = 0
        self._comes_alone = len(frames) == 1
        now_s = self._loop.time()
        waited_s = now_s - self._since_s
        if waited_s >= STALL_NOTED_S:
            self._pending.extend_newest(len(frames), waited_s, now_s)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def pause(self) -> None:
        """Have senders wait: the peer does not accept the data."""
        self._is_paused = True
        self.is_writable = False

    def resume(self) -> None:
        """Admit the senders that wait: the peer has accepted the data."""
        self._is_paused = False
        self._admit()

    def _admit(self) -> None:
        """Admit waiters for as many bytes as one write takes, then see if the peer accepts them."""
        admitted_bytes = 0
        while self._writers and not self._is_paused:
            if admitted_bytes > _SIZE_BYTES_MAX:
                self._loop.call_soon(self._admit)
                return
            turn, size_bytes = self._writers.popleft()
            if not turn.done():
                turn.set_result(None)
                admitted_bytes += size_bytes
        self.is_writable = not self._is_paused

    def release_writers(self) -> None:
        """Let all waiting senders go on: their requests fail with the connection."""
        self._is_paused = False
        self.is_writable = True
        for turn, _ in self._writers:
            if not turn.done():
                turn.set_result(None)
        self._writers.clear()
