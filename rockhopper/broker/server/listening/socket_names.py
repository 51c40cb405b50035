"""Names of sockets, as text."""

import contextlib
import socket

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
