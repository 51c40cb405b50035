"""One connection: what a client may do, what it may not, and what it is sent."""

import struct
from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.http2 import frames
from rockhopper.protocol.http2.connection import (
    IDLE_FRAMES_MAX,
    RESETS_MAX,
    DataSent,
    Http2Connection,
    Received,
    RequestStarted,
    StreamEnded,
)
from rockhopper.protocol.http2.errors import ErrorCode
from rockhopper.protocol.http2.frames import PREFACE, FrameType, frame, read_head
from rockhopper.protocol.http2.hpack import encode_fields
from rockhopper.protocol.http2.settings import STREAMS_MAX, WINDOW_BYTES

SETTINGS = frame(FrameType.SETTINGS, 0, 0)
HEAD = encode_fields([(":method", "POST"), (":scheme", "http"), (":path", "/x")])
TRAILERS = encode_fields([("grpc-status", "0")])
OPEN, END = frames.FLAG_END_HEADERS, frames.FLAG_END_HEADERS | frames.FLAG_END_STREAM


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connection(clock: Clock) -> Http2Connection:
    made = Http2Connection(clock)
    made.receive(PREFACE + SETTINGS)
    made.drain()
    return made


def headers(stream_id: int, flags: int = END, block: bytes = HEAD) -> bytes:
    return frame(FrameType.HEADERS, flags, stream_id, block)


def settings(**values: int) -> bytes:
    numbers = {"window": 4, "frame": 5}
    pairs = b"".join(struct.pack(">HL", numbers[name], value) for name, value in values.items())
    return frame(FrameType.SETTINGS, 0, 0, pairs)


def sent(connection: Http2Connection) -> list[tuple[int, int, int, bytes]]:
    """(type, flags, stream, payload) of each frame that is to be written."""
    data, found, position = connection.drain(), [], 0
    while position < len(data):
        high, low, kind, flags, stream_id = read_head(data, position)
        end = position + 9 + (high << 16 | low)
        found.append((kind, flags, stream_id, data[position + 9 : end]))
        position = end
    return found


def code_of(connection: Http2Connection, kind: int) -> int:
    """The error code in the last frame of a kind that is sent."""
    payload = [each for each in sent(connection) if each[0] == kind][-1][3]
    return int.from_bytes(payload[:4] if kind == FrameType.RST_STREAM else payload[4:8], "big")


def test_a_request_comes_in_pieces_and_is_answered(connection: Http2Connection) -> None:
    data = headers(1, OPEN) + frame(FrameType.DATA, 1, 1, b"hello")
    events = [event for octet in data for event in connection.receive(bytes([octet]))]
    asked = RequestStarted(1, {":method": "POST", ":scheme": "http", ":path": "/x"}, False)
    assert events == [asked, Received(1, b"hello", True)]
    connection.headers(1, HEAD)
    connection.data(1, b"world")
    connection.end_stream(1, TRAILERS)
    assert [(kind, flags, stream_id) for kind, flags, stream_id, _ in sent(connection)] == [
        (FrameType.HEADERS, OPEN, 1),
        (FrameType.DATA, 0, 1),
        (FrameType.HEADERS, END, 1),
    ]
    assert connection.open_streams == 0


@pytest.mark.parametrize("size", [5, 20_000])
def test_a_whole_answer_is_the_same_in_one_piece(connection: Http2Connection, size: int) -> None:
    connection.receive(headers(1) + headers(3))
    connection.headers(1, HEAD)
    connection.data(1, b"x" * size)
    connection.end_stream(1, TRAILERS)
    in_pieces = [(each[0], each[1], each[3]) for each in sent(connection)]
    connection.answer(3, HEAD, b"x" * size, TRAILERS)
    assert [(each[0], each[1], each[3]) for each in sent(connection)] == in_pieces
    connection.answer(5, HEAD, b"nobody asked", TRAILERS)
    assert (connection.drain(), connection.open_streams) == (b"", 0)


