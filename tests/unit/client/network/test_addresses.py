"""Addresses as people write them."""

import pytest

from rockhopper.client.network.addresses import parse_nameservers, split_address


def test_a_list_is_separated_by_semicolons_or_commas() -> None:
    assert parse_nameservers("a:1;b:2, c:3") == ("a:1", "b:2", "c:3")


def test_a_missing_port_is_9876() -> None:
    assert parse_nameservers("localhost;[::1]") == ("localhost:9876", "[::1]:9876")


def test_the_environment_and_then_this_machine_are_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert parse_nameservers(None) == ("127.0.0.1:9876",)
    monkeypatch.setenv("NAMESRV_ADDR", "mq:9876")
    assert parse_nameservers(None) == ("mq:9876",)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert split_address("[::1]:9876") == ("::1", 9876)
    assert split_address("[fe80::1%eth0]:9876") == ("fe80::1%eth0", 9876)
    with pytest.raises(ValueError, match="ambiguous"):
        split_address("::1:9876")


@pytest.mark.parametrize("text", ["a:x", "a:0", "a:65536", ":9876", ";", "a:१", "a b", "tcp://a:1"])
def test_what_cannot_be_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must look like|is not a port|not a valid host name"):
        parse_nameservers(text)
