"""GrpcConnection: one HTTP/2 connection of a client, and its calls.

    a client that does not use HTTP/2     answered with one line of 400, closed
    no request within 10 s                closed
    a frame incomplete for 30 s           closed
    a request without progress for 30 s   closed
    incomplete requests                   the first beyond HELD_BYTES_MAX in total is refused, and
                                          without a user one of UNKNOWN_BYTES_MAX; for the limit of
                                          all connections see server/listening/unfinished
    no call for 120 s                     closed
    answers not read                      reading stops; closed at 64 MiB, or after 30 s without
                                          progress

Calls that only query the store are served right where they are read, without a task. Sends and
acknowledgements wait for the end of the turn, an iteration of the loop: those of all connections
are written together, then each connection gets one write with all its answers. Work that takes
longer than TURN_BUDGET_S continues in the next iteration of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol, cast

import structlog

from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.identity import AUTHORIZATION, ConnectionIdentity
from rockhopper.broker.gateways.grpc.service import GrpcService
from rockhopper.broker.server.listening.caller import DIRECT, Caller
from rockhopper.broker.server.listening.socket_names import read_addresses
from rockhopper.broker.server.listening.unfinished import UNKNOWN_BYTES_MAX
from rockhopper.broker.users.peer import ConnectionAddresses
from rockhopper.protocol.grpc_v2.codes import GrpcStatus
from rockhopper.protocol.grpc_v2.framing import FramingError, MessageSplitter, read_whole
from rockhopper.protocol.http2.connection import (
    Event,
    Http2Connection,
    Received,
    RequestStarted,
    StreamEnded,
)
from rockhopper.protocol.http2.hpack import Fields, encode_fields
from rockhopper.sockets import close_in_children

log = structlog.get_logger("broker.grpc")

TURN_BUDGET_S = 0.002
HELD_BYTES_MAX = 16 << 20
UNREAD_BYTES_MAX = 64 << 20
WRITE_BUFFER_HIGH_BYTES = 1 << 20
FIRST_REQUEST_TIMEOUT_S = 10.0
FRAME_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
STANDSTILL_TIMEOUT_S = 30.0

_CONTENT = ("content-type", "application/grpc")
_CONTENT_TYPES = ("application/grpc+proto", "application/grpc;")
_HEAD = encode_fields([(":status", "200"), _CONTENT])
_WELL = encode_fields([("grpc-status", "0")])
# The reader of calls whose only message is read already.
_NOTHING_HELD = MessageSplitter("identity", 0)
_WHAT_THIS_IS = b"This is Rockhopper's port for RocketMQ 5 clients. It speaks gRPC over HTTP/2.\n"
_NO_GRPC = encode_fields([(":status", "415"), ("content-type", "text/plain")])
_END = b""
_NO_HTTP_2 = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    + _WHAT_THIS_IS
)
# Proxies in front of RocketMQ's services set these fields; here a client could forge them.
_NOT_TO_BE_SAID = ("rpc-remote-address", "rpc-local-address", "x-mq-authorization-ak")


class Port(Protocol):
    """The server that a connection belongs to."""

    service: GrpcService
    request_size_bytes_max: int
    has_users: bool
    """Whether a peer has to authenticate."""

    def admit(self, connection: "GrpcConnection") -> bool:
        """Count a new connection; return False if there are too many."""

    def forget(self, connection: "GrpcConnection") -> None:
        """Stop counting a closed connection."""

    def count_unfinished(self, size_bytes: int) -> None:
        """Count data that incomplete requests have added to the buffers."""

    def flush_soon(self, connection: "GrpcConnection") -> None:
        """Call ``flush`` after the reads of this iteration of the loop."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* as its own task, until the server closes."""


