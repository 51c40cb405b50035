"""A broker that registered over the loopback is found from elsewhere all the same."""

from types import SimpleNamespace
from typing import Any

from rockhopper.broker.name_server.processors import Neighbours
from rockhopper.broker.name_server.route_table import BrokerAddresses
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.users.peer import ConnectionAddresses

MEMBERS = [
    BrokerAddresses("c", "broker-a-0", {0: "127.0.0.1:10911"}),
    BrokerAddresses("c", "broker-a-1", {0: "127.0.0.1:10931"}),
    BrokerAddresses("c", "broker-b", {0: "192.0.2.50:10911"}),
]


def told(peer_host: str, local_host: str, **settings: str) -> list[str]:
    """What a client is told of MEMBERS."""
    peer: Any = SimpleNamespace(
        addresses=ConnectionAddresses(peer_host=peer_host, local_host=local_host)
    )
    members = Neighbours(build_config(settings)).list_reachable(peer, MEMBERS)
    return [member.addresses[0] for member in members]


def test_the_host_is_the_one_that_the_client_has_reached() -> None:
    assert told("192.0.2.7", "192.0.2.1") == [
        "192.0.2.1:10911",
        "192.0.2.1:10931",
        "192.0.2.50:10911",
    ]
    assert MEMBERS[0].addresses == {0: "127.0.0.1:10911"}


def test_a_client_of_the_same_machine_is_told_the_loopback() -> None:
    assert told("127.0.0.1", "127.0.0.1")[0] == "127.0.0.1:10911"


def test_what_is_set_for_a_broker_is_told_of_its_neighbours() -> None:
    assert told("192.0.2.7", "192.0.2.1", brokerIP1="203.0.113.9")[:2] == [
        "203.0.113.9:10911",
        "203.0.113.9:10931",
    ]
    rules = "192.0.2.0/24=localhost:20911"
    assert told("192.0.2.7", "192.0.2.1", advertise=rules)[:2] == [
        "localhost:20911",
        "localhost:20931",
    ]
