"""Hosts in the form of records: 4 or 16 address bytes in network order, then 4 bytes of port."""

import struct
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

_PORT = struct.Struct(">i")


@lru_cache(maxsize=1024)
def ip_bytes(ip: str) -> bytes:
    """Return the 4 or 16 bytes of an address; IPv6 forms of IPv4 addresses become 4 bytes.

    Raises:
        ValueError: *ip* is not a numeric address.
    """
    address = ip_address(ip.partition("%")[0])
    if isinstance(address, IPv6Address):
        return (address.ipv4_mapped or address).packed
    return address.packed


@lru_cache(maxsize=1024)
def ip_text(address: bytes) -> str:
    """Return the text of an address of 4 or 16 bytes.

    Raises:
        ValueError: *address* has another size.
    """
    return str(ip_address(address))


def host_bytes(ip: str, port: int) -> bytes:
    """Return a host in the form of records: 8 bytes, or 20 for IPv6."""
    return ip_bytes(ip) + _PORT.pack(port)


@lru_cache(maxsize=1024)
def host_text(host: bytes) -> tuple[str, int]:
    """Return address and port of a host in the form of records."""
    return ip_text(host[:-4]), int.from_bytes(host[-4:], "big", signed=True)


def split_address(address: str) -> tuple[str, int | None]:
    """Return host and port of ``host:port``, ``[v6]:port``, ``[v6]`` or ``host``.

    The port is None if it is missing, and 0 if it is not a number.
    """
    host, separator, port = address.rpartition(":")
    if not separator or address.endswith("]") or (":" in host and not host.startswith("[")):
        return address.strip("[]"), None
    return host.strip("[]"), int(port) if port.isdigit() else 0


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether *host*, an IP address, is a loopback address of this machine."""
    return host.startswith("127.") or host == "::1"
