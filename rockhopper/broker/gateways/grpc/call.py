"""Call: one RPC of a client, from its header fields to its trailers."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from rockhopper.broker.gateways.grpc.identity import ConnectionIdentity
from rockhopper.broker.gateways.grpc.statuses import (
    GrpcStatusError,
    build_unconfirmed_status,
    status_of,
)
from rockhopper.broker.server.loop.latencies import RequestLabels, RequestTimes
from rockhopper.broker.store.files.errors import NotReplicatedError, StoreError, StoreFailedError
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import AccessRules, Action, Resource, name_missing
from rockhopper.broker.users.peer import ConnectionAddresses, Notice, Peer, Principal
from rockhopper.protocol.grpc_v2.codes import Code, GrpcStatus
from rockhopper.protocol.grpc_v2.framing import MessageSplitter, encode_frame
from rockhopper.protocol.grpc_v2.messages import Method

_timeout_of = re.compile(r"([0-9]{1,8})([HMSmun])").fullmatch
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
CLIENT_ID_LENGTH_MAX = 1024
_CODES = {int(code): code.name for code in Code}


Demands = Iterable[tuple[tuple[Action, ...], Resource]]
"""All of these permissions are required; of each one's actions, any is sufficient."""


class Rpc(NamedTuple):
    """An RPC: its function, and the permissions that its caller needs."""

    method: Method
    serve: Callable[["Call", Any], Any]
    """Handles a request and returns the reply; None if the reply follows later or was written."""
    demands: Callable[[Any], Demands] | None
    """Returns the permissions that a request needs; None: no credentials are required."""
    times: RequestTimes | None = None
    """Records the time of each answer."""
    metric_name: str = ""
    """The RPC's label in the metrics."""
    gate: LeaseGate | None = None
    """Holds back replies that acknowledge state."""
    is_gathered: bool = False
    """Whether its calls wait for the end of the turn."""


class CallConnection(Protocol):
    """The connection of a call."""

    loop: asyncio.AbstractEventLoop
    addresses: ConnectionAddresses
    identity: ConnectionIdentity

    @property
    def peer(self) -> str:
        """The client's address as text."""

    def answer(self, stream_id: int, data: bytes) -> None:
        """Send a complete answer with one message."""

    def start_answer(self, stream_id: int) -> None:
        """Start an answer; does nothing if it has started."""

    def data(self, stream_id: int, data: bytes) -> None:
        """Send one message of a started answer."""

    def end_answer(self, stream_id: int, code: GrpcStatus, text: str) -> None:
        """End a started answer."""

    def fail(self, call: "Call", code: GrpcStatus, text: str) -> None:
        """End a call with a gRPC status."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* as its own task."""


class Delivery(Protocol):
    """Messages that are sent by a call."""

    def lost(self, unsent: int) -> None:
        """Take back the last *unsent* messages: the client has disconnected too early."""


@lru_cache(1024)
def _labels_of(metric_name: str, response: str, has_waited: bool) -> RequestLabels:
    return RequestLabels(metric_name, response.lower(), has_waited, protocol="grpc")


class WaitingCall:
    """A waiting call as a peer: it can be notified, and can disconnect."""

    def __init__(self, call: "Call") -> None:
        self.closed = False
        self.principal = call.principal
        self.writing_paused = False
        self.attributes: dict[str, object] = {}
        self.on_close: list[Callable[[Peer], None]] = []
        self.addresses = call.connection.addresses
        self.peer = call.connection.peer

    def notify(self, notice: Notice) -> int:
        """Ignore the notice: a call receives none."""
        del notice
        return 0

    def close(self) -> None:
        """Mark the call as over, and call the listeners."""
        self.closed = True
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()


