"""Names of sockets, as they are logged and stored."""

import asyncio
import socket

import pytest

from rockhopper.broker.server.listening.caller import DIRECT, Caller
from rockhopper.broker.server.listening.socket_names import read_addresses, socket_address
from rockhopper.protocol.addresses import host_bytes


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("10.0.0.1", 9), ("10.0.0.1", 9)),
        (("::ffff:10.0.0.1", 9, 0, 0), ("10.0.0.1", 9)),
        (("::1", 9, 0, 0), ("::1", 9)),
        ("/a/path", ("127.0.0.1", 0)),
        (None, ("127.0.0.1", 0)),
    ],
)
def test_an_address_is_host_and_port(name: object, address: tuple[str, int]) -> None:
    assert socket_address(name) == address


def test_a_link_local_address_has_its_zone() -> None:
    index, name = socket.if_nameindex()[0]
    assert socket_address(("fe80::1", 9, 0, index)) == (f"fe80::1%{name}", 9)
    assert socket_address((f"fe80::1%{name}", 9, 0, index)) == (f"fe80::1%{name}", 9)


@pytest.mark.parametrize(
    ("caller", "peer"),
    [(DIRECT, "10.1.2.3:4567"), (Caller(("192.0.2.7", 89)), "192.0.2.7:89")],
    ids=["direct", "by a proxy"],
)
def test_the_addresses_of_a_connection_are_those_of_its_client(caller: Caller, peer: str) -> None:
    names = {"peername": ("::ffff:10.1.2.3", 4567), "sockname": ("::1", 10_911, 0, 0)}
    addresses = read_addresses(asyncio.BaseTransport(names), caller)
    assert (addresses.peer, addresses.local) == (peer, "[::1]:10911")
    assert addresses.born_host == host_bytes(addresses.peer_host, addresses.peer_port)
