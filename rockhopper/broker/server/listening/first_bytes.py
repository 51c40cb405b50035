"""Detect TLS by the first bytes of a connection.

A handshake begins only once its first record is complete: a peer that sends half of it costs a
socket, but neither the memory of a handshake nor one of the limited places.

    0  type, 0x16: handshake        3  length, two bytes, big-endian, at most 2^14
    1  version, 0x03 and minor      5  the record
"""

RECORD_HEAD_SIZE_BYTES = 5
RECORD_SIZE_BYTES_MAX = 1 << 14
_HANDSHAKE = 0x16
_VERSION_MAJOR = 0x03


def is_tls(data: bytes) -> bool:
    """Return whether *data*, one byte or more, may begin a TLS handshake."""
    if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != _VERSION_MAJOR):
        return False
    return len(data) < RECORD_HEAD_SIZE_BYTES or _record_size_bytes(data) <= RECORD_SIZE_BYTES_MAX


def hello_size_bytes(data: bytes) -> int:
    """Return how many bytes are needed to answer the handshake that *data* begins."""
    if len(data) < RECORD_HEAD_SIZE_BYTES:
        return RECORD_HEAD_SIZE_BYTES
    return RECORD_HEAD_SIZE_BYTES + _record_size_bytes(data)


def _record_size_bytes(data: bytes) -> int:
    return int.from_bytes(data[3:RECORD_HEAD_SIZE_BYTES], "big")
