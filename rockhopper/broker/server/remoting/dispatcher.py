"""The dispatcher: runs the processor of each request code, and turns every error into a code.

A processor is a plain function that returns a Response at once, or holds the request and returns
None. Processors of rare, slow codes may be coroutines. Whatever a processor raises becomes a
response here and nowhere else:

    Refusal of broker/users         the code of its class, in REFUSAL_CODES
    RequestError                    its own code and remark
    FieldError                      1 for a missing field, 29 for one that does not parse
    StoreError                      14 disk full or failed, 13 record too large, 2 too many wait
    OSError of a full disk          14
    OSError without a descriptor    14
    OSError of a failing disk       1, and one log line without a traceback
    anything else                   1, and one log line, because it is a bug
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import structlog

from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.loop.latencies import RequestTimes
from rockhopper.broker.server.remoting.gate import admit, admit_again
from rockhopper.broker.server.remoting.permissions import ADMINISTRATION, RequiredPermission
from rockhopper.broker.store.files.descriptors import shortage_of
from rockhopper.broker.store.files.disk import DISK_FULL_ERRNOS
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    NotReplicatedError,
    RecordTooLargeError,
    StoreBusyError,
    StoreError,
    StoreFailedError,
    TooManyOpenFilesError,
)
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users import errors
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.codes import FLAG_RESPONSE, MQ_VERSION, ResponseCode
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.errors import FieldError, ProtocolError
from rockhopper.protocol.requests import decode_fields
from rockhopper.tasks import run_in_background

if TYPE_CHECKING:
    from rockhopper.broker.server.remoting.connection import RemotingConnection
    from rockhopper.broker.store.safe_point import SafePoint

log = structlog.get_logger("broker.dispatcher")

# The limit of one peer's concurrent coroutine requests; a peer that reads its responses before it
# sends more never gets near it.
SLOW_REQUESTS_PER_CONNECTION_MAX = 128

Fields = TypeVar("Fields")


class Response:
    """A response; the dispatcher adds opaque and serialisation from the request."""

    __slots__ = ("body", "code", "ext", "remark")

    def __init__(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        self.code = code
        self.remark = remark
        self.ext = ext
        self.body = body


REFUSAL_CODES: dict[type[errors.Refusal], ResponseCode] = {
    errors.Refusal: ResponseCode.SYSTEM_ERROR,
    errors.FilterNotFound: ResponseCode.FILTER_DATA_NOT_EXIST,
    errors.GroupNotFound: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    errors.IllegalMessage: ResponseCode.MESSAGE_ILLEGAL,
    errors.IllegalOperation: ResponseCode.ILLEGAL_OPERATION,
    errors.InvalidParameter: ResponseCode.INVALID_PARAMETER,
    errors.NoPermission: ResponseCode.NO_PERMISSION,
    errors.NotAuthenticated: ResponseCode.NO_PERMISSION,
    errors.SubscriptionNotFound: ResponseCode.SUBSCRIPTION_NOT_EXIST,
    errors.SubscriptionNotParsed: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    errors.SubscriptionOutdated: ResponseCode.SUBSCRIPTION_NOT_LATEST,
    errors.TooManyWait: ResponseCode.SYSTEM_BUSY,
    errors.TopicNotFound: ResponseCode.TOPIC_NOT_EXIST,
}


class RequestError(Exception):
    """A rejection by a processor: a response code and a remark in plain words."""

    def __init__(self, code: int, remark: str, ext: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = ext


def choose_unconfirmed_code(error: StoreError) -> int:
    """Return the code for a message in the log that is unconfirmed because of *error*.

    Java producers treat a time-out as sent, and send again to another broker if the disk has
    failed.
    """
    if isinstance(error, StoreFailedError):
        return ResponseCode.SERVICE_NOT_AVAILABLE
    if isinstance(error, NotReplicatedError):
        return ResponseCode.FLUSH_SLAVE_TIMEOUT
    return ResponseCode.FLUSH_DISK_TIMEOUT


class Request:
    """One decoded request and its connection."""

    __slots__ = (
        "_access",
        "_began_s",
        "_gate",
        "_may_wait",
        "_permissions",
        "_principal",
        "_times",
        "command",
        "connection",
    )

    def __init__(
        self,
        connection: "RemotingConnection",
        command: Command,
        times: RequestTimes | None = None,
        gate: LeaseGate | None = None,
        *,
        may_wait: bool = False,
    ) -> None:
        """*times* counts its response, which is sent through *gate*; *may_wait* is as in Row."""
        self._gate = gate
        self._may_wait = may_wait
        self.connection = connection
        self.command = command
        self._principal: Principal | None = None
        self._times = times
        self._began_s = 0.0 if times is None else times.now_s()
        self._access: AccessRules | None = None
        self._permissions: tuple[RequiredPermission, ...] = ()

    @property
    def code(self) -> int:
        """The request code as sent."""
        return self.command.code

    @property
    def opaque(self) -> int:
        """The number that the response must repeat."""
        return self.command.opaque

    @property
    def principal(self) -> Principal:
        """The principal of the request; it has a user once the gate has verified the signature."""
        return self._principal or self.connection.principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def local_host(self) -> str:
        """The local address of the connection."""
        return self.connection.addresses.local_host

    @property
    def attributes(self) -> dict[str, object]:
        """The attributes of the connection."""
        return self.connection.attributes

    @property
    def ext(self) -> dict[str, str]:
        """The header fields as sent; empty if there were none."""
        return self.command.ext or {}

    @property
    def body(self) -> bytes:
        """The body as sent; empty if there was none."""
        return self.command.body

    @property
    def version(self) -> int:
        """The client's MQVersion ordinal."""
        return self.command.version

    @property
    def oneway(self) -> bool:
        """Whether the client wants no response, not even an error."""
        return self.command.is_oneway

    def admit(self, access: AccessRules, permissions: tuple[RequiredPermission, ...]) -> None:
        """Return if *access* allows the request. Raises a Refusal, or MalformedBodyError."""
        admit(access, self, permissions)
        self._access, self._permissions = access, permissions

    def check_access(self) -> None:
        """Return if the sender may still do this, for requests that have waited.

        Raises:
            NoPermission, MalformedBodyError: it may not.
        """
        if self._may_wait:
            self.check_permissions(self._permissions)

    def check_permissions(self, permissions: tuple[RequiredPermission, ...]) -> None:
        """Return if the sender has *permissions*, for requests with parts.

        Raises:
            NoPermission, MalformedBodyError: it has not.
        """
        if self._access is not None:
            admit_again(self._access, self, permissions)

    def fields(self, cls: type[Fields]) -> Fields:
        """Return the header fields as *cls* of protocol.requests. Raises FieldError."""
        return decode_fields(cls, self.command.ext)

    def answer(self, response: Response) -> None:
        """Write *response* now, unless the request was oneway or its connection is closed."""
        self.note(response, has_waited=self._may_wait)
        if self.oneway:
            return
        gate = self._gate
        if gate is None or response.code != ResponseCode.SUCCESS or gate.is_open():
            self.connection.write(encode_response(self.command, response))
        else:
            gate.hold(partial(self._release, response))

    def _release(self, response: Response, error: StoreError | None) -> None:
        if error is not None:
            response = Response(choose_unconfirmed_code(error), str(error))
        self.connection.write(encode_response(self.command, response))

    def answer_when_safe(
        self,
        response: Response,
        safe_point: "SafePoint",
        end_offset: int,
        get_code: Callable[[StoreError], int] = choose_unconfirmed_code,
    ) -> Response | None:
        """Return *response* if the log is safe up to *end_offset*; else None, and answer later.

        If the disk or the replicas do not confirm it, *get_code* returns the code for the error.
        Every processor that stores a message and acknowledges it ends with this; the pass over many
        sends (reply_batch.py) and coroutines (``SafePoint.wait``) wait for the same offset.
        """
        if end_offset <= safe_point.high_watermark:
            return response

        def release(error: StoreError | None) -> None:
            if error is not None:
                response.code = get_code(error)
                response.remark = str(error)
            self.answer(response)

        safe_point.when(end_offset, release)
        return None

    def note(self, response: Response, *, has_waited: bool = False) -> None:
        """Count the request as answered, for the statistics."""
        if self._times is not None:
            self._times.record_requests(
                self.code,
                response.code,
                self._began_s,
                has_waited=has_waited,
                is_oneway=self.oneway,
            )