class Call:
    """One call; an RPC's function receives it with the request. Belongs to the event loop."""

    __slots__ = (
        "_access",
        "_began_s",
        "_demands",
        "_waiting",
        "connection",
        "delivery",
        "fields",
        "is_over",
        "principal",
        "reader",
        "requests",
        "rpc",
        "started_s",
        "stream_id",
    )

    def __init__(
        self,
        connection: CallConnection,
        stream_id: int,
        rpc: Rpc,
        fields: dict[str, str],
        reader: MessageSplitter,
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.rpc = rpc
        self.fields = fields
        """The header fields by name, without those that only a proxy may set."""
        self.principal: Principal = connection.identity.anonymous
        self.reader = reader
        self.requests = 0
        """The number of messages that the client has sent."""
        self.started_s = connection.loop.time()
        self._began_s = 0.0 if rpc.times is None else rpc.times.now_s()
        self.is_over = False
        self.delivery: Delivery | None = None
        """The messages being sent, which come back if the client disconnects too early."""
        self._waiting: WaitingCall | None = None
        self._access: AccessRules | None = None
        self._demands: tuple[tuple[tuple[Action, ...], Resource], ...] = ()

    def admit(self, access: AccessRules, demands: Demands) -> None:
        """Return if *access* allows *demands*. Raises GrpcStatusError."""
        self._access, self._demands = access, tuple(demands)
        self.check_access()

    def check_access(self) -> None:
        """Return if the caller still has the permission, for calls that have waited.

        Raises:
            GrpcStatusError: it has not.
        """
        access = self._access
        if access is None:
            return
        missing = [
            (actions, resource)
            for actions, resource in self._demands
            if not access.may_any(self.principal, actions, resource)
        ]
        if missing:
            raise GrpcStatusError(Code.UNAUTHORIZED, name_missing(self.principal, missing))

    @property
    def client_id(self) -> str:
        """The client's id. Raises GrpcStatusError if it is missing."""
        client_id = self.fields.get("x-mq-client-id", "")
        if not client_id or client_id.isspace() or len(client_id) > CLIENT_ID_LENGTH_MAX:
            raise GrpcStatusError(
                Code.CLIENT_ID_REQUIRED, "the header field x-mq-client-id is blank"
            )
        return client_id

    def remaining_s(self) -> float | None:
        """Return the time until the client's deadline; None if there is none."""
        found = _timeout_of(self.fields.get("grpc-timeout", ""))
        if found is None:
            return None
        passed_s = self.connection.loop.time() - self.started_s
        return int(found[1]) * _UNITS_S[found[2]] - passed_s

    def waiting(self) -> WaitingCall:
        """Return the object that represents this call while it waits.

        It is closed when the call is over.
        """
        if self._waiting is None:
            self._waiting = WaitingCall(self)
        return self._waiting

    def run_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Handle the rest of the request in *work*, which replies; its errors become the reply."""
        self.connection.run(self._finish(work))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.refuse(error)

    def reply(self, message: Any) -> None:
        """Answer with one message, and end the call."""
        gate = self.rpc.gate
        if gate is None or gate.is_open():
            self._answer(message)
        else:
            gate.hold(partial(self._release, message))

    def _release(self, message: Any, error: StoreError | None) -> None:
        if error is not None:
            message = self.rpc.method.reply(status=build_unconfirmed_status(error))
        self._answer(message)

    def _answer(self, message: Any) -> None:
        if not self.is_over:
            self.connection.answer(self.stream_id, encode_frame(message.SerializeToString()))
            self._note(_CODES.get(message.status.code, "unknown"), has_waited=False)
            self.over()

    def reply_stored(self, frame: bytes) -> None:
        """Answer with the encoded *frame* of a reply whose status is OK, and end the call."""
        if not self.is_over:
            self.connection.answer(self.stream_id, frame)
            self._note(Code.OK.name, has_waited=False)
            self.over()

    def refuse(self, error: Exception) -> None:
        """Answer with an error's status."""
        reply = self.rpc.method.reply(status=status_of(error))
        if self.rpc.method.streams_replies:
            self.write(reply)
            self.end_call()
        else:
            self.reply(reply)

    def send_headers(self) -> None:
        """Send the header fields of a streamed answer, before its first message."""
        self.connection.start_answer(self.stream_id)

    def write(self, message: Any) -> None:
        """Send one message of a stream."""
        self.write_frame(encode_frame(message.SerializeToString()))

    def write_frame(self, frame: bytes) -> None:
        """Send one encoded message of a stream."""
        if not self.is_over:
            self.connection.start_answer(self.stream_id)
            self.connection.data(self.stream_id, frame)

    def end_call(self, code: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call after everything written."""
        if not self.is_over:
            self._note(code.name, has_waited=True)
            if self.delivery is None:
                self.over()
            self.connection.end_answer(self.stream_id, code, text)

    def _note(self, response: str, *, has_waited: bool) -> None:
        rpc = self.rpc
        if rpc.times is not None:
            kind = _labels_of(rpc.metric_name, response, has_waited)
            rpc.times.add_named(kind, self._began_s)

    def over(self, unsent: int = 0) -> None:
        """Mark the call as over; *unsent* messages were not sent."""
        self.is_over = True
        delivery, self.delivery = self.delivery, None
        if unsent and delivery is not None:
            delivery.lost(unsent)
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None


def reply_when_safe(store: MessageStore, call: Call, reply: Any, end_offset: int) -> Any:
    """Return *reply* if the log is safe up to *end_offset*; else None, and reply once it is."""
    if end_offset <= store.safe_point.high_watermark:
        return reply

    def release(error: StoreError | None) -> None:
        if isinstance(error, (StoreFailedError, NotReplicatedError)):
            reply.status.CopyFrom(build_unconfirmed_status(error))
        call.reply(reply)

    store.safe_point.when(end_offset, release)
    return None
