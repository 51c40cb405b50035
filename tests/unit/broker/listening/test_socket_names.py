"""Names of sockets, as they are logged and stored."""

import pytest

from rockhopper.broker.listening.socket_names import socket_address


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
