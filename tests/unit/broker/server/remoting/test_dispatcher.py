"""What the dispatcher makes of an error: a remark that is short, for people, and no traceback."""

import asyncio
import errno
import inspect
import os
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.server.remoting.dispatcher import (
    REFUSAL_CODES,
    SLOW_REQUESTS_PER_CONNECTION_MAX,
    Dispatcher,
    Processor,
    Request,
    RequestError,
    Response,
    Wrap,
    serves,
)
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    RecordTooLargeError,
    StoreBusyError,
    StoreFailedError,
)
from rockhopper.broker.users import errors
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.errors import Refusal, TooManyWait, TopicNotFound
from rockhopper.protocol.codes import FLAG_ONEWAY, ResponseCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.tasks import end_tasks
from tests.support.peers import Peer


def fail(_: Request) -> Response:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_an_error_of_the_disk_is_answered_and_logged_in_a_sentence() -> None:
    dispatcher = Dispatcher({99: serves(fail)}, AccessRules(remote_admin=False))
    with capture_logs() as lines:
        answer = dispatcher.dispatch(Peer().connection, Command(99, opaque=1))
    (frame,) = FrameDecoder().feed(answer)
    command = decode_header(*frame)
    assert command.code == ResponseCode.SYSTEM_ERROR
    assert command.remark == "the disk failed (Input/output error): check the broker's disk"
    assert [(line["event"], "exc_info" in line) for line in lines] == [
        ("request failed because of the disk", False)
    ]


def refuse(_: Request) -> Response:
    raise TopicNotFound(f"topic[{'x' * 10_000}] not exist, apply first please!")


def test_a_clients_long_value_is_not_sent_back_whole() -> None:
    dispatcher = Dispatcher({99: serves(refuse)}, AccessRules(remote_admin=False))
    (frame,) = FrameDecoder().feed(dispatcher.dispatch(Peer().connection, Command(99, opaque=1)))
    remark = decode_header(*frame).remark or ""
    assert remark.startswith("topic[xxx")
    assert remark.endswith("x] not exist, apply first please!")
    assert len(remark) < 1000


