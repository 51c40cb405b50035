"""HTTP/2 of RocketMQ 5 clients: compiled code reads requests as Python does."""

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.protocol.http2 import connection
from rockhopper.protocol.http2.connection import Http2Connection, RequestStarted
from rockhopper.protocol.http2.frames import FLAG_END_HEADERS, FLAG_END_STREAM, FrameType, frame
from rockhopper.protocol.http2.huffman import encode_huffman
from rockhopper.protocol.http2.semantics import check_fields

pytest.importorskip("rockhopper.protocol.http2._frames", reason="it is not compiled")
from tests.fuzz import http2_twins

PSEUDO = [(":method", "POST"), (":scheme", "http"), (":path", "/a/b"), (":authority", "x")]
REGULAR = [
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("grpc-timeout", "29999987u"),
    ("grpc-timeout", "100m"),
    ("x-mq-client-id", "load@1@0"),
]
UNUSUAL = [
    ("te", "gzip"),
    ("content-length", "4"),
    ("content-length", "5"),
    ("connection", "close"),
    ("Upper", "x"),
    ("cookie", "é"),
    (":path", "/twice"),
    (":path", ""),
    (":status", "200"),
    ("long", "x" * 3000),
    ("huge", "y" * 5000),
    ("grpc-timeout", "twice"),
]

OTHERS = [
    frame(FrameType.PING, 0, 0, b"12345678"),
    frame(FrameType.WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
    frame(FrameType.RST_STREAM, 0, 1, b"\0\0\0\x08"),
    frame(FrameType.SETTINGS, 0, 0, b"\0\4\0\0\0\1"),
]


def headers(stream_id: int, block: bytes, flags: int = FLAG_END_HEADERS) -> bytes:
    return frame(FrameType.HEADERS, flags, stream_id, block)


def data(stream_id: int, body: bytes, flags: int = FLAG_END_STREAM) -> bytes:
    return frame(FrameType.DATA, flags, stream_id, body)


def seldom(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 19)) == 19


