"""The general pass: every frame answered by one write, within the time and size of a pass."""

from typing import Any, cast

import pytest

from rockhopper.broker.server.loop.fair_scheduler import PASS_BYTES_MAX, PASS_S
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Dispatcher, Request, Response, Row, serves
from rockhopper.broker.server.remoting.general_pass import GeneralPass
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.codes import FLAG_RESPONSE, RequestCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from tests.support.handlers import dispatching


class Connected:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.failures: list[Exception] = []
        self.responses: list[int] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def fail(self, error: Exception) -> None:
        self.failures.append(error)

    def response_received(self, command: Command) -> None:
        self.responses.append(command.opaque)


def frames(*opaques: int, flag: int = 0) -> list[Frame]:
    return FrameDecoder().feed(
        b"".join(encode_command(Command(code=1, opaque=opaque, flag=flag)) for opaque in opaques)
    )


def served(
    given: list[Frame], answer: bytes = b"", clock: Any = lambda: 0.0
) -> tuple[Connected, int]:
    connected = Connected()

    def dispatch(connection: RemotingConnection, command: Command) -> bytes:
        return answer or b"<%d>" % command.opaque

    general_pass = GeneralPass(dispatching(dispatch), clock)
    return connected, general_pass.serve_frames(cast(RemotingConnection, connected), given)


def answered(connected: Connected) -> list[int]:
    frames = FrameDecoder().feed(b"".join(connected.written))
    return [decode_header(*frame).opaque for frame in frames]


def test_all_answers_leave_in_one_write() -> None:
    connected, taken = served(frames(1, 2, 3))
    assert taken == 3
    assert connected.written == [b"<1><2><3>"]


async def test_a_promise_is_held_while_the_lease_may_be_over() -> None:
    gate = LeaseGate(lambda: is_open, 3000)
    is_open = False
    connected = Connected()

    def respond(_request: Request) -> Response:
        return Response()

    table: dict[int, Row] = {
        RequestCode.UPDATE_CONSUMER_OFFSET: serves(respond),
        RequestCode.GET_MAX_OFFSET: serves(respond, promises_state=False),
    }
    dispatcher = Dispatcher(table, AccessRules(remote_admin=False), gate=gate)
    commit = Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, opaque=1)
    read = Command(code=RequestCode.GET_MAX_OFFSET, opaque=2)
    given = FrameDecoder().feed(encode_command(commit) + encode_command(read))
    general_pass = GeneralPass(dispatcher)
    general_pass.serve_frames(cast(RemotingConnection, connected), given)
    assert answered(connected) == [2]
    is_open = True
    gate.look()
    assert answered(connected) == [2, 1]
    gate.close()


def test_an_answer_of_the_peers_is_handed_on() -> None:
    connected, taken = served([*frames(1), *frames(8, flag=FLAG_RESPONSE), *frames(2)])
    assert taken == 3
    assert connected.responses == [8]
    assert connected.written == [b"<1><2>"]


def test_a_header_that_cannot_be_read_ends_the_connection_behind_the_answers() -> None:
    given = [*frames(1), (0, b"nonsense", b""), *frames(2)]
    connected, taken = served(given)
    assert taken == 3
    assert connected.written == [b"<1>"]
    assert len(connected.failures) == 1


@pytest.mark.parametrize(("size_bytes", "expected"), [(PASS_BYTES_MAX, 2), (PASS_BYTES_MAX + 1, 1)])
def test_a_pass_ends_when_its_answers_are_large(size_bytes: int, expected: int) -> None:
    _, taken = served(frames(1, 2, 3), answer=bytes(size_bytes))
    assert taken == expected


def test_a_pass_ends_when_its_time_is_over() -> None:
    _, taken = served(frames(1, 2, 3), clock=iter([0.0, 0.0, PASS_S, PASS_S]).__next__)
    assert taken == 2
