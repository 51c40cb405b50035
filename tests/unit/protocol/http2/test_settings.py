"""What a peer may ask for."""

import struct

import pytest

from rockhopper.protocol.http2.errors import ErrorCode, Http2Error
from rockhopper.protocol.http2.settings import PeerSettings


def pairs(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">HL", *pair) for pair in pairs)


def test_what_it_asks_for_holds_from_then_on() -> None:
    settings = PeerSettings()
    assert not settings.have_arrived
    settings.apply(pairs((4, 100), (5, 20_000), (99, 7), (2, 0)))
    assert (settings.window_bytes, settings.frame_size_bytes_max) == (100, 20_000)
    assert settings.have_arrived


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (pairs((2, 2)), ErrorCode.PROTOCOL_ERROR),
        (pairs((4, 2**31)), ErrorCode.FLOW_CONTROL_ERROR),
        (pairs((5, 16_383)), ErrorCode.PROTOCOL_ERROR),
        (pairs((5, 2**24)), ErrorCode.PROTOCOL_ERROR),
        (b"\0" * 5, ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_what_it_may_not_ask_for_is_refused(payload: bytes, code: ErrorCode) -> None:
    with pytest.raises(Http2Error) as failure:
        PeerSettings().apply(payload)
    assert failure.value.code is code