Processor = Callable[[Request], Response | Awaitable[Response | None] | None]


class Wrap(NamedTuple):
    """How a feature changes the way in which another's processor serves requests."""

    objects: Collection[object]
    """The objects that the feature does it for. While there is none, it sees no request."""
    process: Callable[[Request, Processor], Response | Awaitable[Response | None] | None]
    """Serves a request, usually by passing it to the processor."""


class Together(Protocol):
    """Serves requests of many connections together, with one write to the log."""

    def stage(self, request: Request) -> Any:
        """Stage the records of a request; raises as a processor."""

    def write(self, staged: Sequence[Any]) -> Sequence[Response | None]:
        """Write what was staged; return the responses, as a processor."""


class Row(NamedTuple):
    """The declaration of a request code, beside the function that serves it."""

    processor: Processor
    permissions: tuple[RequiredPermission, ...]
    promises_state: bool
    """Whether a response promises state, so that a master of a replica set sends it only while
    nobody else can lead the set (store/lease_gate.py). It promises none if it only reads, if
    clients repeat the request, or if it waits until the log is safe."""
    may_wait: bool
    """Whether a request may wait for messages. Its duration shows nothing about the broker, and its
    permissions are checked again before it is answered."""
    wrap: Wrap | None = None
    """What a feature does around the processor."""
    together: Together | None = None
    """Serves many of these requests as the processor serves each."""

    @property
    def is_administration(self) -> bool:
        """Whether only administrators may send it."""
        return ADMINISTRATION in self.permissions


