"""Names of sockets, as they are logged and stored."""

import socket

import pytest

from rockhopper.broker.server.listening.socket_names import socket_address


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