def test_it_talks_to_another_implementation(clock: Clock) -> None:
    ours = Http2Connection(clock)
    theirs = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    theirs.initiate_connection()
    ours.receive(theirs.data_to_send())
    head = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "here")]
    theirs.send_headers(1, head)
    for _ in range(10):
        theirs.send_data(1, b"x" * 6000)
    theirs.end_stream(1)
    events = ours.receive(theirs.data_to_send())
    assert sum(len(event.data) for event in events if isinstance(event, Received)) == 60_000
    ours.headers(1, encode_fields([(":status", "200")]))
    ours.data(1, b"y" * 100_000)
    ours.end_stream(1, TRAILERS)
    received, is_ended = 0, False
    while not is_ended:
        for event in theirs.receive_data(ours.drain()):
            if isinstance(event, h2.events.DataReceived):
                received += len(event.data)
                theirs.acknowledge_received_data(event.flow_controlled_length, 1)
            is_ended |= isinstance(event, h2.events.StreamEnded)
        ours.receive(theirs.data_to_send())
    assert received == 100_000


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(FrameType.HEADERS, END, 0, HEAD), ErrorCode.PROTOCOL_ERROR),
        (headers(2), ErrorCode.PROTOCOL_ERROR),
        (headers(3) + headers(1), ErrorCode.STREAM_CLOSED),
        (frame(FrameType.DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.RST_STREAM, 0, 1, b"\0\0\0\0"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.RST_STREAM, 0, 1, b"\0"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.PING, 0, 0, b"1234567"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.PING, 0, 1, b"12345678"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.GOAWAY, 0, 1, b"\0" * 8), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.SETTINGS, 1, 0, b"\0" * 6), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.PUSH_PROMISE, 0, 1, b"\0" * 8), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.PRIORITY, 0, 0, b"\0" * 5), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.CONTINUATION, 4, 1, HEAD), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.WINDOW_UPDATE, 0, 0, b"\0\0\0\0"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), ErrorCode.FLOW_CONTROL_ERROR),
        (frame(FrameType.WINDOW_UPDATE, 0, 0, b"\0"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.WINDOW_UPDATE, 0, 9, b"\0\0\0\1"), ErrorCode.PROTOCOL_ERROR),
        (headers(1, 1) + frame(FrameType.PING, 0, 0, b"\0" * 8), ErrorCode.PROTOCOL_ERROR),
        (headers(1, block=b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (frame(FrameType.HEADERS, END | 8, 1, b"\x09abc"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.DATA, 0, 1, b"x" * 16_385), ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_what_a_client_may_not_do_ends_the_connection(
    connection: Http2Connection, data: bytes, code: ErrorCode
) -> None:
    connection.receive(data)
    assert connection.is_over
    assert code_of(connection, FrameType.GOAWAY) == code
    assert connection.receive(headers(1)) == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (headers(1, block=encode_fields([(":method", "GET")])), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frame(FrameType.DATA, 0, 1, b"x"), ErrorCode.STREAM_CLOSED),
        (headers(1) + headers(1), ErrorCode.STREAM_CLOSED),
        (headers(1, OPEN) + headers(1, OPEN, TRAILERS), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frame(FrameType.WINDOW_UPDATE, 0, 1, b"\0" * 4), ErrorCode.PROTOCOL_ERROR),
        (
            headers(1) + frame(FrameType.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"),
            ErrorCode.FLOW_CONTROL_ERROR,
        ),
        (headers(1) + frame(FrameType.PRIORITY, 0, 1, b"\0\0\0\1\0"), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frame(FrameType.PRIORITY, 0, 1, b"\0"), ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_what_a_stream_may_not_do_ends_the_stream(
    connection: Http2Connection, data: bytes, code: ErrorCode
) -> None:
    connection.receive(data)
    assert not connection.is_over
    assert code_of(connection, FrameType.RST_STREAM) == code
    assert connection.receive(headers(3)) != []


def test_a_body_is_as_long_as_was_said(connection: Http2Connection) -> None:
    block = HEAD + encode_fields([("content-length", "3")])
    connection.receive(headers(1, OPEN, block) + frame(FrameType.DATA, 1, 1, b"four"))
    assert code_of(connection, FrameType.RST_STREAM) == ErrorCode.PROTOCOL_ERROR


def test_a_block_may_be_in_several_frames_but_not_in_many(connection: Http2Connection) -> None:
    pieces = frame(FrameType.CONTINUATION, 0, 1, HEAD[1:2]) + frame(
        FrameType.CONTINUATION, OPEN, 1, HEAD[2:]
    )
    (asked,) = connection.receive(headers(1, 1, HEAD[:1]) + pieces)
    assert asked.stream_id == 1
    connection.receive(headers(3, 1, HEAD[:1]))
    for _ in range(9):
        connection.receive(frame(FrameType.CONTINUATION, 0, 3, b""))
    assert code_of(connection, FrameType.GOAWAY) == ErrorCode.ENHANCE_YOUR_CALM


def test_the_first_bytes_say_that_it_is_http_2(clock: Clock) -> None:
    for data in (b"GET / HTTP/1.1\r\n", PREFACE + frame(FrameType.PING, 0, 0, b"\0" * 8)):
        connection = Http2Connection(clock)
        connection.receive(data)
        assert connection.is_over


def open_and_reset(stream_id: int) -> bytes:
    return headers(stream_id, OPEN) + frame(FrameType.RST_STREAM, 0, stream_id, b"\0\0\0\x08")


@pytest.mark.parametrize(
    ("flood", "allowed"),
    [
        pytest.param(open_and_reset, RESETS_MAX, id="rapid reset"),
        pytest.param(
            lambda number: headers(number) + frame(FrameType.WINDOW_UPDATE, 0, number, b"\0" * 4),
            RESETS_MAX,
            id="streams that we have to reset",
        ),
        pytest.param(lambda _: SETTINGS, IDLE_FRAMES_MAX, id="settings"),
        pytest.param(lambda _: frame(FrameType.PING, 0, 0, b"\0" * 8), IDLE_FRAMES_MAX, id="pings"),
        pytest.param(lambda _: frame(77, 0, 0, b"?"), IDLE_FRAMES_MAX, id="unknown frames"),
        pytest.param(
            lambda number: frame(FrameType.PRIORITY, 0, number, b"\0" * 5),
            IDLE_FRAMES_MAX,
            id="priorities",
        ),
    ],
)
def test_a_flood_of_what_costs_nothing_ends_the_connection(
    connection: Http2Connection, clock: Clock, flood: Callable[[int], bytes], allowed: int
) -> None:
    for number in range(allowed):
        connection.receive(flood(2 * number + 1))
        connection.drain()
    assert not connection.is_over
    clock.now_s = 1.0
    connection.receive(flood(2 * allowed + 1))
    assert not connection.is_over
    for number in range(allowed + 1, 2 * allowed):
        connection.receive(flood(2 * number + 1))
    assert code_of(connection, FrameType.GOAWAY) == ErrorCode.ENHANCE_YOUR_CALM


def test_who_asks_for_much_may_ping_much(connection: Http2Connection) -> None:
    """Go's client pings once for each burst of data."""
    ping = frame(FrameType.PING, 0, 0, b"\0" * 8)
    for number in range(2 * IDLE_FRAMES_MAX):
        connection.receive(headers(2 * number + 1) + ping + ping)
        connection.end_stream(2 * number + 1, TRAILERS)
        connection.drain()
    assert not connection.is_over


def test_empty_data_is_a_flood_too(connection: Http2Connection) -> None:
    connection.receive(headers(1, OPEN))
    for _ in range(IDLE_FRAMES_MAX + 1):
        connection.receive(frame(FrameType.DATA, 0, 1))
    assert code_of(connection, FrameType.GOAWAY) == ErrorCode.ENHANCE_YOUR_CALM


def test_more_streams_than_may_be_are_refused(connection: Http2Connection) -> None:
    for number in range(STREAMS_MAX):
        connection.receive(headers(2 * number + 1))
    connection.drain()
    assert connection.receive(headers(2 * STREAMS_MAX + 1)) == []
    assert code_of(connection, FrameType.RST_STREAM) == ErrorCode.REFUSED_STREAM


def test_a_peer_keeps_to_the_window_of_a_stream(connection: Http2Connection) -> None:
    connection.receive(headers(1, OPEN))
    piece = frame(FrameType.DATA, 0, 1, b"x" * 16_384)
    for _ in range(WINDOW_BYTES // 16_384):
        connection.receive(piece)
    updates = [each for each in sent(connection) if each[0] == FrameType.WINDOW_UPDATE]
    assert updates
    assert {each[2] for each in updates} == {1}
    for _ in range(2 * WINDOW_BYTES // 16_384):
        # It makes room as it reads, so this is never too much.
        connection.receive(piece)
    assert not connection.is_over


def test_windows_hold_back_what_is_sent(connection: Http2Connection) -> None:
    connection.receive(settings(window=10) + headers(1) + headers(3))
    for stream_id in (1, 3):
        connection.headers(stream_id, HEAD)
        assert connection.data(stream_id, b"x" * 25) is False
        connection.end_stream(stream_id, TRAILERS)
    assert [len(each[3]) for each in sent(connection) if each[0] == FrameType.DATA] == [10, 10]
    assert connection.open_streams == 2
    events = connection.receive(frames.window_update(1, 100))
    assert events == [DataSent(1)]
    assert [each[:3] for each in sent(connection)][-1] == (FrameType.HEADERS, END, 1)
    connection.receive(settings(window=20))
    assert [len(each[3]) for each in sent(connection) if each[0] == FrameType.DATA] == [10]
    connection.receive(settings(window=5))
    connection.receive(frames.window_update(3, 15))
    assert [each for each in sent(connection) if each[0] == FrameType.DATA] == []


def test_a_pause_holds_back_too(connection: Http2Connection) -> None:
    connection.receive(headers(1))
    connection.paused = True
    connection.headers(1, HEAD)
    connection.data(1, b"x")
    connection.data(1, b"y")
    connection.end_stream(1, TRAILERS)
    assert [each[0] for each in sent(connection)] == [FrameType.HEADERS]
    assert connection.resume() == [DataSent(1)]
    assert [each[3] for each in sent(connection) if each[0] == FrameType.DATA] == [b"x", b"y"]


def test_who_gives_up_says_how_much_did_not_go_out(connection: Http2Connection) -> None:
    connection.receive(settings(window=4) + headers(1))
    for data in (b"1234", b"5678", b"90"):
        connection.data(1, data)
    (ended,) = connection.receive(frame(FrameType.RST_STREAM, 0, 1, b"\0\0\0\x08"))
    assert ended == StreamEnded(1, 2)
    connection.receive(headers(3))
    assert connection.end_all() == [StreamEnded(3, 0)]


def test_what_is_on_its_way_to_a_stream_that_was_given_up_is_passed_over(
    connection: Http2Connection,
) -> None:
    connection.receive(headers(1, OPEN))
    connection.end_stream(1, TRAILERS)
    assert [each[0] for each in sent(connection)] == [FrameType.HEADERS, FrameType.RST_STREAM]
    late = frame(FrameType.DATA, 0, 1, b"late") + headers(1, END, TRAILERS)
    assert connection.receive(late) == []
    assert sent(connection) == []


def test_who_leaves_finishes_what_is_open(connection: Http2Connection) -> None:
    connection.receive(headers(1))
    connection.leave()
    assert code_of(connection, FrameType.GOAWAY) == ErrorCode.NO_ERROR
    assert connection.receive(headers(3)) == []
    connection.end_stream(1, TRAILERS)
    assert [each[0] for each in sent(connection)][-1] == FrameType.HEADERS


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=12), st.booleans())
def test_any_bytes_leave_the_connection_as_it_was_or_end_it(
    pieces: list[bytes], is_framed: bool
) -> None:
    connection = Http2Connection(lambda: 0.0)
    connection.receive(PREFACE + SETTINGS)
    for piece in pieces:
        data = frame(piece[0] % 11, piece[-1], len(piece) % 7, piece) if is_framed else piece
        connection.receive(data)
        connection.drain()
    assert connection.is_over == (connection.failure is not None)
