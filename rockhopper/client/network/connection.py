"""One connection to a broker or a name server.

Requests are pipelined: any number may be in flight (in_flight_requests.py), and answers are matched
by `opaque` in any order. All requests of one event loop iteration leave in one write
(outgoing_frames.py). A request that times out or is cancelled leaves the connection usable, and its
late answer is dropped. The connection is closed only if requests time out and no data has arrived
for 10 s.

The first requests are JSON and carry the ext field rh=1. A Rockhopper server echoes the field; from
then on requests on this connection have msgpack headers. Other servers do not echo it, and the
connection stays with JSON. Sends and pulls are always JSON: their headers are built from templates,
and Rockhopper's compiled code reads only JSON.

The timeout of a request begins when it is written. Before a request times out, the connection reads
all received data, so a busy event loop is not mistaken for a silent peer.

A socket must not be shared with a forked child: in the child every use raises ClientStateError.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import cast

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClientStateError,
    MalformedAnswerError,
)
from rockhopper.client.network.in_flight_requests import AnswerWaiter, InFlightRequests
from rockhopper.client.network.outgoing_frames import STALL_NOTED_S, OutgoingFrames
from rockhopper.client.network.plain_answers import read_command
from rockhopper.client.network.tls import UNANSWERED_REMEDY, find_remedy, is_tls_transport
from rockhopper.protocol.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    LanguageCode,
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
_OPAQUE_MAX = 0x7FFF_FFFF
_LANGUAGE = int(LanguageCode.PYTHON)
_JSON = int(SerializeType.JSON)
_MSGPACK = int(SerializeType.MSGPACK)
_JSON_END = end_json_header(_LANGUAGE)
_READS_BEFORE_EXPIRY_MAX = 1000


class _Forks:
    """An attribute, not a function: it is read for each message."""

    count = 0

    def note_fork(self) -> None:
        self.count += 1


FORKS = _Forks()
"""`count` is the number of forks between the process that loaded the client and this one."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FORKS.note_fork)


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
        self.pending = InFlightRequests(address)
        self.outgoing = OutgoingFrames(self.pending)
        self._next_opaque = 0
        self._negotiating: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._forks = FORKS.count
        self._reads = 0
        self.is_open = False
        """Whether new requests may be sent here; False for a retiring connection too."""

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
        self.outgoing.write(encode_command(self._signed(command)))
        future: asyncio.Future[Command] = self._loop.create_future()
        self._expect(opaque, future, command.code, timeout_s, spent_s)
        return future

    def request_json(
        self, code: int, header_start: bytes, body: bytes, timeout_s: float, *, spent_s: float = 0.0
    ) -> asyncio.Future[Command]:
        """Send a request whose header was begun by begin_json_header; otherwise like `request`."""
        future: asyncio.Future[Command] = self._loop.create_future()
        self.ask_json(future, code, header_start, body, timeout_s, spent_s)
        return future

    def ask_json(
        self,
        waiter: AnswerWaiter,
        code: int,
        header_start: bytes,
        body: bytes,
        timeout_s: float,
        spent_s: float = 0.0,
    ) -> None:
        """Send a request as `request_json` does; `waiter` gets the answer or the error."""
        opaque = self._take_opaque()
        header_end = _JSON_END % opaque
        if self.credentials is None:
            head = frame_head(_JSON, len(header_start) + len(header_end), len(body))
            self.outgoing.write(b"".join((head, header_start, header_end, body)))
        else:
            command = decode_header(_JSON, header_start + header_end, body)
            self.outgoing.write(encode_command(self._signed(command)))
        self._expect(opaque, waiter, code, timeout_s, spent_s)

    def send_oneway(self, command: Command) -> None:
        """Send a request without an answer, not even an error."""
        command.flag |= FLAG_ONEWAY
        self._stamp(command)
        self.outgoing.write(encode_command(self._signed(command)))

    def _signed(self, command: Command) -> Command:
        if self.credentials is not None:
            fields = command.ext or {}
            command.ext = sign_fields(self.credentials, fields, command.body, command.version)
        return command

    @property
    def is_silent(self) -> bool:
        """Whether a request other than a long poll has waited for its answer for a second."""
        return self.pending.has_waited(self._loop.time())

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
        if self._forks != FORKS.count:
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
        if self._loop.time() - self._timer_at < STALL_NOTED_S:
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
        heard_nothing = self.pending.expire(now)
        self._negotiating.intersection_update(self.pending)
        silent_since_s = self.pending.silent_since_s
        if silent_since_s is not None and now - silent_since_s > _SILENCE_MAX_S:
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
            self._set_timer(self.pending.next_deadline_s)
        elif not self.is_open:
            self.close()

    def _expect(
        self, opaque: int, waiter: AnswerWaiter, code: int, timeout_s: float, spent_s: float
    ) -> None:
        now = self._loop.time()
        deadline = now + timeout_s - spent_s
        if self.pending.silent_since_s is None:
            self.pending.silent_since_s = now
        self.pending[opaque] = (waiter, deadline, code, timeout_s)
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

    def pause_writing(self) -> None:
        self.outgoing.pause()

    def resume_writing(self) -> None:
        self.outgoing.resume()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        close_in_children(self.transport)
        self.outgoing.open(self.transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        pending = self.pending
        pending.silent_since_s = None
        self._reads += 1
        self.outgoing.is_held = True
        try:
            for serialize_type, header, body in self._decoder.feed(data):
                try:
                    command = read_command(serialize_type, header, body)
                except ProtocolError as error:
                    self._give_up(error)
                    return
                if not command.flag & FLAG_RESPONSE:
                    self._take_request(command)
                    continue
                if self._negotiating and command.opaque in self._negotiating:
                    self._settle_negotiation(command)
                entry = pending.pop(command.opaque, None)
                if entry is None:
                    log.debug(
                        "dropped a late answer from %s (opaque %d)", self.address, command.opaque
                    )
                elif not entry[0].done():
                    entry[0].set_result(command)
        finally:
            self.outgoing.release()
        if not self.is_open or self._decoder.error is not None:
            self._check_end()

    def _check_end(self) -> None:
        """Close a retiring connection after its last answer, and one that sent no valid frame."""
        if not self.is_open and not self.pending:
            self.close()
        if self._decoder.error is not None:
            self._give_up(self._decoder.error)

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
        self.outgoing.write(encode_command(answer))

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
        self.is_open = False
        if not self.pending:
            self.close()

    def close(self) -> None:
        """Send buffered data, then close; requests without an answer fail."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._forks != FORKS.count:
            return
        self.outgoing.flush()
        self.transport.close()

    def abort(self) -> None:
        """Close at once; drop unsent data."""
        if self.transport is not None and self._forks == FORKS.count:
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
        found = None if error is None else find_remedy(error, is_tls=False)
        if found is not None:
            return found[1]
        return UNANSWERED_REMEDY if not self._reads and not is_tls else None

    def _end(self, make_error: Callable[[], ClientError]) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_open = False
        self.outgoing.release_writers()
        self.pending.fail(make_error)
        if not self.closed.done():
            self.closed.set_result(None)