def serves(
    processor: Processor,
    *permissions: RequiredPermission,
    promises_state: bool = True,
    may_wait: bool = False,
) -> Row:
    """Return a row for senders with all *permissions*."""
    return Row(processor, permissions, promises_state, may_wait)


def administers(
    processor: Processor, *permissions: RequiredPermission, promises_state: bool = True
) -> Row:
    """Return a row for administrators."""
    return serves(processor, ADMINISTRATION, *permissions, promises_state=promises_state)


def encode_response(request: Command, response: Response) -> bytes:
    """Return the response frame for *request*, in the request's serialisation."""
    ext, remark = response.ext, response.remark
    if remark is not None:
        remark = errors.shorten(remark)
    if request.ext and request.ext.get("rh") == "1":
        ext = {**(ext or {}), "rh": "1"}
    answer = Command(
        code=response.code,
        opaque=request.opaque,
        flag=FLAG_RESPONSE,
        remark=remark,
        ext=ext,
        body=response.body,
        version=MQ_VERSION,
        serialize_type=request.serialize_type,
    )
    try:
        return encode_command(answer)
    except ValueError as error:
        answer.code, answer.body = ResponseCode.SYSTEM_ERROR, b""
        answer.remark = f"the answer cannot be sent: {error}"
        return encode_command(answer)


