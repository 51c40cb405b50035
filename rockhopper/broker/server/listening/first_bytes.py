"""What the first bytes of a connection say: TLS, or anything else.

A handshake is only begun when the whole of its first record is there: a peer that sends half of it
then costs a socket, and neither a handshake's memory nor a place among those under way.

    0  type, 0x16: handshake        3  length, two bytes, big-endian, at most 2^14
    1  version, 0x03 and minor      5  the record
"""

RECORD_HEAD_SIZE_BYTES = 5
RECORD_SIZE_BYTES_MAX = 1 << 14
_HANDSHAKE = 0x16
_VERSION_MAJOR = 0x03


def is_tls(data: bytes) -> bool:
    """Whether *data*, one byte or more, may begin a TLS handshake."""
    if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != _VERSION_MAJOR):
        return False
    return len(data) < RECORD_HEAD_SIZE_BYTES or _record_size_bytes(data) <= RECORD_SIZE_BYTES_MAX


def hello_size_bytes(data: bytes) -> int:
    """How many bytes must have come before the handshake that *data* begins can be answered."""
    if len(data) < RECORD_HEAD_SIZE_BYTES:
        return RECORD_HEAD_SIZE_BYTES
    return RECORD_HEAD_SIZE_BYTES + _record_size_bytes(data)


def _record_size_bytes(data: bytes) -> int:
    return int.from_bytes(data[3:RECORD_HEAD_SIZE_BYTES], "big")
