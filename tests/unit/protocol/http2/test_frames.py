"""Frames as bytes, read by another implementation."""

from typing import Any

import pytest
from hyperframe.frame import Frame

from rockhopper.protocol.http2 import frames
from rockhopper.protocol.http2.errors import ErrorCode
from rockhopper.protocol.http2.frames import FrameType, frame, read_head


def read(data: bytes) -> Any:
    parsed, size = Frame.parse_frame_header(memoryview(data)[:9])
    parsed.parse_body(memoryview(data)[9 : 9 + size])
    return parsed


def test_a_frame_is_read_elsewhere() -> None:
    parsed = read(frame(FrameType.DATA, frames.FLAG_END_STREAM, 7, b"hello"))
    assert (parsed.stream_id, parsed.data, "END_STREAM" in parsed.flags) == (7, b"hello", True)


def test_a_long_frame_says_its_length_in_three_octets() -> None:
    high, low, kind, flags, stream_id = read_head(frame(0, 1, 2**31 - 1, b"x" * 70_000))
    assert (high << 16 | low, kind, flags, stream_id) == (70_000, 0, 1, 2**31 - 1)


@pytest.mark.parametrize(
    ("data", "name", "value"),
    [
        (frames.window_update(3, 1000), "window_increment", 1000),
        (frames.reset(3, ErrorCode.CANCEL), "error_code", 8),
        (frames.goaway(5, ErrorCode.ENHANCE_YOUR_CALM, "calm"), "additional_data", b"calm"),
    ],
)
def test_what_ends_or_goes_on_is_read_elsewhere(data: bytes, name: str, value: object) -> None:
    assert getattr(read(data), name) == value
