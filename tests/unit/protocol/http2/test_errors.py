"""Errors carry the code that the peer is told."""

from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.http2.errors import ErrorCode, HeaderCompressionError


def test_what_cannot_be_decompressed_ends_the_connection_with_its_code() -> None:
    error = HeaderCompressionError("no such index")
    assert isinstance(error, ProtocolError)
    assert (error.code, str(error)) == (ErrorCode.COMPRESSION_ERROR, "no such index")
