"""SETTINGS: the limits that each side sets for the other (RFC 9113, section 6.5)."""

import struct
from dataclasses import dataclass

from rockhopper.protocol.http2.errors import ErrorCode, Http2Error
from rockhopper.protocol.http2.frames import FRAME_SIZE_BYTES_MAX, FrameType, frame
from rockhopper.protocol.http2.hpack import LIST_SIZE_BYTES_MAX, TABLE_SIZE_BYTES

WINDOW_BYTES = 1 << 20
"""How much of a request may arrive before it is read."""
CONNECTION_WINDOW_BYTES = 16 << 20
STREAMS_MAX = 1024
WINDOW_BYTES_MAX = 2**31 - 1
WINDOW_BYTES_AT_FIRST = 65_535

_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_CONCURRENT_STREAMS = 1, 2, 3
_INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE, _MAX_HEADER_LIST_SIZE = 4, 5, 6
_PAIR = struct.Struct(">HL")

OURS = frame(
    FrameType.SETTINGS,
    0,
    0,
    b"".join(
        _PAIR.pack(name, value)
        for name, value in (
            (_HEADER_TABLE_SIZE, TABLE_SIZE_BYTES),
            (_MAX_CONCURRENT_STREAMS, STREAMS_MAX),
            (_INITIAL_WINDOW_SIZE, WINDOW_BYTES),
            (_MAX_FRAME_SIZE, FRAME_SIZE_BYTES_MAX),
            (_MAX_HEADER_LIST_SIZE, LIST_SIZE_BYTES_MAX),
        )
    ),
)


@dataclass(slots=True)
class PeerSettings:
    """The settings that the peer has sent so far."""

    window_bytes: int = WINDOW_BYTES_AT_FIRST
    frame_size_bytes_max: int = FRAME_SIZE_BYTES_MAX
    have_arrived: bool = False
    """Whether the peer has sent any; every connection begins with them."""

    def apply(self, payload: bytes) -> None:
        """Apply the payload of a SETTINGS frame. Raises Http2Error."""
        self.have_arrived = True
        if len(payload) % _PAIR.size:
            raise Http2Error(
                ErrorCode.FRAME_SIZE_ERROR, "the size of SETTINGS is not a multiple of six octets"
            )
        for name, value in _PAIR.iter_unpack(payload):
            if name == _ENABLE_PUSH and value > 1:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
            if name == _INITIAL_WINDOW_SIZE:
                if value > WINDOW_BYTES_MAX:
                    raise Http2Error(
                        ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value}"
                    )
                self.window_bytes = value
            elif name == _MAX_FRAME_SIZE:
                if not FRAME_SIZE_BYTES_MAX <= value < 1 << 24:
                    raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
                self.frame_size_bytes_max = value
