"""Sockets: connecting to a name, and this machine's own address; for client and broker.

A name may have several addresses, and some of them may not respond (a route that drops packets) or
refuse. ``connect`` tries them in parallel according to RFC 8305: IPv6 and IPv4 in turn, the next
one 250 ms after the last, and the first to answer wins. Example: ``broker.example`` has
``fd31::b``, which does not respond, and ``10.0.0.2``. After 250 ms the connection to ``10.0.0.2``
is made.

A link-local address (``fe80::b%eth0``) names the interface behind ``%``. That name is valid on one
host only, so if it is missing or unknown here, all interfaces are tried.

A forked child inherits the sockets of its parent. A peer would not notice that the parent was
killed while a child, of a process pool for example, is alive: ``close_in_children`` closes them
there.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any

from aiohappyeyeballs import AddrInfoType, start_connection

NEXT_ADDRESS_DELAY_S = 0.25
# A hanging resolver must not block a caller that only checks whether a name has moved.
_LOOK_UP_TIMEOUT_S = 1.0
_ACCEPTING_TURNS = 4
_IPV6 = 6
_LINK_LOCAL = IPv6Address("fe80::").packed[:2]
# Addresses for documentation: connecting a datagram socket sends nothing to them.
_OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


async def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to *host*, by any of its addresses; return a non-blocking socket.

    Raises:
        socket.gaierror: the name is not known.
        TimeoutError: no address answered within *timeout_s*; the message names them.
        OSError: every address failed before; its class is that of the failure if all failed alike.
    """
    tried: list[str] = []

    def open_socket(address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, where = address
        tried.append(where[0])
        return socket.socket(family, kind, protocol)

    try:
        async with asyncio.timeout(timeout_s):
            addresses = await _resolve(host, port)
            return await start_connection(
                addresses, happy_eyeballs_delay=NEXT_ADDRESS_DELAY_S, socket_factory=open_socket
            )
    except TimeoutError:
        text = f"no connection within {timeout_s:g} s{_name_tried(host, tried)}"
        raise TimeoutError(errno.ETIMEDOUT, text) from None
    except socket.gaierror:
        raise
    except OSError as error:
        # If several addresses fail in the same way, the error has an errno, otherwise none.
        reason = os.strerror(error.errno) if error.errno else str(error)
        text = f"{reason}{_name_tried(host, tried)}"
        raise OSError(error.errno or errno.EHOSTUNREACH, text) from error
    except RuntimeError as error:  # uvloop's, if the system lacks the address family
        raise OSError(errno.EHOSTUNREACH, f"{error}{_name_tried(host, tried)}") from error


async def _resolve(host: str, port: int) -> Sequence[AddrInfoType]:
    bare, _, zone = host.partition("%")
    if is_link_local(bare):
        interfaces = socket.if_nameindex()
        indexes = [index for index, name in interfaces if zone in (name, str(index))]
        return [
            _address(socket.AF_INET6, (bare, port, 0, index))
            for index in indexes or [index for index, _ in interfaces]
        ]
    try:
        version = ip_address(host).version
    except ValueError:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # An address needs no resolver, whose thread costs more than the connection.
    if version == _IPV6:
        return [_address(socket.AF_INET6, (host, port, 0, 0))]
    return [_address(socket.AF_INET, (host, port))]


def find_own_address(host: str, port: int) -> AddrInfoType:
    """Return the first address of *host*, a name or address, to listen on.

    Raises:
        OSError: it has none.
        UnicodeError: it cannot be a name.
    """
    # For a text, getaddrinfo loads the tables of IDNA: some milliseconds, and half a megabyte.
    name = host.encode() if host.isascii() else host
    return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]


def _address(family: socket.AddressFamily, where: tuple[Any, ...]) -> AddrInfoType:
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where


def _name_tried(host: str, tried: Sequence[str]) -> str:
    found = sorted(set(tried) - {host, host.partition("%")[0]})
    return f" ({host} is {', '.join(found)})" if found else ""


async def leads_elsewhere(host: str, port: int, peer: str) -> bool:
    """Return whether the name *host* no longer resolves to *peer*.

    False if *host* is an address, or cannot be resolved now.
    """
    if is_address(host):
        return False
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LOOK_UP_TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:  # TimeoutError is one
        return False
    hosts = {str(where[0]).partition("%")[0] for *_, where in found}
    return peer.partition("%")[0] not in hosts


def is_address(host: str) -> bool:
    """Return whether *host* is an address, with or without a zone, not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_link_local(host: str) -> bool:
    """Return whether *host* is a link-local IPv6 address, with or without a zone."""
    try:
        return ip_address(host.partition("%")[0]).packed[:2] == _LINK_LOCAL
    except ValueError:
        return False


def find_own_host() -> str:
    """Return the address by which others reach this machine: IPv4, else IPv6, else 127.0.0.1."""
    for family, outside in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


# Inode of a socket -> its descriptor. Not by transport: uvloop's for TLS have no weak references.
_not_for_children: dict[int, int] = {}
_KEPT_MIN = 1024
_looked_through_at = _KEPT_MIN


def stop_accepting(server: asyncio.Server) -> None:
    """Accept no more connections; connecting peers wait until *server* is closed."""
    for each in server.sockets:
        if each.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(each.fileno())


async def close_server(server: asyncio.Server) -> None:
    """Stop listening; the protocols of all accepted connections know their transports after this.

    asyncio loses a connection if its server is closed between the iterations of the loop that
    accept it and make its transport: nothing closes such a connection, and its peer waits forever.
    """
    stop_accepting(server)
    try:
        for _ in range(_ACCEPTING_TURNS):
            await asyncio.sleep(0)
    finally:
        server.close()


def close_in_children(owner: asyncio.BaseTransport | socket.socket) -> None:
    """Close a socket, or that of a transport, in every process that is forked from this one."""
    global _looked_through_at
    bound = owner if isinstance(owner, socket.socket) else owner.get_extra_info("socket")
    try:
        number = bound.fileno()
        _not_for_children[os.fstat(number).st_ino] = number
    except (OSError, AttributeError):
        return  # closed already, or not a system socket
    if len(_not_for_children) >= _looked_through_at:
        # Loops of other threads keep sockets out, too: a copy is made in one step, a list is not.
        for inode, number in _not_for_children.copy().items():
            if not _is_open(inode, number):
                _not_for_children.pop(inode, None)
        _looked_through_at = max(2 * len(_not_for_children), _KEPT_MIN)


def _is_open(inode: int, number: int) -> bool:
    """Return whether a socket still has its descriptor, which another may have now."""
    try:
        return os.fstat(number).st_ino == inode
    except OSError:
        return False


def _close_inherited() -> None:
    # The numbers stay in use: objects of the parent that close them later must not close the
    # child's own files.
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for inode, number in _not_for_children.copy().items():
            with contextlib.suppress(OSError):
                if _is_open(inode, number):
                    os.dup2(nothing, number, inheritable=False)
    finally:
        os.close(nothing)
    _not_for_children.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
