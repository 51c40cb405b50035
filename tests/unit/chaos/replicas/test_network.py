"""Cuts are made by what ip is told; here it is only told."""

from pathlib import Path

import pytest

from tests.chaos.replicas import network
from tests.chaos.replicas.network import CLIENTS, NOBODY, Network

Told = list[tuple[str, ...]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    said: Told = []
    monkeypatch.setattr(network, "run", lambda *words: said.append(tuple(map(str, words))))
    monkeypatch.setattr(network, "NAMES", tmp_path / "netns")
    return said


def test_without_namespaces_all_hosts_are_this_one(told: Told) -> None:
    with Network(["r1", "e0"], is_cuttable=False) as made:
        assert {host.address for host in made.hosts.values()} == {"127.0.0.1"}
        assert {host.enter for host in made.hosts.values()} == {()}
    assert told == []


def test_every_host_has_an_address_and_a_way_in() -> None:
    made = Network(["r1", "e0"], is_cuttable=True)
    assert [host.address for host in made.hosts.values()] == ["10.77.0.1", "10.77.0.2"]
    assert made.hosts["e0"].enter == ("ip", "netns", "exec", "e0")


def test_a_cut_is_a_neighbour_that_is_nobody_until_the_last_one_heals(told: Told) -> None:
    made = Network(["r1", "r2"], is_cuttable=True)
    nobody = ("replace", "10.77.0.2", "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")
    for _ in range(2):
        made.cut("r1", "r2")
    assert told == [("ip", "-n", "r1", "neigh", *nobody)]
    made.heal("r1", "r2")
    assert len(told) == 1
    made.heal("r1", "r2")
    assert told[1:] == [("ip", "-n", "r1", "neigh", "del", "10.77.0.2", "dev", "eth0")]


def test_the_next_network_may_have_the_names_of_the_last_one(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Network, "_try", lambda _: None)
    with Network(["r1"], is_cuttable=True):
        del told[:]
    assert told[:2] == [("ip", "link", "del", "to-r1"), ("ip", "netns", "del", "r1")]


def test_clients_are_cut_off_by_their_address(told: Told) -> None:
    Network(["r1"], is_cuttable=True).cut("r1", CLIENTS)
    assert told[0][4:6] == ("replace", CLIENTS)


@pytest.mark.parametrize(
    ("arrives", "complaint"),
    [([True], "nothing can be cut here"), ([False, False], "hosts do not reach each other")],
)
def test_a_network_that_cannot_be_cut_or_healed_is_refused(
    told: Told, monkeypatch: pytest.MonkeyPatch, arrives: list[bool], complaint: str
) -> None:
    monkeypatch.setattr(Network, "_arrives", lambda *_: arrives.pop(0))
    with pytest.raises(OSError, match=complaint), Network(["r1", "r2"], is_cuttable=True):
        pass
    assert told
