"""Frames: whatever the pieces, the same frames; whatever the bytes, no other error."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol import frame
from rockhopper.protocol.errors import MalformedFrameError
from rockhopper.protocol.frame import Frame, FrameDecoder, encode_frame

FRAMES = st.lists(
    st.tuples(st.integers(0, 255), st.binary(max_size=40), st.binary(max_size=100)), max_size=6
)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def feed_all(decoder: FrameDecoder, pieces: list[bytes]) -> list[Frame]:
    return [frame for piece in pieces for frame in decoder.feed(piece)]


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 10_000), max_size=30))
def test_any_split_of_the_stream_gives_the_same_frames(
    frames: list[Frame], cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    decoder = FrameDecoder()
    assert feed_all(decoder, split(stream, cuts)) == frames
    assert decoder.error is None
    assert decoder.pending_bytes == 0


@given(frames=FRAMES, keep=st.integers(0, 10_000))
def test_what_is_pending_is_what_is_left(frames: list[Frame], keep: int) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    stream = stream[: keep % (len(stream) + 1)]
    decoder = FrameDecoder()
    whole = decoder.feed(stream)
    used = sum(8 + len(header) + len(body) for _, header, body in whole)
    assert decoder.pending_bytes == len(stream) - used
    assert whole == frames[: len(whole)]


@given(
    frames=FRAMES,
    garbage=st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda b: bytes(3) + b)),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
)
def test_garbage_gives_the_same_frames_and_error_however_it_is_split(
    frames: list[Frame], garbage: bytes, cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames) + garbage
    at_once, in_pieces = FrameDecoder(100_000, 1000), FrameDecoder(100_000, 1000)
    expected = at_once.feed(stream)
    assert expected[: len(frames)] == frames
    assert feed_all(in_pieces, split(stream, cuts)) == expected
    assert type(in_pieces.error) is type(at_once.error)
    assert at_once.error is None or isinstance(at_once.error, MalformedFrameError)


@given(
    frames=FRAMES,
    garbage=st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda b: bytes(3) + b)),
    keep=st.integers(0, 10_000),
)
def test_the_compiled_twin_splits_as_python_does(
    frames: list[Frame], garbage: bytes, keep: int
) -> None:
    pytest.importorskip("rockhopper.protocol._framing", reason="it is not compiled")
    stream = b"".join(encode_frame(*frame) for frame in frames)
    for data in (stream + garbage, stream[: keep % (len(stream) + 1)]):
        for limits in ((100_000, 1000), (90, 20)):
            assert frame.split_frames(data, *limits) == frame.split_in_python(data, *limits)
