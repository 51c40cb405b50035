"""RemotingConnection: one peer of a broker or name server.

A connection splits incoming bytes into frames, keeps them until the turn of the event loop in which
its server's handler serves them, and protects the process against its peer:

    a malformed frame or header          closed, one log line
    no frame within 10 s of connecting   closed
    a frame incomplete for 30 s          closed (a peer that sends byte by byte)
    nothing sent or received for 120 s   closed, as RocketMQ does
    incomplete frames                    closed beyond a budget, see HalfFrames in server.py
    unread responses                     reading stops; closed at 64 MiB or after 30 s without
                                         progress, and the slowest at 512 MiB of all together
    more than one read in a turn         reading stops until it is served, see FairScheduler

The handler gets the connection and the frames, writes its responses, and returns how many frames it
served. The connection keeps the others for a later turn, or until its peer reads.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import structlog

from rockhopper.broker.server.listening.caller import DIRECT, Caller
from rockhopper.broker.server.listening.socket_names import read_addresses
from rockhopper.broker.server.loop.fair_scheduler import FRAMES_PER_PASS, FairScheduler
from rockhopper.broker.server.remoting.pending_calls import PendingCalls
from rockhopper.broker.users.peer import (
    USERS,
    ConnectionAddresses,
    ConsumersChanged,
    Notice,
    Peer,
    Principal,
    TransactionCheck,
)
from rockhopper.protocol.codes import FLAG_ONEWAY, RequestCode
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.properties import PROPERTY_UNIQUE_KEY
from rockhopper.protocol.requests import CheckTransactionStateRequest, encode_fields
from rockhopper.protocol.store.message_codec import encode_stored_message
from rockhopper.sockets import close_in_children

log = structlog.get_logger("broker.server")

WRITE_BUFFER_HIGH_BYTES = 1 << 20
# Less is joined before it is written: each part costs about as much as copying that much.
JOINED_BYTES_MAX = 8 << 10
_ANSWERED_WITHIN_S = 1.0
FIRST_FRAME_TIMEOUT_S = 10.0
FRAME_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
WRITE_STALL_TIMEOUT_S = 30.0


class FrameHandler(Protocol):
    """Serves the frames of the connections of a server."""

    def serve_together(
        self, connections: "Sequence[RemotingConnection]", has_time: Callable[[], bool]
    ) -> None:
        """Serve sends and pulls at the fronts of the backlogs, together, while there is time.

        Removes them from the backlogs. Without an override it leaves all to ``serve_frames``.
        """
        del connections, has_time

    def serve_frames(self, connection: "RemotingConnection", frames: list[Frame]) -> int:
        """Serve *frames* in order; return how many were served."""


class ConnectionOwner(Protocol):
    """The server that a connection belongs to."""

    handler: FrameHandler
    scheduler: "FairScheduler[RemotingConnection]"
    connections: "set[RemotingConnection]"

    def let_in(self, connection: "RemotingConnection") -> bool:
        """Admit a new connection; return False if there are too many."""

    def forget(self, connection: "RemotingConnection") -> None:
        """Remove a closed connection."""

    def count_half_frame(self, connection: "RemotingConnection", size_bytes: int) -> None:
        """Count bytes of an incomplete frame; close its connection, or others, if necessary."""

    def count_unread(self, connection: "RemotingConnection", size_bytes: int) -> None:
        """Count bytes written to a peer that does not read; close it, or others, if necessary."""


class PeerActivity:
    """The times of one connection's last reads and writes; times are the loop's."""

    __slots__ = (
        "_connected_at_s",
        "_unread_bytes_seen",
        "frame_begun_at_s",
        "frames_received",
        "is_active",
        "last_active_s",
        "stalled_at_s",
    )

    def __init__(self, now_s: float) -> None:
        self._connected_at_s = self.last_active_s = now_s
        self.is_active = False
        """Whether anything was read or written since the last look at the timeouts."""
        self.frames_received = 0
        self.frame_begun_at_s: float | None = None
        """When the incomplete frame began to arrive; None: no frame is incomplete."""
        self.stalled_at_s: float | None = None
        """When the peer last read, while it does not read enough; None: it reads."""
        self._unread_bytes_seen = 0

    def note_part(self, now_s: float, frame_count: int, pending_bytes: int) -> None:
        """Record a read with, or after, *pending_bytes* of an incomplete frame."""
        if not pending_bytes:
            self.frame_begun_at_s = None
        elif frame_count or self.frame_begun_at_s is None:
            self.frame_begun_at_s = now_s

    def restart_frame(self, now_s: float) -> None:
        """Give the peer its time for a frame again: nothing was read from it in between."""
        if self.frame_begun_at_s is not None:
            self.frame_begun_at_s = now_s

    def stall(self, now_s: float) -> None:
        """Record that the peer reads less than is written."""
        self.stalled_at_s = now_s
        self._unread_bytes_seen = 0

    def recover(self) -> None:
        """Record that the peer has read enough."""
        self.stalled_at_s = None

    def note_progress(self, now_s: float, unread_bytes: int) -> None:
        """Restart the stall timer if the peer has read anything since the last call."""
        if unread_bytes < self._unread_bytes_seen:
            self.stalled_at_s = now_s
        self._unread_bytes_seen = unread_bytes

    def find_timeout(self, now_s: float, *, is_waiting: bool) -> str | None:
        """Return why the connection is to be closed, or None.

        *is_waiting*: received frames wait for the broker, so nothing is read.
        """
        if self.is_active:
            self.is_active = False
            self.last_active_s = now_s
        if self.frames_received == 0 and now_s - self._connected_at_s > FIRST_FRAME_TIMEOUT_S:
            return f"no request within {FIRST_FRAME_TIMEOUT_S:.0f} s"
        if self.stalled_at_s is not None:
            if now_s - self.stalled_at_s > WRITE_STALL_TIMEOUT_S:
                return f"the peer read no answer for {WRITE_STALL_TIMEOUT_S:.0f} s"
            return None
        if is_waiting:
            return None
        begun_at_s = self.frame_begun_at_s
        if begun_at_s is not None and now_s - begun_at_s > FRAME_TIMEOUT_S:
            return f"a frame was not completed within {FRAME_TIMEOUT_S:.0f} s"
        if now_s - self.last_active_s > IDLE_TIMEOUT_S:
            return f"idle for {IDLE_TIMEOUT_S:.0f} s"
        return None


class RemotingConnection(asyncio.Protocol):
    """One peer. All methods belong to the event loop's thread."""

    __slots__ = (
        "_calls",
        "_loop",
        "_outbox",
        "_transport",
        "activity",
        "addresses",
        "attributes",
        "backlog",
        "caller",
        "closed",
        "decoder",
        "is_scheduled",
        "is_waiting",
        "on_close",
        "principal",
        "server",
        "writing_paused",
    )

    def __init__(self, server: ConnectionOwner, caller: Caller = DIRECT) -> None:
        self.server = server
        """Its handler serves incoming frames."""
        self.caller = caller
        self._loop = asyncio.get_running_loop()
        self.decoder = FrameDecoder()
        self.backlog: list[Frame] = []
        """Received frames that no turn has served yet."""
        self.is_scheduled = False
        """Whether the next turn looks at this connection."""
        self.is_waiting = False
        """Whether received frames have to wait for a later turn; nothing is read meanwhile."""
        self._calls = PendingCalls()
        self._outbox: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.attributes: dict[str, object] = {}
        self.on_close: list[Callable[[Peer], None]] = []
        self.closed = False
        self.writing_paused = False
        """Whether the peer does not read: data sent to it waits here."""
        self.activity = PeerActivity(self._loop.time())
        self.addresses = ConnectionAddresses()
        self.principal = Principal("")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or close at once if the server is full."""
        # uvloop's transports are not asyncio.Transport by inheritance.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        close_in_children(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        self.addresses = read_addresses(transport, self.caller)
        self.principal = Principal(self.addresses.peer_host)
        if not self.server.let_in(self):
            self.closed = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify all listeners that have state for this peer."""
        self.closed = True
        self.backlog = []
        self.server.forget(self)
        self._calls.fail(f"{self.peer} closed the connection")
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()

    @property
    def held_bytes(self) -> int:
        """The received bytes of an incomplete frame."""
        return self.decoder.pending_bytes

    @property
    def is_known(self) -> bool:
        """Whether its peer is authenticated as a user."""
        return bool(self.attributes.get(USERS))

    def drop_held(self, reason: str) -> None:
        """Drop an incomplete frame, and close at once."""
        self.decoder.forget_pending()
        self.abort(reason)

    @property
    def peer(self) -> str:
        """The peer's address as text."""
        return self.addresses.peer

    def data_received(self, data: bytes) -> None:
        """Take the complete frames in *data*; the next turn serves them, or the scheduler now."""
        decoder = self.decoder
        frames = decoder.feed(data)
        pending_bytes = decoder.pending_bytes
        activity = self.activity
        activity.is_active = True
        activity.frames_received += len(frames)
        if pending_bytes or activity.frame_begun_at_s is not None:
            activity.note_part(self._loop.time(), len(frames), pending_bytes)
        if decoder.error is not None or (frames and self.backlog):
            # The second read since the last turn: the peer sends faster than it is served.
            self.backlog += frames
            self.wait()
        elif frames:
            self.backlog = frames
            if not self.is_scheduled:
                self.server.scheduler.serve_or_schedule(self)
        if pending_bytes and not self.closed:
            self.server.count_half_frame(self, len(data))

    def serve(self) -> None:
        """Serve one pass of the backlog, then read again, or wait for a later turn."""
        if self.closed or self.writing_paused:
            return
        frames, self.backlog = self.backlog[:FRAMES_PER_PASS], self.backlog[FRAMES_PER_PASS:]
        taken = self.server.handler.serve_frames(self, frames) if frames else 0
        if self.closed:
            return
        if taken < len(frames):
            self.backlog = frames[taken:] + self.backlog
        if self.backlog:
            self.wait()
        elif self.decoder.error is not None:
            self.fail(self.decoder.error)
        elif self.is_waiting:
            self.is_waiting = False
            self._read_again()

    def wait(self) -> None:
        """Read no more until a later turn has served the backlog."""
        if self.closed:
            return
        if not self.is_waiting:
            self.is_waiting = True
            self._stop_reading()
        if not self.is_scheduled:
            self.server.scheduler.schedule(self)

    def serve_held(self, frames: list[Frame]) -> None:
        """Schedule frames that a handler had held, before those received since."""
        self.backlog = frames + self.backlog
        if self.backlog:
            self.wait()

    def _stop_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _read_again(self) -> None:
        """Resume reading if there is room for more."""
        if self.backlog or self.writing_paused or self.closed:
            return
        self.activity.restart_frame(self._loop.time())
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read responses."""
        self.writing_paused = True
        self.activity.stall(self._loop.time())
        self._stop_reading()

    def resume_writing(self) -> None:
        """Serve waiting frames, then resume reading."""
        self.writing_paused = False
        self.activity.recover()
        if self.backlog:
            self.wait()
        else:
            self._read_again()

    def write(self, data: bytes) -> None:
        """Send *data*; a closed peer is not an error.

        uvloop raises on a closed transport, and one exception in a loop that releases many held
        responses would leave the others unanswered.
        """
        transport = self._transport
        if data and not self.closed and transport is not None and not transport.is_closing():
            self.activity.is_active = True
            transport.write(data)
            if self.writing_paused:
                self.server.count_unread(self, len(data))

    def write_parts(self, parts: Sequence[bytes]) -> None:
        """Send *parts* in sequence, as ``write`` does, without copying large ones."""
        size_bytes = sum(map(len, parts))
        if size_bytes < JOINED_BYTES_MAX or len(parts) == 1:
            self.write(b"".join(parts))
            return
        transport = self._transport
        if not self.closed and transport is not None and not transport.is_closing():
            self.activity.is_active = True
            transport.writelines(parts)
            if self.writing_paused:
                self.server.count_unread(self, size_bytes)

    def write_soon(self, parts: Sequence[bytes]) -> None:
        """Send *parts* in one write with all data for this peer from this iteration of the loop.

        A message may release many held pulls of one client.
        """
        if not self._outbox:
            self._loop.call_soon(self._empty_outbox)
        self._outbox += parts

    def _empty_outbox(self) -> None:
        parts, self._outbox = self._outbox, []
        if parts:
            self.write_parts(parts)

    def fail(self, error: ProtocolError) -> None:
        """Close on a peer that violates the protocol, with one log line that says how."""
        if not self.closed:
            log.warning("connection closed", peer=self.peer, reason=str(error))
            self.close()

    def close(self) -> None:
        """Send queued data, then close."""
        self._empty_outbox()
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def close_after_answer(self, reason: str) -> None:
        """Accept no more requests, and close after the current response has been sent."""
        if not self.closed:
            log.info("connection closed", peer=self.peer, reason=reason)
            self.backlog = []
            self._stop_reading()
            self._loop.call_later(_ANSWERED_WITHIN_S, self.close)

    def abort(self, reason: str) -> None:
        """Close at once and drop queued data, also that of a connection that is being closed."""
        if not self.closed:
            log.info("connection closed", peer=self.peer, reason=reason)
            self.closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    @property
    def unread_bytes(self) -> int:
        """Bytes written that the peer has not read yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def notify(self, notice: Notice) -> int:
        """Send a notification as a oneway request; return the size of its body in bytes."""
        code, ext, body = request_of(notice)
        self.send_request(code, ext, body)
        return len(body)

    def send_request(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Send a oneway request to the client."""
        opaque = self._calls.next_opaque()
        command = Command(code=code, opaque=opaque, flag=FLAG_ONEWAY, ext=ext, body=body)
        self.write(encode_command(command))

    async def call(
        self, code: int, ext: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> Command:
        """Send a request to the client and wait for its response.

        Raises:
            TimeoutError: no response came in time.
            ConnectionResetError: the client closed the connection.
        """
        if self.closed:
            raise ConnectionResetError(f"{self.peer} closed the connection")
        opaque = self._calls.next_opaque()
        response = self._calls.expect(opaque)
        self.write(encode_command(Command(code=code, opaque=opaque, ext=ext, body=body)))
        try:
            async with asyncio.timeout(timeout_s):
                return await response
        finally:
            self._calls.forget(opaque)

    def response_received(self, command: Command) -> None:
        """Match a response to the pending call; ignore a late one."""
        self._calls.resolve(command)


def request_of(notice: Notice) -> tuple[RequestCode, dict[str, str], bytes]:
    """Return code, header fields and body of a notification as a oneway request."""
    match notice:
        case ConsumersChanged(group):
            return RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, b""
        case TransactionCheck(half, message, broker_name):
            unique_key = half.properties.get(PROPERTY_UNIQUE_KEY)
            fields = CheckTransactionStateRequest(
                topic=half.topic,
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.commit_log_offset,
                msg_id=unique_key,
                transaction_id=unique_key,
                offset_msg_id=half.offset_message_id,
                broker_name=broker_name,
            )
            return (
                RequestCode.CHECK_TRANSACTION_STATE,
                encode_fields(fields),
                encode_stored_message(message),
            )


def connection_of(peer: Peer) -> RemotingConnection | None:
    """Return the remoting connection of a peer, or None if it uses another protocol."""
    return cast(RemotingConnection, peer) if hasattr(peer, "send_request") else None
