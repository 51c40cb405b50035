"""Names of sockets, as text."""

import asyncio
import contextlib
import socket

from rockhopper.broker.server.listening.caller import Caller
from rockhopper.broker.users.peer import ConnectionAddresses
from rockhopper.protocol.addresses import host_bytes

_SCOPE_AT = 3


def socket_address(name: object) -> tuple[str, int]:
    """Return host and port of a socket name.

    An IPv4-mapped address becomes IPv4, a link-local one gets its zone.
    """
    if not isinstance(name, tuple) or len(name) < 2:
        return "127.0.0.1", 0
    host = str(name[0])
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    # uvloop omits the zone, without which a link-local address is unreachable.
    if len(name) > _SCOPE_AT and name[_SCOPE_AT] and "%" not in host:
        with contextlib.suppress(OSError):
            host = f"{host}%{socket.if_indextoname(name[_SCOPE_AT])}"
    return host, int(name[1])


def read_addresses(transport: asyncio.BaseTransport, caller: Caller) -> ConnectionAddresses:
    """Return the addresses of a connection; a proxy may have announced that of *caller*."""
    peer_host, peer_port = socket_address(caller.address or transport.get_extra_info("peername"))
    local_host, local_port = socket_address(transport.get_extra_info("sockname"))
    born_host = host_bytes(peer_host, peer_port)
    return ConnectionAddresses(peer_host, peer_port, local_host, local_port, born_host)