def block_of(draw: st.DrawFn, encoder: Encoder) -> bytes:
    fields = [*PSEUDO, *draw(st.lists(st.sampled_from(REGULAR), max_size=5, unique=True))]
    if seldom(draw):
        fields.insert(draw(st.integers(0, len(fields))), draw(st.sampled_from(UNUSUAL)))
    if seldom(draw):
        del fields[draw(st.integers(0, len(fields) - 1))]
    if seldom(draw):
        encoder.header_table_size = draw(st.sampled_from([0, 100, 4096, 5000]))
    return encoder.encode(fields, huffman=draw(st.booleans()))


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Return the frames of a client: nearly all are of ordinary requests."""
    encoder, pieces, open_ids, stream_id = Encoder(), [], [], 1
    for step in range(draw(st.integers(2, 16))):
        kind = draw(st.sampled_from(["begin"] * 4 + ["end"] * 4 + ["other"])) if step else "begin"
        if kind == "begin":
            flags = draw(st.sampled_from([5, 0, 0x24])) if seldom(draw) else FLAG_END_HEADERS
            pieces.append(headers(stream_id, block_of(draw, encoder), flags))
            open_ids.append(stream_id)
            stream_id += draw(st.sampled_from([4, 1, 0])) if seldom(draw) else 2
        elif kind == "end" and open_ids:
            one = open_ids.pop(draw(st.sampled_from([0, -1])))
            flags = draw(st.sampled_from([0, 9])) if seldom(draw) else FLAG_END_STREAM
            pieces.append(data(one, draw(st.binary(max_size=20)), flags))
        elif kind == "other":
            pieces.append(data(99, b"x") if seldom(draw) else draw(st.sampled_from(OTHERS)))
    stream = bytearray(b"".join(pieces))
    if draw(st.integers(0, 3)) == 3:
        stream[draw(st.integers(0, len(stream) - 1))] = draw(st.integers(0, 255))
    return bytes(stream)


@settings(max_examples=10 * settings().max_examples)
@given(conversations(), st.sampled_from([1 << 20, 1 << 20, 1, 7, 50]))
def test_both_ways_read_the_same(stream: bytes, step: int) -> None:
    http2_twins.check(stream, step)


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_header_block_is_read_the_same(blocks: list[bytes]) -> None:
    whole = Encoder().encode(PSEUDO)
    stream = b"".join(
        headers(1 + 2 * number, block if number % 2 else whole + block)
        for number, block in enumerate(blocks)
    )
    http2_twins.check(stream)


@given(st.text(st.characters(max_codepoint=255), max_size=30), st.integers(0, 3))
def test_huffman_texts_are_read_the_same(text: str, cut: int) -> None:
    encoded = encode_huffman(text.encode("latin-1"))
    encoded = encoded[: max(len(encoded) - cut, 0)]
    literal = b"\x40\x01a" + bytes([0x80 | len(encoded)]) + encoded if len(encoded) < 127 else b""
    http2_twins.check(headers(1, Encoder().encode(PSEUDO) + literal) + data(1, b""))


@given(st.integers(0, 2**31 - 1), st.binary(max_size=20), st.binary(max_size=20), st.binary())
def test_answers_are_the_same(stream_id: int, block: bytes, body: bytes, trailers: bytes) -> None:
    http2_twins.check_answer(stream_id, block, body, trailers)


BLOCK = Encoder().encode(PSEUDO)
ADDING = BLOCK + b"\x40\x02te\x08trailers"


@pytest.mark.parametrize(
    "stream",
    [
        headers(2, BLOCK) + data(2, b""),
        headers(3, BLOCK) + headers(1, BLOCK),
        headers(1, BLOCK) + data(1, b"") + headers(1, BLOCK),
        headers(1, BLOCK) + data(1, b"") + data(1, b""),
        headers(1, BLOCK) + data(3, b""),
        headers(0, BLOCK),
        headers(1, b""),
        headers(1, b"\x80" + BLOCK),
        headers(1, BLOCK + b"\xff\xff\xff\xff\xff\xff"),
        headers(1, BLOCK + b"\x40\x01a\xff\xff\xff\xff\xff\x7f"),
        headers(1, ADDING) + headers(3, BLOCK + b"\xbe") + headers(5, BLOCK + b"\xbf"),
        headers(1, BLOCK + b"\x20") + headers(3, BLOCK),
        headers(1, b"\x20" + ADDING) + headers(3, BLOCK + b"\xbe"),
        headers(1, BLOCK + b"\x40\x01" + b"a\x7f\xa1\x1f" + b"x" * 4128) + headers(3, ADDING),
        b"".join(headers(1 + 2 * number, BLOCK) for number in range(1030)),
        b"".join(headers(1 + 2 * number, BLOCK + b"\x88" * number) for number in range(30, 34)),
        frame(FrameType.HEADERS, FLAG_END_HEADERS, 1, BLOCK)[:-1],
        b"\0\xff\xff\1\4\0\0\0\1" + BLOCK,
    ],
)
def test_unusual_frames_are_read_the_same(stream: bytes) -> None:
    http2_twins.check(stream)


def test_what_clients_send_is_read_by_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder()
    check_fields(PSEUDO + REGULAR[:3] + REGULAR[4:])
    stream = b"".join(
        headers(number, encoder.encode([*PSEUDO, *REGULAR[:2], ("grpc-timeout", f"{number}u" * 9)]))
        + data(number, b"body")
        for number in range(1, 401, 2)
    )
    http2_twins.check(stream)
    made = Http2Connection(lambda: 0.0)
    made.receive(http2_twins.BEGINNING)
    monkeypatch.setattr(connection, "read_requests", http2_twins.read_requests)
    monkeypatch.setattr(Http2Connection, "_frame_received", None)
    events = made.receive(stream)
    assert [(type(event), event.stream_id) for event in events] == [
        (RequestStarted, number) for number in range(1, 401, 2)
    ]
