"""Headers of the PROXY protocol, as HAProxy's specification gives them."""

import ipaddress

import pytest

from rockhopper.broker.server.listening.proxy_protocol import (
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    ProxyProtocol,
    read_header,
)

LINE = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
V4 = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([192, 0, 2, 1, 198, 51, 100, 1]) + b"\xdc\x04\x01\xbb"
V6 = SIGNATURE + b"\x21\x21\x00\x24" + b"\x20\x01" + bytes(29) + b"\x01" + b"\xdc\x04\x01\xbb"


@pytest.mark.parametrize(
    ("data", "address"),
    [
        (LINE, ("192.0.2.1", 56324)),
        (b"PROXY TCP6 2001:db8::1 ::1 5 6\r\n", ("2001:db8::1", 5)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ::1 ::1 5 6\r\n", None),
        (V4, ("192.0.2.1", 56324)),
        (V6, ("2001::", 56324)),
        (SIGNATURE + b"\x20\x00\x00\x00", None),
        (SIGNATURE + b"\x21\x31\x00\x02\x00\x00", None),
    ],
)
def test_a_header_names_whose_connection_it_is(
    data: bytes, address: tuple[str, int] | None
) -> None:
    assert read_header(data + b"what follows") == ProxyHeader(len(data), address)


@pytest.mark.parametrize("data", [LINE, V4, V6])
def test_of_a_part_it_is_told_that_more_is_needed(data: bytes) -> None:
    for size_bytes in range(1, len(data)):
        needed = read_header(data[:size_bytes])
        assert isinstance(needed, int)
        assert size_bytes < needed <= len(data)


@pytest.mark.parametrize("data", [b"\x00\x00\x01\x00", b"\x16\x03\x01", b"GET /", b"POST /"])
def test_what_does_not_begin_like_one_is_left_alone(data: bytes) -> None:
    assert read_header(data) == ProxyHeader(0)


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
        b"PROXY TCP4 everybody 198.51.100.1 5 6\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 x 6\r\n",
        b"PROXY " + b"x" * 110,
        SIGNATURE + b"\x11\x11\x00\x00",
        SIGNATURE + b"\x21\x11\x00\x04abcd",
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_one_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        read_header(data)


def test_only_listed_addresses_may_announce_others() -> None:
    proxy = ProxyProtocol([ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("::1/128")])
    assert proxy.trusts("10.1.2.3")
    assert proxy.trusts("::1")
    assert not proxy.trusts("10.2.0.1")
    assert not proxy.trusts("no address")