def store_error_response(error: StoreError) -> Response:
    """Return the response for a message that the store rejected. Nothing was stored."""
    if isinstance(error, RecordTooLargeError):
        return Response(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if isinstance(error, (DiskFullError, StoreFailedError, TooManyOpenFilesError)):
        return Response(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}")
    if isinstance(error, StoreBusyError):
        return Response(ResponseCode.SYSTEM_BUSY, str(error))
    return Response(ResponseCode.SYSTEM_ERROR, str(error))


def field_error_code(error: FieldError) -> int:
    """Return the code for a header field that is missing, or does not parse."""
    return ResponseCode.SYSTEM_ERROR if error.is_missing else ResponseCode.INVALID_PARAMETER


def refusal_response(error: errors.Refusal) -> Response:
    """Return the remoting response for a refusal."""
    ext = None
    if isinstance(error, errors.NoPermission) and error.by is not None:
        ext = {"forbiddenType": str(error.by.value)}
    return Response(REFUSAL_CODES[type(error)], str(error), ext)


def error_response(error: BaseException) -> Response | None:
    """Return the response for an *error* raised by a processor; None if it is a bug."""
    if isinstance(error, errors.Refusal):
        return refusal_response(error)
    if isinstance(error, RequestError):
        return Response(error.code, error.remark, error.ext)
    if isinstance(error, FieldError):
        return Response(field_error_code(error), str(error))
    if isinstance(error, StoreError):
        return store_error_response(error)
    if isinstance(error, ProtocolError):
        return Response(ResponseCode.SYSTEM_ERROR, str(error))
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        return Response(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"service not available now. the disk is full ({error.strerror}): free space; the "
            "change is in effect until the broker stops, and is saved as soon as there is room",
        )
    if isinstance(error, OSError) and (shortage := shortage_of(error)) is not None:
        return store_error_response(shortage)
    return None


def _build_unsupported(code: int) -> Response:
    remark = f" request type {code} not supported"
    return Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


class Dispatcher:
    """Runs the processor of each request, and responds with its result or error."""

    def __init__(
        self,
        table: Mapping[int, Row],
        access: AccessRules,
        times: RequestTimes | None = None,
        gate: LeaseGate | None = None,
    ) -> None:
        self.gate = gate
        """The caller of ``dispatch`` checks it before writing a response that promises state."""
        self._table = table
        self._times = times
        self.access = access
        self.tasks: set[asyncio.Task[None]] = set()
        """The coroutines that are serving requests."""
        self._slow_counts: dict[RemotingConnection, int] = {}

    def promises_state(self, code: int) -> bool:
        """Return whether responses to a request code promise state; unknown codes may."""
        row = self._table.get(code)
        return row is None or row.promises_state

    def dispatch(self, connection: "RemotingConnection", command: Command) -> bytes:
        """Serve one request; return the frame to write now, empty if there is none (yet)."""
        together = self.find_together(command.code)
        if together is not None:
            return self.dispatch_together(together, [(connection, command)])[0]
        row = self._table.get(command.code)
        if row is None:
            request = Request(connection, command, self._times)
            response: Response | None = _build_unsupported(command.code)
        else:
            request = self._make_request(connection, command, row)
            try:
                response = self._process(request, row)
            except Exception as error:
                response = self._build_failure(request, error)
        return self._respond(request, response)

    def find_together(self, code: int) -> Together | None:
        """Return how requests of a code are served together; None if they are not."""
        row = self._table.get(code)
        is_wrapped = row is not None and row.wrap is not None and row.wrap.objects
        return None if row is None or is_wrapped else row.together

    def dispatch_together(
        self, together: Together, asked: Sequence[tuple["RemotingConnection", Command]]
    ) -> list[bytes]:
        """Serve requests of ``find_together``; return the frames, each as ``dispatch``."""
        requests = [
            self._make_request(connection, command, self._table[command.code])
            for connection, command in asked
        ]
        responses: list[Response | None] = [None] * len(requests)
        staged = {}
        for number, request in enumerate(requests):
            try:
                self._admit(request, self._table[request.code])
                staged[number] = together.stage(request)
            except Exception as error:
                responses[number] = self._build_failure(request, error)
        try:
            written = together.write(list(staged.values()))
        except Exception as error:
            written = [self._build_failure(requests[number], error) for number in staged]
        for number, response in zip(staged, written, strict=True):
            responses[number] = response
        return list(map(self._respond, requests, responses))

    def _make_request(
        self, connection: "RemotingConnection", command: Command, row: Row
    ) -> Request:
        gate = self.gate if row.promises_state else None
        return Request(connection, command, self._times, gate, may_wait=row.may_wait)

    def _admit(self, request: Request, row: Row) -> None:
        if row.is_administration or not self.access.is_open:
            request.admit(self.access, row.permissions)

    def _respond(self, request: Request, response: Response | None) -> bytes:
        if response is not None:
            request.note(response)
        if response is None or request.oneway:
            return b""
        return encode_response(request.command, response)

    def _process(self, request: Request, row: Row) -> Response | None:
        self._admit(request, row)
        wrap = row.wrap
        if wrap is None or not wrap.objects:
            result = row.processor(request)
        else:
            result = wrap.process(request, row.processor)
        if result is None or isinstance(result, Response):
            return result
        return self._serve_later(request, result)

    def _serve_later(self, request: Request, result: Awaitable[Response | None]) -> Response | None:
        connection = request.connection
        slow_count = self._slow_counts.get(connection, 0)
        if slow_count >= SLOW_REQUESTS_PER_CONNECTION_MAX:
            if isinstance(result, Coroutine):
                result.close()
            return Response(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, start flow control for a while: {slow_count} requests "
                "of this connection are in progress",
            )
        self._slow_counts[connection] = slow_count + 1
        task = run_in_background(self._finish(request, result), "a slow request")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        if isinstance(result, Coroutine):  # it may be cancelled before it awaits the result
            task.add_done_callback(lambda _task: result.close())
        return None

    async def _finish(self, request: Request, result: Awaitable[Response | None]) -> None:
        await next_slice()
        try:
            response = await result
        except Exception as error:
            response = self._build_failure(request, error)
        connection = request.connection
        slow_count = self._slow_counts.pop(connection) - 1
        if slow_count:
            self._slow_counts[connection] = slow_count
        if response is not None:
            request.answer(response)

    def _build_failure(self, request: Request, error: Exception) -> Response:
        response = error_response(error)
        if response is not None:
            return response
        if isinstance(error, OSError) and error.errno == errno.EIO:
            log.error(
                "request failed because of the disk",
                code=request.code,
                peer=request.connection.addresses.peer_host,
                reason=str(error),
            )
            reason = f"the disk failed ({error.strerror}): check the broker's disk"
            return Response(ResponseCode.SYSTEM_ERROR, reason)
        log.error(
            "request failed",
            code=request.code,
            peer=request.connection.addresses.peer_host,
            exc_info=error,
        )
        return Response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
