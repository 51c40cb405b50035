"""One connection between replicas: decodes frames, and writes without blocking."""

import asyncio
from collections import deque
from typing import Protocol, cast

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.wire import WireError
from rockhopper.broker.server.listening.unfinished import Unfinished

# The stream may send some frames ahead before it waits for its follower.
UNSENT_BYTES_MAX = 1 << 20


class LinkAcceptor(Protocol):
    """Accepts connections of other replicas."""

    def connected(self, link: "Link") -> None:
        """Greet a new connection."""


class FrameReceiver(Protocol):
    """Receives the frames of connections."""

    def received(self, link: "Link", frame: wire.Frame) -> None:
        """Handle one frame; any exception ends the connection."""


class Link(asyncio.Protocol):
    """One connection; it delivers frames in the loop iteration that reads them.

    During the greeting, ``next_frame`` returns single frames, and the peer must wait for an answer
    to each. From ``frames`` on, it delivers all frames to a receiver.
    """

    def __init__(
        self,
        number: int,
        acceptor: LinkAcceptor | None = None,
        greeting: "GreetingConnections | None" = None,
    ) -> None:
        """*acceptor* greets it once it is connected.

        *greeting* tracks connections that are being greeted.
        """
        self._greeting = greeting
        self.number = number
        self.peer = self.host = ""
        self._acceptor = acceptor
        self._transport: asyncio.Transport | None = None
        self._decoder = wire.WireDecoder(is_greeting=greeting is not None)
        self._receiver: FrameReceiver | None = None
        self._frames: deque[wire.Frame] = deque()
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # uvloop's transports behave like asyncio's but are not subclasses.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        name = transport.get_extra_info("peername")
        self.peer, self.host = str(name), str(name[0]) if isinstance(name, tuple) else str(name)
        if self._acceptor is not None:
            self._acceptor.connected(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._ended.is_set():
            return
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except Exception as error:
            self._end(error)
        if self._greeting is not None and self.held_bytes:
            self._greeting.count(self, len(data))

    @property
    def held_bytes(self) -> int:
        """The buffered size of an incomplete frame during the greeting; 0 afterwards."""
        return self._decoder.held_bytes if self._decoder.is_greeting else 0

    @property
    def is_known(self) -> bool:
        """Whether the peer has proved the secret."""
        return not self._decoder.is_greeting

    def drop_held(self, reason: str) -> None:
        """Drop the buffer and close at once."""
        self._decoder.forget()
        self._end(WireError(reason))
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol; the cause of the loss does not matter."""
        self._writable.set()
        self._end(None)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable.set()

    def _take(self, frame: wire.Frame) -> None:
        if self._receiver is not None:
            self._receiver.received(self, frame)
        elif self._frames:
            raise WireError("more than one frame at once while greeting")
        else:
            self._frames.append(frame)
            self._news.set()

    def _end(self, error: Exception | None) -> None:
        if self._greeting is not None:
            self._greeting.discard(self)
        if not self._ended.is_set():
            self._error = error
            self._ended.set()
            self._news.set()

    # Called by the replica.

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether the send buffer is full: the peer reads too slowly."""
        return not self._writable.is_set()

    def send(self, *parts: bytes) -> None:
        """Send in order after earlier data; does nothing after ``close``."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(parts)

    async def drain(self) -> None:
        """Wait until the send buffer has room, or the connection is lost."""
        await self._writable.wait()

    def close(self) -> None:
        """Close after sending the buffered data."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, dropping the buffered data."""
        if self._transport is not None:
            self._transport.abort()

    async def frames(self, receiver: FrameReceiver) -> None:
        """Deliver every frame to *receiver* until the connection ends.

        Raises:
            WireError: the peer sent an invalid frame.
            Exception: *receiver* raised it; later frames are dropped.
        """
        self._receiver = receiver
        self._decoder.is_greeting = False
        if self._greeting is not None:
            self._greeting.discard(self)
        while self._frames:
            receiver.received(self, self._frames.popleft())
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    async def next_frame(self) -> wire.Frame:
        """Return the single frame that the peer sends before it waits for an answer.

        Raises:
            WireError: the frame is invalid, or the connection ended.
        """
        while not self._frames and not self._ended.is_set():
            self._news.clear()
            await self._news.wait()
        if self._error is not None:
            raise self._error
        if not self._frames:
            raise WireError("the connection ended while greeting")
        return self._frames.popleft()


class GreetingConnections:
    """The connections of a port that are still being greeted, and their buffered sizes."""

    def __init__(self) -> None:
        self._links: set[Link] = set()
        self._unfinished = Unfinished(has_users=True)

    def count(self, link: Link, size_bytes: int) -> None:
        """Count data that *link* has buffered.

        If all together buffer too much, close some of the connections.
        """
        self._links.add(link)
        self._unfinished.count(size_bytes, list(self._links))

    def discard(self, link: Link) -> None:
        """Stop tracking a connection that was greeted or has ended."""
        self._links.discard(link)
