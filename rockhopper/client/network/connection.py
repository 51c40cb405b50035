"""One connection to a broker or a name server.

Requests are pipelined: any number may be in flight, and answers are matched by `opaque` in any
order. All requests of one event loop iteration leave in one write. A request that times out or is
cancelled leaves the connection usable, and its late answer is dropped. The connection is closed
only if requests time out and no data has arrived for 10 s.

The first requests are JSON and carry the ext field rh=1. A Rockhopper server echoes the field; from
then on requests on this connection have msgpack headers. Other servers do not echo it, and the
connection stays with JSON. Sends and pulls are always JSON: their headers are built from templates,
and Rockhopper's compiled code reads only JSON.

A request leaves at once if none is in flight and the previous one left alone.

The timeout of a request begins when it is written. Before a request times out, the connection reads
all received data, so a busy event loop is not mistaken for a silent peer.

If one iteration sends more than 256 KiB, the data is written before its end: then the transport
reports whether the peer accepts it. Until it does, later senders wait and continue in order of
arrival.

A socket must not be shared with a forked child: in the child every use raises ClientStateError.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import cast

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClientStateError,
    MalformedAnswerError,
    RequestTimeoutError,
)
from rockhopper.client.network.tls import UNANSWERED_REMEDY, is_tls_transport, remedy_of
from rockhopper.protocol.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    LanguageCode,
    RequestCode,
    ResponseCode,
    SerializeType,
)
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, FrameDecoder, frame_head
from rockhopper.protocol.headers.header_json import end_json_header
from rockhopper.protocol.signing import Credentials, sign_fields
from rockhopper.sockets import close_in_children

log = logging.getLogger(__name__)

# The answer to a request that a broker sends: immediate, later, or None for none.
RequestAnswer = Command | None
RequestHandler = Callable[
    ["BrokerConnection", Command], RequestAnswer | asyncio.Future[RequestAnswer]
]

_NEGOTIATION_FIELD = "rh"
# The operating system notices a vanished peer only after a quarter of an hour.
_SILENCE_MAX_S = 10.0
SILENCE_NOTED_S = 1.0
# Long polls: a broker may delay their answers for as long as requested.
_HELD_CODES = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
_OPAQUE_MAX = 0x7FFF_FFFF
_LANGUAGE = int(LanguageCode.PYTHON)
_JSON = int(SerializeType.JSON)
_MSGPACK = int(SerializeType.MSGPACK)
_JSON_END = end_json_header(_LANGUAGE)
_OUTGOING_SIZE_BYTES_MAX = 256 * 1024
# If the loop was busy for this long, the time is added to the timeouts of waiting requests.
_STALL_NOTED_S = 0.05
_READS_BEFORE_EXPIRY_MAX = 1000

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def fork_count() -> int:
    """Return the number of forks between the process that loaded the client and this one."""
    return _forks


class BrokerConnection(asyncio.Protocol):
    """An open connection; `closed` is done when the connection has ended."""

    def __init__(
        self,
        address: str,
        handle_request: RequestHandler | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """With `credentials`, every request is signed."""
        self.address = address
        self.serialize_type = _JSON
        self.is_negotiated = False
        self._handle_request = handle_request
        self.credentials = credentials
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.transport: asyncio.Transport | None = None
        # The header of the answer to a batch contains the ids of all its messages.
        self._decoder = FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE)
        self._outgoing: list[bytes] = []
        self._outgoing_size_bytes = 0
        self._outgoing_since = 0.0
        self._comes_alone = False
        self._is_paused = False
        # The senders that wait to write, and how many bytes each has.
        self._writers: deque[tuple[asyncio.Future[None], int]] = deque()
        self._next_opaque = 0
        # opaque -> (future, deadline, request code, timeout in seconds)
        self.pending: dict[int, tuple[asyncio.Future[Command], float, int, float]] = {}
        self._negotiating: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._unanswered_since: float | None = None
        self._forks = _forks
        self._is_retiring = False
        self._has_received = False
        self._reads = 0
        self.is_open = False
        """Whether new requests may be sent here."""

    def request(
        self, command: Command, timeout_s: float, *, spent_s: float = 0.0
    ) -> asyncio.Future[Command]:
        """Send a request; the future returns the answer, whatever its code, or a ClientError.

        `spent_s` is the part of the timeout already used, for example by connecting. Cancelling the
        future, or a task that awaits it, does not cancel the request.
        """
        opaque = self._stamp(command)
        if not self.is_negotiated:
            command.ext = {**(command.ext or {}), _NEGOTIATION_FIELD: "1"}
            self._negotiating.add(opaque)
        self._write(encode_command(self._signed(command)))
        return self._expect(opaque, command.code, timeout_s, spent_s)

    def request_json(
        self, code: int, header_start: bytes, body: bytes, timeout_s: float, *, spent_s: float = 0.0
    ) -> asyncio.Future[Command]:
        """Send a request whose header was begun by begin_json_header; otherwise like `request`."""
        opaque = self._take_opaque()
        header = header_start + _JSON_END % opaque
        if self.credentials is None:
            self._write(frame_head(_JSON, len(header), len(body)) + header + body)
        else:
            self._write(encode_command(self._signed(decode_header(_JSON, header, body))))
        return self._expect(opaque, code, timeout_s, spent_s)

    def send_oneway(self, command: Command) -> None:
        """Send a request without an answer, not even an error."""
        command.flag |= FLAG_ONEWAY
        self._stamp(command)
        self._write(encode_command(self._signed(command)))

    def _signed(self, command: Command) -> Command:
        if self.credentials is not None:
            fields = command.ext or {}
            command.ext = sign_fields(self.credentials, fields, command.body, command.version)
        return command

    @property
    def is_writable(self) -> bool:
        """False while the peer reads more slowly than the client sends."""
        return not self._is_paused and not self._writers

    async def wait_writable(self, size_bytes: int = 0) -> None:
        """Wait until the peer has accepted earlier data, including that of earlier waiters.

        The caller may then write `size_bytes`, before it awaits anything else.
        """
        if not self.is_writable:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._writers.append((turn, size_bytes))
            await turn

    @property
    def is_silent(self) -> bool:
        """Whether a request other than a long poll has waited for its answer for a second."""
        for _, deadline_s, code, timeout_s in self.pending.values():
            if code not in _HELD_CODES:  # these are in the order in which they were sent
                return self._loop.time() - (deadline_s - timeout_s) >= SILENCE_NOTED_S
        return False

    @property
    def local_host(self) -> str | None:
        """The local address of this connection."""
        name = self.transport.get_extra_info("sockname") if self.transport else None
        return name[0] if name else None

    @property
    def peer_host(self) -> str | None:
        """The address of the peer."""
        name = self.transport.get_extra_info("peername") if self.transport else None
        return name[0] if name else None

    def _stamp(self, command: Command) -> int:
        opaque = self._take_opaque()
        command.opaque = opaque
        command.language = _LANGUAGE
        command.serialize_type = self.serialize_type
        return opaque

    def _take_opaque(self) -> int:
        if self._forks != _forks:
            raise ClientStateError(
                "this client was opened before the process forked, and its connections belong to "
                "the parent; create a new client in the child process",
                address=self.address,
            )
        if self.closed.done() or self.transport is None:
            raise BrokerUnreachableError(
                f"the connection to {self.address} is closed", address=self.address
            )
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & _OPAQUE_MAX
        return opaque

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        if self._loop.time() - self._timer_at < _STALL_NOTED_S:
            self._expire_now()
        else:
            self._timer = self._loop.call_later(
                0.0, self._expire_when_read, self._reads, _READS_BEFORE_EXPIRY_MAX
            )

    def _expire_when_read(self, reads: int, turns: int) -> None:
        """Expire requests once a loop iteration has read no data."""
        if self._reads == reads or not turns:
            self._expire_now()
        else:
            self._timer = self._loop.call_later(0.0, self._expire_when_read, self._reads, turns - 1)

    def _expire_now(self) -> None:
        self._timer = None
        now = self._loop.time()
        heard_nothing = self._expire_pending(now)
        if self._unanswered_since is not None and now - self._unanswered_since > _SILENCE_MAX_S:
            log.warning(
                "nothing received from %s for %d s: reconnecting", self.address, _SILENCE_MAX_S
            )
            self.abort()
            return
        if heard_nothing and self.is_open:
            # A NAT or a firewall may have dropped this connection.
            log.warning("a request to %s timed out: reconnecting", self.address)
            self.retire()
        if self.pending:
            self._set_timer(min(entry[1] for entry in self.pending.values()))
        elif self._is_retiring:
            self.close()

    def _expire_pending(self, now: float) -> bool:
        """End the requests that are overdue; return whether nothing came since one was sent."""
        heard_nothing = False
        for opaque in [opaque for opaque, entry in self.pending.items() if entry[1] <= now]:
            future, deadline, code, timeout_s = self.pending.pop(opaque)
            self._negotiating.discard(opaque)
            silent_since = self._unanswered_since
            if silent_since is not None and silent_since <= deadline - timeout_s:
                is_long = now - silent_since >= SILENCE_NOTED_S
                heard_nothing |= is_long and code not in _HELD_CODES
            if not future.done():
                future.set_exception(RequestTimeoutError(code, self.address, timeout_s))
        return heard_nothing

    def _expect(
        self, opaque: int, code: int, timeout_s: float, spent_s: float
    ) -> asyncio.Future[Command]:
        future: asyncio.Future[Command] = self._loop.create_future()
        now = self._loop.time()
        deadline = now + timeout_s - spent_s
        if self._unanswered_since is None:
            self._unanswered_since = now
        self.pending[opaque] = (future, deadline, code, timeout_s)
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)
        return future

    def _write(self, frame: bytes) -> None:
        outgoing = self._outgoing
        if not outgoing:
            if self._comes_alone and not self.pending and self.transport is not None:
                self.transport.write(frame)
                return
            self._outgoing_since = self._loop.time()
            self._loop.call_soon(self._flush)
        outgoing.append(frame)
        self._outgoing_size_bytes += len(frame)
        if self._outgoing_size_bytes > _OUTGOING_SIZE_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        frames = self._outgoing
        if not frames:
            return
        self._outgoing = []
        self._outgoing_size_bytes = 0
        self._comes_alone = len(frames) == 1
        now = self._loop.time()
        if now - self._outgoing_since >= _STALL_NOTED_S:
            self._defer(len(frames), now)
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _defer(self, count: int, now: float) -> None:
        """Extend the newest requests by the time they waited for the event loop."""
        waited_s = now - self._outgoing_since
        if self._unanswered_since is not None:
            self._unanswered_since = min(self._unanswered_since + waited_s, now)
        for opaque in islice(reversed(self.pending), count):
            future, deadline, code, timeout_s = self.pending[opaque]
            self.pending[opaque] = (future, deadline + waited_s, code, timeout_s)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._admit()

    def _admit(self) -> None:
        """Admit waiters for as many bytes as one write takes, then see if the peer accepts them."""
        admitted_bytes = 0
        while self._writers and not self._is_paused:
            if admitted_bytes > _OUTGOING_SIZE_BYTES_MAX:
                self._loop.call_soon(self._admit)
                return
            turn, size_bytes = self._writers.popleft()
            if not turn.done():
                turn.set_result(None)
                admitted_bytes += size_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        close_in_children(self.transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._unanswered_since = None
        self._has_received = True
        self._reads += 1
        for serialize_type, header, body in self._decoder.feed(data):
            try:
                command = decode_header(serialize_type, header, body)
            except ProtocolError as error:
                self._give_up(error)
                return
            if command.flag & FLAG_RESPONSE:
                self._take_answer(command)
            else:
                self._take_request(command)
        if self._decoder.error is not None:
            self._give_up(self._decoder.error)

    def _take_answer(self, answer: Command) -> None:
        entry = self.pending.pop(answer.opaque, None)
        if self._negotiating and answer.opaque in self._negotiating:
            self._settle_negotiation(answer)
        if entry is None:
            log.debug("dropped a late answer from %s (opaque %d)", self.address, answer.opaque)
        elif not entry[0].done():
            entry[0].set_result(answer)
        if self._is_retiring and not self.pending:
            self.close()

    def _settle_negotiation(self, answer: Command) -> None:
        self._negotiating.clear()
        self.is_negotiated = True
        if answer.ext is not None and answer.ext.get(_NEGOTIATION_FIELD) == "1":
            self.serialize_type = _MSGPACK

    def _take_request(self, command: Command) -> None:
        answer = self._handle_request(self, command) if self._handle_request else None
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda done: self._answer_later(command, done))
        else:
            self._send_answer(command, answer)

    def _answer_later(self, command: Command, done: asyncio.Future[RequestAnswer]) -> None:
        if done.cancelled() or self.closed.done():
            return
        if (error := done.exception()) is not None:
            log.error("answering request %d failed", command.code, exc_info=error)
            failure = f"{type(error).__name__}: {error}"
            self._send_answer(command, Command(int(ResponseCode.SYSTEM_ERROR), remark=failure))
        else:
            self._send_answer(command, done.result())

    def _send_answer(self, command: Command, answer: RequestAnswer) -> None:
        if command.flag & FLAG_ONEWAY:
            return
        if answer is None:
            answer = Command(
                code=int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
                remark=f" request type {command.code} not supported",
            )
        answer.opaque = command.opaque
        answer.flag = FLAG_RESPONSE
        answer.language = _LANGUAGE
        answer.serialize_type = command.serialize_type
        self._write(encode_command(answer))

    def _give_up(self, reason: ProtocolError) -> None:
        text = str(reason)
        self._end(
            lambda: MalformedAnswerError(
                f"{self.address} does not speak RocketMQ's remoting protocol ({text})",
                address=self.address,
                remedy="is this the port of a broker or a name server?",
            )
        )
        if self.transport is not None:
            self.transport.abort()

    def retire(self) -> None:
        """Accept no new requests; close after the answers in flight have arrived."""
        self._is_retiring = True
        self.is_open = False
        if not self.pending:
            self.close()

    def close(self) -> None:
        """Send buffered data, then close; requests without an answer fail."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._forks != _forks:
            return
        self._flush()
        self.transport.close()

    def abort(self) -> None:
        """Close at once; drop unsent data."""
        if self.transport is not None and self._forks == _forks:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f" ({exc})" if exc else ""
        remedy = self._remedy(exc)

        def broken() -> ClientError:
            error = BrokerUnreachableError(
                f"the connection to {self.address} broke{reason} before the answer came",
                address=self.address,
                remedy=remedy,
            )
            error.was_sent = True
            return error

        self._end(broken)

    def _remedy(self, error: Exception | None) -> str | None:
        """Return a remedy if the connection broke because of TLS, or its absence."""
        is_tls = self.transport is not None and is_tls_transport(self.transport)
        found = None if error is None else remedy_of(error, is_tls=False)
        if found is not None:
            return found[1]
        return UNANSWERED_REMEDY if not self._has_received and not is_tls else None

    def _end(self, make_error: Callable[[], ClientError]) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_open = False
        self._is_paused = False
        for turn, _ in self._writers:
            if not turn.done():
                turn.set_result(None)
        self._writers.clear()
        pending, self.pending = self.pending, {}
        for future, _, _, _ in pending.values():
            if not future.done():
                # Each waiter gets its own exception: a shared one would collect all their
                # tracebacks.
                future.set_exception(make_error())
        if not self.closed.done():
            self.closed.set_result(None)
