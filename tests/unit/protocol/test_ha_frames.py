"""Frames of classic replication: any split of the stream gives the same ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.errors import MalformedFrameError
from rockhopper.protocol.ha_frames import (
    FRAME_SIZE_BYTES_MAX,
    HaFrame,
    HaFrameDecoder,
    HaReportDecoder,
    encode_ha_frame,
    encode_report,
)

# A frame of three bytes and a heartbeat, as an Apache master sends them.
STREAM = bytes.fromhex("0000000000000401 00000003 aabbcc 0000000000000404 00000000")


def test_a_report_is_eight_bytes() -> None:
    assert encode_report(1025) == bytes.fromhex("0000000000000401")


@given(st.integers(0, 24))
def test_the_last_whole_report_counts(split: int) -> None:
    stream = b"".join(encode_report(offset) for offset in (5, 6, 7))
    decoder = HaReportDecoder()
    first = decoder.feed(stream[:split])
    assert first == (4 + split // 8 if split >= 8 else None)
    assert decoder.feed(stream[split:]) == (7 if split < 24 else None)


@given(st.integers(0, len(STREAM)), st.integers(0, len(STREAM)))
def test_any_split_gives_the_same_frames(one: int, other: int) -> None:
    first, last = sorted((one, other))
    decoder = HaFrameDecoder()
    frames = [
        frame
        for piece in (STREAM[:first], STREAM[first:last], STREAM[last:])
        for frame in decoder.feed(piece)
    ]
    assert frames == [HaFrame(1025, b"\xaa\xbb\xcc"), HaFrame(1028, b"")]
    assert b"".join(map(encode_ha_frame, frames)) == STREAM


@pytest.mark.parametrize(("offset", "size"), [(0, -1), (-1, 0), (0, FRAME_SIZE_BYTES_MAX + 1)])
def test_what_no_master_sends_is_refused(offset: int, size: int) -> None:
    head = offset.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedFrameError, match="is this the master's haListenPort"):
        HaFrameDecoder().feed(head)
