"""The PROXY protocol: a load balancer announces the address of the client it forwards.

Version 1 is a line, ``PROXY TCP4 <source> <target> <port> <port>``, ended by CR LF within 107
bytes. Version 2 is binary:

    0   signature, 12 bytes             14  size of the rest, two bytes, big-endian
    12  0x20 LOCAL or 0x21 PROXY        16  addresses (4 + 4 or 16 + 16 bytes), two ports, more
    13  0x11 TCP over IPv4, 0x21 IPv6

A peer that may announce an address can pretend to be any client, so headers are accepted from
listed addresses only. There they are optional: a balancer's health checks have none.
"""

import ipaddress
import socket
from collections.abc import Sequence
from typing import NamedTuple

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_SIZE_BYTES = 16
HEADER_SIZE_BYTES_MAX = 4096
_LINE_SIZE_BYTES_MAX = 107
_LINE_BEGIN = b"PROXY "
_LOCAL, _PROXY = 0x20, 0x21
_FAMILIES = {0x11: (socket.AF_INET, 4), 0x21: (socket.AF_INET6, 16)}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxyHeaderError(ValueError):
    """A header begins, but is invalid."""


class ProxyHeader(NamedTuple):
    """A parsed header."""

    size_bytes: int
    """The size of the header; 0: there is none."""
    address: tuple[str, int] | None = None
    """The client's address; None: the connection is the balancer's own."""


class ProxyProtocol:
    """The peers that may announce addresses."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks

    def trusts(self, host: str) -> bool:
        """Return whether a connection from *host* may begin with a header."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def read_header(data: bytes) -> ProxyHeader | int:
    """Return the header at the start of *data*, or how many bytes are needed to decide.

    Raises:
        ProxyHeaderError: it begins like a header, but is invalid.
    """
    if _begins(data, SIGNATURE):
        return _read_binary(data)
    if _begins(data, _LINE_BEGIN):
        return _read_line(data)
    return ProxyHeader(0)


def _begins(data: bytes, mark: bytes) -> bool:
    size_bytes = min(len(data), len(mark))
    return data[:size_bytes] == mark[:size_bytes]


def _read_line(data: bytes) -> ProxyHeader | int:
    line, end, _ = data[:_LINE_SIZE_BYTES_MAX].partition(b"\r\n")
    if not end:
        if len(data) >= _LINE_SIZE_BYTES_MAX:
            raise ProxyHeaderError(f"no end of the PROXY line within {_LINE_SIZE_BYTES_MAX} bytes")
        return len(data) + 1
    size_bytes = len(line) + len(end)
    words = line.decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader(size_bytes)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6") or not words[4].isdecimal():
        raise ProxyHeaderError(f"a PROXY line without an address: {line[:60]!r}")
    try:
        host = str(ipaddress.ip_address(words[2]))
    except ValueError as error:
        raise ProxyHeaderError(f"an invalid PROXY line: {error}") from None
    return ProxyHeader(size_bytes, (host, int(words[4]) & 0xFFFF))


def _read_binary(data: bytes) -> ProxyHeader | int:
    if len(data) < HEAD_SIZE_BYTES:
        return HEAD_SIZE_BYTES
    size_bytes = HEAD_SIZE_BYTES + int.from_bytes(data[14:HEAD_SIZE_BYTES], "big")
    if size_bytes > HEADER_SIZE_BYTES_MAX:
        raise ProxyHeaderError(f"a PROXY header of {size_bytes} bytes")
    if len(data) < size_bytes:
        return size_bytes
    if data[12] == _LOCAL:
        return ProxyHeader(size_bytes)
    if data[12] != _PROXY:
        raise ProxyHeaderError(f"a PROXY header with version and command {data[12]:#x}")
    if data[13] not in _FAMILIES:
        return ProxyHeader(size_bytes)
    family, length = _FAMILIES[data[13]]
    body = data[HEAD_SIZE_BYTES:size_bytes]
    if len(body) < 2 * length + 4:
        raise ProxyHeaderError("a PROXY header that ends within its addresses")
    port = int.from_bytes(body[2 * length : 2 * length + 2], "big")
    return ProxyHeader(size_bytes, (socket.inet_ntop(family, body[:length]), port))
