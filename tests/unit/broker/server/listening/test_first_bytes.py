"""The first bytes of a connection tell TLS from everything else that is spoken here."""

import pytest

from rockhopper.broker.server.listening.arrivals import hello_size_bytes, is_tls

HELLO = b"\x16\x03\x01\x02\x00"


@pytest.mark.parametrize("size_bytes", range(1, 6))
def test_any_beginning_of_a_handshake_is_tls(size_bytes: int) -> None:
    assert is_tls(HELLO[:size_bytes])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00\x00\x01\x00", id="a frame"),
        pytest.param(b"GET / HTTP/1.1", id="HTTP"),
        pytest.param(b"PRI * HTTP/2.0", id="HTTP/2"),
        pytest.param(b"\x16\x02", id="another version"),
        pytest.param(b"\x16\x03\x01\x40\x01", id="a record over 2^14"),
        pytest.param(b"\x15\x03\x01\x00\x02", id="an alert"),
    ],
)
def test_everything_else_is_not(data: bytes) -> None:
    assert not is_tls(data)


def test_the_first_record_tells_how_much_must_come() -> None:
    assert hello_size_bytes(HELLO[:3]) == 5
    assert hello_size_bytes(HELLO) == 5 + 512