def ask(processor: Processor, code: int = 99, flag: int = 0, ext: Any = None) -> Command:
    """Return the answer to a request of code 99, which *processor* serves."""
    dispatcher = Dispatcher({99: serves(processor)}, AccessRules(remote_admin=False))
    command = Command(code, opaque=7, flag=flag, ext=ext)
    (frame,) = FrameDecoder().feed(dispatcher.dispatch(Peer().connection, command))
    return decode_header(*frame)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound("no topic"), ResponseCode.TOPIC_NOT_EXIST),
        (TooManyWait("too many"), ResponseCode.SYSTEM_BUSY),
        (RequestError(ResponseCode.NO_MESSAGE, "nothing"), ResponseCode.NO_MESSAGE),
        (FieldError("topic", "is missing", is_missing=True), ResponseCode.SYSTEM_ERROR),
        (FieldError("queueId", "is no number"), ResponseCode.INVALID_PARAMETER),
        (RecordTooLargeError("too large"), ResponseCode.MESSAGE_ILLEGAL),
        (StoreBusyError("too much waits"), ResponseCode.SYSTEM_BUSY),
        (DiskFullError("no room"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (StoreFailedError("an fsync failed"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (OSError(errno.ENOSPC, "No space left"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (OSError(errno.EMFILE, "Too many open files"), ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
    ids=lambda value: value.name if isinstance(value, ResponseCode) else repr(value),
)
def test_an_error_of_a_processor_has_its_code_and_no_line_in_the_log(
    error: Exception, code: ResponseCode
) -> None:
    def fail(_: Request) -> Response:
        raise error

    with capture_logs() as lines:
        answer = ask(fail)
    assert (answer.code, answer.opaque, lines) == (code, 7, [])
    assert answer.remark


def test_our_own_mistake_is_answered_and_logged_with_its_traceback() -> None:
    def fail(_: Request) -> Response:
        raise KeyError("orders")

    with capture_logs() as lines:
        answer = ask(fail)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "KeyError: 'orders'")
    assert [(line["event"], "exc_info" in line) for line in lines] == [("request failed", True)]


def test_every_refusal_has_a_code() -> None:
    refusals = {each for each in vars(errors).values() if isinstance(each, type)}
    assert REFUSAL_CODES.keys() == {each for each in refusals if issubclass(each, Refusal)}


def test_a_code_that_nobody_serves_is_not_supported() -> None:
    answer = ask(lambda _: Response(), code=98)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "98" in (answer.remark or "")


def test_a_oneway_request_is_served_and_gets_no_answer_even_to_an_error() -> None:
    served: list[int] = []

    def fail(request: Request) -> Response:
        served.append(request.code)
        raise TopicNotFound("no topic")

    dispatcher = Dispatcher({99: serves(fail)}, AccessRules(remote_admin=False))
    command = Command(99, opaque=1, flag=FLAG_ONEWAY)
    assert (dispatcher.dispatch(Peer().connection, command), served) == (b"", [99])


async def test_slow_requests_of_one_connection_are_limited_until_they_end() -> None:
    ends = asyncio.Event()

    async def serve_slowly(_: Request) -> Response:
        await ends.wait()
        return Response()

    dispatcher = Dispatcher({99: serves(serve_slowly)}, AccessRules(remote_admin=False))
    peer, other = Peer(), Peer()
    for opaque in range(SLOW_REQUESTS_PER_CONNECTION_MAX):
        assert dispatcher.dispatch(peer.connection, Command(99, opaque=opaque)) == b""
    (frame,) = FrameDecoder().feed(dispatcher.dispatch(peer.connection, Command(99, opaque=1)))
    assert decode_header(*frame).code == ResponseCode.SYSTEM_BUSY
    assert dispatcher.dispatch(other.connection, Command(99, opaque=1)) == b""
    ends.set()
    await asyncio.gather(*dispatcher.tasks)
    assert len(peer.written) == SLOW_REQUESTS_PER_CONNECTION_MAX
    assert dispatcher.dispatch(peer.connection, Command(99, opaque=1)) == b""
    await asyncio.gather(*dispatcher.tasks)


async def test_slow_requests_that_are_cancelled_before_their_turn_are_closed() -> None:
    async def serve_slowly(_: Request) -> Response:
        return Response()

    made: list[Coroutine[Any, Any, Response]] = []

    def process(request: Request) -> Coroutine[Any, Any, Response]:
        made.append(serve_slowly(request))
        return made[-1]

    dispatcher = Dispatcher({99: serves(process)}, AccessRules(remote_admin=False))
    for opaque in range(2):
        dispatcher.dispatch(Peer().connection, Command(99, opaque=opaque))
    await end_tasks(dispatcher.tasks)
    assert list(map(inspect.getcoroutinestate, made)) == [inspect.CORO_CLOSED] * 2


def test_a_wrap_sees_requests_only_while_it_has_objects() -> None:
    objects: list[str] = []

    def process(request: Request, processor: Processor) -> Response:
        response = processor(request)
        assert isinstance(response, Response)
        return Response(response.code, f"wrapped for {objects}")

    row = serves(lambda _: Response(3, "plain"))._replace(wrap=Wrap(objects, process))
    dispatcher = Dispatcher({99: row}, AccessRules(remote_admin=False))
    remarks = []
    for _ in range(2):
        answer = dispatcher.dispatch(Peer().connection, Command(99, opaque=1))
        (frame,) = FrameDecoder().feed(answer)
        remarks.append(decode_header(*frame).remark)
        objects.append("orders")
    assert remarks == ["plain", "wrapped for ['orders']"]


class Staging:
    """Requests of code 99 that are served together; all fail if *error* is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.written: list[list[int]] = []

    def stage(self, request: Request) -> int:
        if request.opaque == 2:
            raise TopicNotFound("no topic")
        return request.opaque

    def write(self, staged: Sequence[int]) -> list[Response]:
        self.written.append(list(staged))
        if self.error is not None:
            raise self.error
        return [Response(remark=str(opaque)) for opaque in staged]


@pytest.mark.parametrize(
    ("error", "code"), [(None, ResponseCode.SUCCESS), (ValueError("a bug"), 1)]
)
def test_requests_that_are_served_together_are_answered_one_by_one(
    error: Exception | None, code: int
) -> None:
    together = Staging(error)
    row = serves(refuse)._replace(together=together)
    dispatcher = Dispatcher({99: row}, AccessRules(remote_admin=False))
    assert dispatcher.find_together(99) is together
    assert dispatcher.find_together(98) is None
    asked = [(Peer().connection, Command(99, opaque=opaque)) for opaque in (1, 2, 3)]
    asked[2][1].flag = FLAG_ONEWAY
    with capture_logs() as lines:
        *frames, oneway = dispatcher.dispatch_together(together, asked)
    assert together.written == [[1, 3]]
    answers = [decode_header(*FrameDecoder().feed(frame)[0]) for frame in frames]
    assert [(answer.opaque, answer.code) for answer in answers] == [
        (1, code),
        (2, ResponseCode.TOPIC_NOT_EXIST),
    ]
    assert oneway == b""
    assert len(lines) == (0 if error is None else 2)


def test_requests_that_a_feature_wraps_are_served_one_by_one() -> None:
    wrap = Wrap([object()], lambda request, process: process(request))
    row = serves(refuse)._replace(together=Staging(), wrap=wrap)
    assert Dispatcher({99: row}, AccessRules(remote_admin=False)).find_together(99) is None
