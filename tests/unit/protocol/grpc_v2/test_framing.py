"""Messages on a stream, in whatever pieces they come."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.grpc_v2.codes import GrpcStatus
from rockhopper.protocol.grpc_v2.framing import (
    FramingError,
    MessageSplitter,
    encode_frame,
    read_whole,
)

MOST = 1000


def compressed(message: bytes) -> bytes:
    packed = gzip.compress(message, mtime=0)
    return b"\x01" + len(packed).to_bytes(4, "big") + packed


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 40))
def test_messages_come_out_whole(messages: list[bytes], size: int) -> None:
    data = b"".join(map(encode_frame, messages))
    reader = MessageSplitter("identity", MOST)
    found = []
    for start in range(0, len(data), size):
        found += reader.feed(data[start : start + size])
    assert found == messages
    assert not reader.held_bytes


def test_one_that_is_cut_off_is_known() -> None:
    reader = MessageSplitter("identity", MOST)
    assert reader.feed(encode_frame(b"hello")[:-1]) == []
    assert reader.held_bytes


def test_gzip_is_understood() -> None:
    assert MessageSplitter("gzip", MOST).feed(compressed(b"x" * 900)) == [b"x" * 900]


@pytest.mark.parametrize(
    ("encoding", "data", "status"),
    [
        ("identity", encode_frame(b"x" * (MOST + 1)), GrpcStatus.RESOURCE_EXHAUSTED),
        ("gzip", compressed(b"x" * 5_000_000), GrpcStatus.RESOURCE_EXHAUSTED),
        ("identity", compressed(b"x"), GrpcStatus.UNIMPLEMENTED),
        ("gzip", b"\x01\0\0\0\x01x", GrpcStatus.INTERNAL),
    ],
)
def test_what_cannot_be_taken_is_refused(encoding: str, data: bytes, status: GrpcStatus) -> None:
    with pytest.raises(FramingError) as failure:
        MessageSplitter(encoding, MOST).feed(data)
    assert failure.value.status is status


@given(st.binary(max_size=20), st.integers(0, 20))
def test_a_whole_message_is_read_as_the_splitter_does(data: bytes, size_bytes_max: int) -> None:
    for each in (data, encode_frame(data), encode_frame(data) + data):
        found = read_whole(each, size_bytes_max)
        if found is not None:
            reader = MessageSplitter("identity", size_bytes_max)
            assert reader.feed(each[:3]) + reader.feed(each[3:]) == [found]
            assert not reader.held_bytes
        assert (found is not None) == (
            each == encode_frame(each[5:]) and len(each) - 5 <= size_bytes_max
        )
