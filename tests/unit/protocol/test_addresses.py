"""Hosts as records keep them."""

import pytest

from rockhopper.protocol.addresses import host_bytes, host_text, ip_bytes, ip_text


@pytest.mark.parametrize(
    ("ip", "port", "data"),
    [
        ("127.0.0.1", 10911, "7f000001 00002a9f"),
        ("1.2.3.4", 0, "01020304 00000000"),
        ("::1", 65535, "00000000000000000000000000000001 0000ffff"),
        ("2001:db8::7", -1, "20010db8000000000000000000000007 ffffffff"),
    ],
)
def test_a_host_is_address_and_port_in_network_order(ip: str, port: int, data: str) -> None:
    assert host_bytes(ip, port) == bytes.fromhex(data)
    assert host_text(bytes.fromhex(data)) == (ip, port)


def test_an_ipv4_address_in_an_ipv6_socket_is_that_of_ipv4() -> None:
    assert ip_bytes("::ffff:10.0.0.7") == bytes([10, 0, 0, 7])


def test_the_zone_of_a_link_local_address_is_left_out() -> None:
    assert ip_text(ip_bytes("fe80::1%eth0")) == "fe80::1"


@pytest.mark.parametrize("ip", ["localhost", "", "1.2.3", "1.2.3.4.5", "::g"])
def test_a_name_is_no_address(ip: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        ip_bytes(ip)


@pytest.mark.parametrize("size", [0, 3, 5, 15, 17])
def test_an_address_has_4_or_16_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        ip_text(bytes(size))