class CallActivity:
    """The times of one connection's last calls, reads and writes; times are the loop's."""

    __slots__ = ("_connected_at_s", "frame_begun_at_s", "held_at_s", "last_call_s", "stalled_at_s")

    def __init__(self, now_s: float) -> None:
        self._connected_at_s = now_s
        self.last_call_s: float | None = None
        """When the last call began; None: there was none."""
        self.frame_begun_at_s: float | None = None
        """When the incomplete frame began to arrive; None: no frame is incomplete."""
        self.held_at_s = now_s
        """When an incomplete request last received data."""
        self.stalled_at_s: float | None = None
        """Since when the client does not read its answers; None: it reads."""

    def continue_frame(self, now_s: float) -> None:
        """Record that a frame is still incomplete."""
        if self.frame_begun_at_s is None:
            self.frame_begun_at_s = now_s

    def find_timeout(self, now_s: float, *, is_holding: bool, is_answering: bool) -> str | None:
        """Return why the connection has timed out; None if it has not.

        *is_holding*: a request is incomplete; *is_answering*: a call is open.
        """
        if self.stalled_at_s is not None:
            is_still = now_s - self.stalled_at_s > STANDSTILL_TIMEOUT_S
            return "the client did not read its answers" if is_still else None
        if self.last_call_s is None and now_s - self._connected_at_s > FIRST_REQUEST_TIMEOUT_S:
            return "the client sent no request"
        begun_s = self.frame_begun_at_s
        if begun_s is not None and now_s - begun_s > FRAME_TIMEOUT_S:
            return "a frame was not completed"
        if is_holding and now_s - self.held_at_s > FRAME_TIMEOUT_S:
            return "a request was not completed"
        if is_answering or self.last_call_s is None:
            return None
        return "idle" if now_s - self.last_call_s > IDLE_TIMEOUT_S else None


