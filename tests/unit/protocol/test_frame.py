"""Frames: any split of the stream gives the same ones, and bad lengths are noticed at once."""

import gc
import struct

import pytest

from rockhopper.protocol.errors import MalformedFrameError
from rockhopper.protocol.frame import (
    FRAME_SIZE_BYTES_MAX,
    FrameDecoder,
    encode_frame,
    split_frames,
    split_in_python,
)

# GET_ROUTEINFO_BY_TOPIC for TopicTest in the binary serialisation, made by the reference.
ROCKETMQ_FRAME = bytes.fromhex(
    "0000002d0100002900690001df000000050000000000000000000000140005"
    "746f70696300000009546f70696354657374"
)


def head(length: int, word: int) -> bytes:
    return struct.pack(">II", length & 0xFFFFFFFF, word)


def test_splits_a_frame_of_the_reference() -> None:
    (frame,) = FrameDecoder().feed(ROCKETMQ_FRAME)
    assert frame == (1, ROCKETMQ_FRAME[8:], b"")


def test_length_words_are_those_of_the_reference() -> None:
    header = b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA",'
    header += b'"opaque":5,"serializeTypeCurrentRPC":"JSON","version":479}'
    assert encode_frame(0, header)[:8].hex() == "0000008700000083"


def test_encodes_what_it_decodes() -> None:
    assert FrameDecoder().feed(encode_frame(2, b"header", b"body")) == [(2, b"header", b"body")]


def test_one_feed_returns_all_whole_frames_and_keeps_the_rest() -> None:
    decoder = FrameDecoder()
    data = encode_frame(0, b"{}", b"a") + encode_frame(1, b"xy") + encode_frame(0, b"{}", b"bcd")
    assert decoder.feed(data[:-2]) == [(0, b"{}", b"a"), (1, b"xy", b"")]
    assert decoder.pending_bytes == 11
    assert decoder.feed(data[-2:]) == [(0, b"{}", b"bcd")]
    assert decoder.pending_bytes == 0


def test_frame_may_arrive_byte_by_byte() -> None:
    decoder = FrameDecoder()
    data = encode_frame(0, b"{}", b"body") * 2
    frames = [frame for at in range(len(data)) for frame in decoder.feed(data[at : at + 1])]
    assert frames == [(0, b"{}", b"body")] * 2


def test_piece_may_end_one_frame_and_start_the_next() -> None:
    decoder = FrameDecoder()
    first, second = encode_frame(0, b"{}", b"1"), encode_frame(0, b"{}", b"2")
    assert decoder.feed(first[:5]) == []
    assert decoder.feed(first[5:] + second[:6]) == [(0, b"{}", b"1")]
    assert decoder.feed(second[6:]) == [(0, b"{}", b"2")]


def test_many_tiny_pieces_of_a_large_frame_are_joined_along_the_way() -> None:
    decoder = FrameDecoder()
    body = bytes(range(256)) * 80
    data = encode_frame(0, b"{}", body)
    frames = [frame for at in range(0, len(data), 2) for frame in decoder.feed(data[at : at + 2])]
    assert frames == [(0, b"{}", body)]


@pytest.mark.parametrize(
    "length", [0, 3, 0xFFFFFFFF, 0x80000000, FRAME_SIZE_BYTES_MAX + 1, 0x47455420]
)
@pytest.mark.parametrize("size_bytes", [4, 7, 8, 100])
def test_impossible_length_is_noticed_with_its_four_bytes(length: int, size_bytes: int) -> None:
    decoder = FrameDecoder()
    assert decoder.feed((struct.pack(">I", length) + bytes(96))[:size_bytes]) == []
    assert isinstance(decoder.error, MalformedFrameError)
    assert decoder.pending_bytes == 0


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF])
def test_impossible_length_in_pieces_is_noticed(length: int) -> None:
    decoder = FrameDecoder()
    for byte in struct.pack(">I", length):
        assert decoder.error is None
        decoder.feed(bytes([byte]))
    assert isinstance(decoder.error, MalformedFrameError)


def test_largest_frame_passes() -> None:
    decoder = FrameDecoder()
    data = encode_frame(0, b"{}", bytes(FRAME_SIZE_BYTES_MAX - 6))
    (frame,) = decoder.feed(data)
    assert len(frame[2]) == FRAME_SIZE_BYTES_MAX - 6
    assert decoder.error is None


def test_larger_frame_is_not_written() -> None:
    with pytest.raises(ValueError, match="16777213 bytes"):
        encode_frame(0, b"{}", bytes(FRAME_SIZE_BYTES_MAX - 5))


@pytest.mark.parametrize("word", [13, 0xFFFFFF])
def test_header_beyond_its_frame_is_noticed_before_the_rest_arrives(word: int) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(head(16, word)) == []
    assert isinstance(decoder.error, MalformedFrameError)


def test_header_beyond_the_limit_is_noticed_before_the_rest_arrives() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(head(1_000_000, 262_145)) == []
    assert "262145 bytes" in str(decoder.error)


def test_frames_in_front_of_bad_bytes_are_returned_and_those_behind_are_not() -> None:
    decoder = FrameDecoder()
    good = encode_frame(0, b"{}")
    assert decoder.feed(good + bytes(8) + good) == [(0, b"{}", b"")]
    assert decoder.error is not None
    assert decoder.feed(good) == []


def test_http_request_is_no_frame() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"GET / HTTP/1.1\r\n\r\n") == []
    assert isinstance(decoder.error, MalformedFrameError)


def test_empty_feed_changes_nothing() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"") == []
    assert decoder.pending_bytes == 0
    decoder.feed(b"\0")
    assert decoder.feed(b"") == []
    assert decoder.pending_bytes == 1


def test_the_header_of_an_unfinished_frame_is_seen_as_far_as_it_is_there() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(0, b"header", b"body")
    for end, header in ((4, b""), (10, b"he"), (17, b"header")):
        decoder.feed(frame[decoder.pending_bytes : end])
        assert decoder.pending_header() == header
    decoder.forget_pending()
    assert (decoder.pending_bytes, decoder.pending_header()) == (0, b"")


@pytest.mark.skipif(split_frames is split_in_python, reason="it is not compiled")
def test_the_garbage_collector_need_not_examine_frames_that_wait() -> None:
    frames = FrameDecoder().feed(encode_frame(0, b"{}", b"body") * 3)
    assert frames == [(0, b"{}", b"body")] * 3
    assert not any(map(gc.is_tracked, [frames, *frames]))
