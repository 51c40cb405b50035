"""Parses addresses: "host:port" or "[::1]:9876", and lists of name servers."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_NAMESERVER = "127.0.0.1:9876"
NAMESERVER_VARIABLE = "NAMESRV_ADDR"
_NAMESERVER_PORT = 9876
MASTER_ID = 0
_HOST = re.compile(r"[\w.-]+|\[?[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]?")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker process of a cluster; id 0 is the master."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it accepts writes."""
        return self.broker_id == MASTER_ID


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port"; the host of "[::1]:9876" is "::1".

    Raises ValueError with an explanation.
    """
    host, colon, port_text = address.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{address!r} is not an address: it must look like host:port")
    if not _HOST.fullmatch(host):
        raise ValueError(f"{address!r} is not an address: {host!r} is not a valid host name")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} is ambiguous: write an IPv6 address as [{address}]:port")
    if not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) < 65536:
        raise ValueError(f"{address!r} is not an address: {port_text!r} is not a port (1 to 65535)")
    return host, int(port_text)


def parse_nameservers(text: str | None) -> tuple[str, ...]:
    """Return the name servers in `text`; if it is None, those of NAMESRV_ADDR, else 127.0.0.1:9876.

    The default port is 9876. Raises ValueError for an invalid address.
    """
    if text is not None and not isinstance(text, str):
        joined = ";".join(map(str, text)) if isinstance(text, Iterable) else "host:port;host:port"
        raise TypeError(
            f"nameserver is {text!r}: pass name servers as one string, as in {joined!r}"
        )
    if text is None:
        text = os.environ.get(NAMESERVER_VARIABLE) or DEFAULT_NAMESERVER
    addresses: list[str] = []
    for part in text.replace(",", ";").split(";"):
        part = part.strip().removeprefix("http://").rstrip("/")
        if not part:
            continue
        address = _add_port(part)
        split_address(address)
        if address not in addresses:
            addresses.append(address)
    if not addresses:
        raise ValueError(f"{text!r} contains no name server: it must look like host:port;host:port")
    return tuple(addresses)


def _add_port(text: str) -> str:
    if ":" not in text or (text.startswith("[") and text.endswith("]")):
        return f"{text}:{_NAMESERVER_PORT}"
    return text