class GrpcConnection(asyncio.Protocol):
    """One connection. All methods belong to the event loop's thread."""

    def __init__(self, server: Port, caller: Caller = DIRECT) -> None:
        self.server = server
        self.caller = caller
        """How the client connected."""
        self.loop = asyncio.get_running_loop()
        self._http2 = Http2Connection(self.loop.time)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._begun: set[int] = set()
        self._strangers: set[int] = set()
        """Streams whose requests are not gRPC calls."""
        self._held_bytes = 0
        self._unfinished_bytes = 0
        """The data added to incomplete requests in this iteration of the loop."""
        self._backlog: deque[Event] = deque()
        self._is_flush_due = False
        self.closed = False
        self.addresses = ConnectionAddresses()
        self.identity = ConnectionIdentity("")
        self.activity = CallActivity(self.loop.time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client, or close at once if there are too many."""
        # uvloop's transports do not inherit from asyncio.Transport.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        close_in_children(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        self.addresses = read_addresses(transport, self.caller)
        self.identity = ConnectionIdentity(self.addresses.peer_host)
        if not self.server.admit(self):
            self.closed = True
            transport.abort()
            return
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every call."""
        self.closed = True
        self._backlog.clear()
        for event in self._http2.end_all():
            self._take(event)
        for call in list(self._calls.values()):
            call.over()
        self._calls.clear()
        self.server.forget(self)

    @property
    def peer(self) -> str:
        """The client's address as text."""
        return self.addresses.peer

    @property
    def open_calls(self) -> int:
        """The number of unanswered calls."""
        return self._http2.open_streams

    @property
    def held_bytes(self) -> int:
        """The buffered size of incomplete requests."""
        return self._held_bytes

    @property
    def is_known(self) -> bool:
        """Whether the peer has authenticated as a user."""
        return self.identity.user is not None

    def drop_held(self, reason: str) -> None:
        """Drop incomplete requests, and close at once."""
        for call in list(self._calls.values()):
            self._forget(call.stream_id)
            call.over()
        self.abort(reason)

    def data_received(self, data: bytes) -> None:
        """Serve the requests in *data*, now or in later iterations of the loop."""
        activity = self.activity
        if activity.last_call_s is None and data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT "):
            assert self._transport is not None
            self._transport.write(_NO_HTTP_2)
            self.close()
            return
        self._backlog += self._http2.receive(data)
        if self._http2.is_in_frame:
            activity.continue_frame(self.loop.time())
        else:
            activity.frame_begun_at_s = None
        self._serve()

    def _serve(self) -> None:
        if self.closed:
            return
        stop_s = self.loop.time() + TURN_BUDGET_S
        backlog = self._backlog
        while backlog:
            self._take(backlog.popleft())
            if backlog and self.loop.time() > stop_s:
                break
        if self._unfinished_bytes:
            size_bytes, self._unfinished_bytes = self._unfinished_bytes, 0
            self.server.count_unfinished(size_bytes)
        # Also if this connection is closed: its sends wait for the end of the turn.
        self._flush_soon()
        if self._http2.is_over:
            self.flush()
        self._read_on()

    def _read_on(self) -> None:
        """Resume reading once everything is served, and the client reads its answers."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._backlog:
            transport.pause_reading()
            self.loop.call_soon(self._serve)
        elif self.activity.stalled_at_s is None:
            transport.resume_reading()

    def _take(self, event: Event) -> None:
        if type(event) is RequestStarted:
            self._asked(event)
        elif type(event) is Received:
            call = self._calls.get(event.stream_id)
            if call is not None:
                self._received(call, event.data, is_end=event.is_end)
            else:
                self._stranger_received(event.stream_id, is_end=event.is_end)
        elif type(event) is StreamEnded:
            self._begun.discard(event.stream_id)
            self._strangers.discard(event.stream_id)
            call = self._forget(event.stream_id)
            if call is not None:
                call.over(event.unsent)
        elif not self._http2.is_open(event.stream_id):
            call = self._forget(event.stream_id)
            if call is not None:
                call.over()

    def _forget(self, stream_id: int) -> Call | None:
        call = self._calls.pop(stream_id, None)
        if call is not None:
            self._held_bytes -= call.reader.held_bytes
        return call

    def _asked(self, asked: RequestStarted) -> None:
        stream_id, fields = asked.stream_id, asked.fields
        self.activity.last_call_s = self.loop.time()
        content = fields.get("content-type", "")
        is_grpc = content == "application/grpc" or content.startswith(_CONTENT_TYPES)
        if not is_grpc or fields[":method"] != "POST":
            # Answered at the end of the request, as HTTP requires; its errors take precedence.
            self._strangers.add(stream_id)
            self._stranger_received(stream_id, is_end=asked.is_end)
            return
        rpc = self.server.service.find(fields[":path"])
        if rpc is None:
            self._fail(
                stream_id, GrpcStatus.UNIMPLEMENTED, f"there is no method {fields[':path'][:200]}"
            )
            return
        for name in _NOT_TO_BE_SAID:
            fields.pop(name, None)
        size_bytes_max = self.server.request_size_bytes_max
        if asked.is_end and not rpc.method.streams_requests:
            message = read_whole(asked.body, size_bytes_max)
            if message is not None:
                call = self._calls[stream_id] = Call(self, stream_id, rpc, fields, _NOTHING_HELD)
                self.server.service.serve(call, message)
                return
        reader = MessageSplitter(fields.get("grpc-encoding", "identity"), size_bytes_max)
        call = self._calls[stream_id] = Call(self, stream_id, rpc, fields, reader)
        if rpc.method.streams_requests:
            # At once: some clients wait for the header fields of a stream.
            call.send_headers()
        if asked.is_end:
            self._received(call, asked.body, is_end=True)

    def _stranger_received(self, stream_id: int, *, is_end: bool) -> None:
        if is_end and stream_id in self._strangers:
            self._strangers.remove(stream_id)
            self._http2.answer(stream_id, _NO_GRPC, _WHAT_THIS_IS, _END)

    def _received(self, call: Call, data: bytes, *, is_end: bool) -> None:
        try:
            messages = self._read_messages(call, data)
            if is_end and call.reader.held_bytes:
                raise FramingError(GrpcStatus.INTERNAL, "a message is incomplete")
            call.requests += len(messages)
            if not call.rpc.method.streams_requests and (
                call.requests > 1 or (is_end and not call.requests)
            ):
                raise FramingError(GrpcStatus.INTERNAL, "expected exactly one message")
        except FramingError as error:
            self.fail(call, error.status, str(error))
            return
        for message in messages:
            self.server.service.serve(call, message)
        if is_end and call.rpc.method.streams_requests:
            # A stream of which the client has ended its side carries no more requests.
            call.end_call()

    def _read_messages(self, call: Call, data: bytes) -> list[bytes]:
        reader = call.reader
        before = reader.held_bytes
        messages = reader.feed(data)
        if reader.held_bytes or before:
            self._held_bytes += reader.held_bytes - before
            self.activity.held_at_s = self.loop.time()
            if reader.held_bytes and self._held_bytes > HELD_BYTES_MAX:
                raise FramingError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"incomplete requests hold more than {HELD_BYTES_MAX} bytes of one "
                    "connection: send fewer large requests at a time",
                )
            if (
                reader.held_bytes > UNKNOWN_BYTES_MAX
                and self.server.has_users
                and not self.is_known
                and not call.fields.get(AUTHORIZATION)
            ):
                raise FramingError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"an unauthenticated request of more than {UNKNOWN_BYTES_MAX} bytes",
                )
            self._unfinished_bytes += len(data)
        return messages

    def fail(self, call: Call, code: GrpcStatus, text: str) -> None:
        """End *call* with a gRPC status."""
        stream_id = call.stream_id
        call.over()
        if stream_id in self._begun:
            self.end_answer(stream_id, code, text)
        else:
            self._forget(stream_id)
            self._fail(stream_id, code, text)
            self._flush_soon()

    def _fail(self, stream_id: int, code: GrpcStatus, text: str) -> None:
        fields: Fields = [(":status", "200"), _CONTENT, *_status_fields(code, text)]
        self._http2.end_stream(stream_id, encode_fields(fields))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* as its own task."""
        self.server.run(work)

    # Called by calls

    def answer(self, stream_id: int, data: bytes) -> None:
        """Send a complete answer with one message."""
        self._http2.answer(stream_id, _HEAD, data, _WELL)
        self._forget(stream_id)
        self._flush_soon()

    def start_answer(self, stream_id: int) -> None:
        """Start an answer; does nothing if it has started."""
        if stream_id not in self._begun:
            self._begun.add(stream_id)
            self._http2.headers(stream_id, _HEAD)
            self._flush_soon()

    def data(self, stream_id: int, data: bytes) -> None:
        """Send one message of a started answer."""
        self._http2.data(stream_id, data)
        self._flush_soon()

    def end_answer(self, stream_id: int, code: GrpcStatus, text: str) -> None:
        """End a started answer."""
        self._begun.discard(stream_id)
        trailers = _WELL if code is GrpcStatus.OK else encode_fields(_status_fields(code, text))
        self._http2.end_stream(stream_id, trailers)
        if not self._http2.is_open(stream_id):
            call = self._forget(stream_id)
            if call is not None:
                call.over()
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Write together with other answers of this iteration of the loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.server.flush_soon(self)

    def flush(self) -> None:
        """Write the frames that wait, and close if the connection is over."""
        self._is_flush_due = False
        transport = self._transport
        if transport is None or self.closed or transport.is_closing():
            return
        data = self._http2.drain()
        if data:
            transport.write(data)
            if self.activity.stalled_at_s is not None and (
                transport.get_write_buffer_size() > UNREAD_BYTES_MAX
            ):
                self.abort("the client did not read its answers")
                return
        if self._http2.is_over:
            failure = self._http2.failure
            if failure is not None:
                log.warning("connection closed", peer=self.peer, reason=str(failure))
            self.close()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its answers."""
        self.activity.stalled_at_s = self.loop.time()
        self._http2.paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Send the waiting data, then resume reading."""
        self.activity.stalled_at_s = None
        self._backlog += self._http2.resume()
        self._serve()

    # Closing

    def leave(self) -> None:
        """Accept no more calls; open ones continue."""
        self._http2.leave()
        self._flush_soon()

    def close(self) -> None:
        """Send the queued data, then close."""
        self.closed = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._http2.drain())
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once and drop the queued data."""
        if not self.closed:
            log.info("connection closed", peer=self.peer, reason=reason)
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def find_timeout(self, now_s: float) -> str | None:
        """Return why the connection has timed out; None if it has not."""
        return self.activity.find_timeout(
            now_s, is_holding=bool(self._held_bytes), is_answering=bool(self.open_calls)
        )


def _status_fields(code: GrpcStatus, text: str) -> Fields:
    fields = [("grpc-status", str(int(code)))]
    if text:
        fields.append(("grpc-message", _percent_encoded(text[:1000])))
    return fields


def _percent_encoded(text: str) -> str:
    return "".join(
        chr(octet) if 0x20 <= octet <= 0x7E and octet != 0x25 else f"%{octet:02X}"
        for octet in text.encode()
    )
