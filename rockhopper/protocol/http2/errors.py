"""Violations of HTTP/2 by a peer, and their error codes (RFC 9113, section 7)."""

from enum import IntEnum

from rockhopper.protocol.errors import ProtocolError


class ErrorCode(IntEnum):
    """The reason why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Http2Error(ProtocolError):
    """An error that ends the whole connection."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class HeaderCompressionError(Http2Error):
    """A header block cannot be decoded, nor can any later one."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.COMPRESSION_ERROR, reason)


class StreamError(ProtocolError):
    """An error that ends one stream."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
