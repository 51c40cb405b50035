"""The general pass: every frame answered by one write, within the time and size of a pass."""

from typing import Any, cast

import pytest

from rockhopper.broker.loop.rounds import PASS_BYTES_MAX, PASS_S
from rockhopper.broker.remoting.general_pass import frame_handler
from rockhopper.broker.remoting.server import Connection
from rockhopper.protocol.codes import FLAG_RESPONSE
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder


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

    def dispatch(connection: Connection, command: Command) -> bytes:
        return answer or b"<%d>" % command.opaque

    handle = frame_handler(dispatch, clock)
    return connected, handle(cast(Connection, connected), given)


def test_all_answers_leave_in_one_write() -> None:
    connected, taken = served(frames(1, 2, 3))
    assert taken == 3
    assert connected.written == [b"<1><2><3>"]


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
