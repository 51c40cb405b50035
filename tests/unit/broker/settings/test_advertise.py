"""Which address a client is told: rules first, brokerIP1, then where its connection arrived."""

import pytest

from rockhopper.broker.settings.advertise import (
    Advertiser,
    choose_fixed_host,
    parse_route_table,
    parse_rule,
)
from rockhopper.protocol.addresses import is_loopback, join_address, split_address
from rockhopper.sockets import find_own_host

# /proc/net/route of a container in 172.18.0.0/16 whose host is 172.18.0.1.
CONTAINER = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
COMPOSE = ("gateway=127.0.0.1:20911", "subnet=self")


def advertiser(*rules: str, broker_ip1: str = "", route_table: str = CONTAINER) -> Advertiser:
    return Advertiser(
        [parse_rule(rule) for rule in rules],
        broker_ip1=broker_ip1,
        port=10911,
        route_table=route_table,
    )


def test_without_settings_a_client_is_told_where_it_arrived() -> None:
    assert advertiser().address_for("127.0.0.1", "127.0.0.1") == "127.0.0.1:10911"
    assert advertiser().address_for("10.1.1.1", "192.0.2.7") == "192.0.2.7:10911"
    assert advertiser().address_for("::1", "::1") == "[::1]:10911"


def test_broker_ip1_is_told_to_everybody() -> None:
    assert advertiser(broker_ip1="203.0.113.9").address_for("10.1.1.1", "10.0.0.1") == (
        "203.0.113.9:10911"
    )


def test_a_rule_beats_broker_ip1_and_the_first_match_wins() -> None:
    chooser = advertiser("10.1.0.0/16=a:1", "10.0.0.0/8=b", broker_ip1="203.0.113.9")
    assert chooser.address_for("10.1.2.3", "10.0.0.1") == "a:1"
    assert chooser.address_for("10.2.2.3", "10.0.0.1") == "b:10911"
    assert chooser.address_for("192.0.2.1", "10.0.0.1") == "203.0.113.9:10911"


def test_in_a_container_the_host_gets_the_published_port_and_neighbours_the_container() -> None:
    chooser = advertiser(*COMPOSE)
    assert chooser.address_for("172.18.0.1", "172.18.0.2") == "127.0.0.1:20911"
    assert chooser.address_for("172.18.0.3", "172.18.0.2") == "172.18.0.2:10911"
    assert chooser.address_for("127.0.0.1", "127.0.0.1") == "127.0.0.1:10911"


def test_the_same_rules_do_no_harm_where_there_is_no_route_table() -> None:
    assert advertiser(*COMPOSE, route_table="").address_for("10.0.0.1", "10.0.0.2") == (
        "10.0.0.2:10911"
    )


def test_any_matches_every_address() -> None:
    chooser = advertiser("any=broker.example:443")
    assert chooser.address_for("2001:db8::1", "::1") == "broker.example:443"
    assert chooser.address_for("fe80::1%eth0", "::1") == "broker.example:443"


def test_gateways_and_networks_are_read_from_the_kernels_table() -> None:
    gateways, subnets = parse_route_table(CONTAINER)
    assert [str(gateway) for gateway in gateways] == ["172.18.0.1/32"]
    assert [str(subnet) for subnet in subnets] == ["172.18.0.0/16"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:1", ("host", 1)),
        ("host", ("host", None)),
        ("[::1]:5", ("::1", 5)),
        ("::1", ("::1", None)),
        ("[::1]", ("::1", None)),
        ("host:x", ("host", 0)),
    ],
)
def test_addresses_are_split(text: str, expected: tuple[str, int | None]) -> None:
    assert split_address(text) == expected


def test_addresses_are_joined_as_they_are_split() -> None:
    assert split_address(join_address("::1", 7)) == ("::1", 7)


def test_stored_messages_name_one_address_in_figures() -> None:
    assert choose_fixed_host("0.0.0.0", "203.0.113.9") == "203.0.113.9"
    assert choose_fixed_host("127.0.0.1", "") == "127.0.0.1"
    assert choose_fixed_host("127.0.0.1", "broker.example") == "127.0.0.1"
    assert choose_fixed_host("::", "fd31::b") == "fd31::b"
    assert choose_fixed_host("fd31::b", "") == "fd31::b"
    assert choose_fixed_host("::1", "") == "::1"
    assert choose_fixed_host("0.0.0.0", "") == choose_fixed_host("::", "") == find_own_host()


def test_loopback_is_recognised() -> None:
    assert is_loopback("127.0.0.53")
    assert is_loopback("::1")
    assert not is_loopback("172.18.0.1")
