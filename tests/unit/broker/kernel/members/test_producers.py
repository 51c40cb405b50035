"""ProducerTable: who is in a group, who has a client id, and when somebody is gone."""

import pytest

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import HEARTBEAT_TIMEOUT_MS, Client
from rockhopper.broker.kernel.members.producers import GROUPS_PER_CONNECTION_MAX, ProducerTable
from rockhopper.broker.users.errors import NoPermission, TooManyWait
from tests.support.peers import Clock, Peer


class Producers(KernelListener):
    def __init__(self) -> None:
        self.clock = Clock()
        self.table = ProducerTable(now_ms=self.clock, listeners=[self])
        self.joined: list[str] = []

    def producer_joined(self, group: str) -> None:
        self.joined.append(group)

    def beat(self, group: str, client_id: str, peer: Peer, user: str = "") -> None:
        self.table.register(group, Client(peer.connection, client_id, 0, 479, user))

    def ids(self, group: str) -> list[str]:
        return [client.client_id for client in self.table.clients(group)]


@pytest.fixture
def producers() -> Producers:
    return Producers()


def test_a_heartbeat_joins_a_group_and_is_told_once(producers: Producers) -> None:
    peer, other = Peer(), Peer(port=2)
    for _ in range(2):
        producers.beat("g", "a", peer)
    producers.beat("h", "a", peer)
    producers.beat("g", "b", other)
    assert producers.ids("g") == ["a", "b"]
    assert {group: len(each) for group, each in producers.table.groups().items()} == {
        "g": 2,
        "h": 1,
    }
    assert producers.joined == ["g", "h", "g"]
    assert producers.ids("nobody") == []


def test_of_two_connections_with_one_id_the_newest_is_found(producers: Producers) -> None:
    old, new = Peer(port=1), Peer(port=2)
    producers.beat("g", "a", old)
    producers.beat("g", "a", new)
    assert (found := producers.table.find("a")) is not None
    assert found.connection is new.connection
    producers.beat("g", "a", old)
    assert (found := producers.table.find("a")) is not None
    assert found.connection is old.connection
    old.hang_up()
    assert (found := producers.table.find("a")) is not None
    assert found.connection is new.connection
    assert producers.table.find("b") is None


def test_an_id_belongs_to_the_user_who_came_with_it_first(producers: Producers) -> None:
    al, other = Peer(port=1), Peer(port=2)
    producers.beat("g", "a", al, "al")
    with pytest.raises(NoPermission, match="another user"):
        producers.beat("h", "a", other, "mallory")
    assert (found := producers.table.find("a")) is not None
    assert found.connection is al.connection
    producers.beat("g", "a", other, "al")
    producers.beat("g", "b", other, "mallory")
    assert [client.user for client in producers.table.clients("g")] == ["al", "mallory"]
    producers.beat("g", "b", other, "al")
    assert [client.user for client in producers.table.clients("g")] == ["al", "al"]
    al.hang_up()
    other.hang_up()
    producers.beat("h", "a", Peer(port=3), "mallory")
    assert producers.ids("h") == ["a"]


def test_an_id_is_known_while_it_is_in_any_group(producers: Producers) -> None:
    peer = Peer()
    producers.beat("g", "a", peer)
    producers.beat("h", "a", peer)
    producers.table.unregister("g", peer.connection)
    assert producers.table.find("a") is not None
    assert producers.ids("g") == []
    producers.table.unregister("h", peer.connection)
    assert producers.table.find("a") is None
    assert producers.table.groups() == {}
    producers.table.unregister("h", peer.connection)


def test_a_connection_that_changes_its_id_has_only_the_new_one(producers: Producers) -> None:
    peer = Peer()
    producers.beat("g", "a", peer)
    producers.beat("g", "b", peer)
    assert producers.ids("g") == ["b"]
    assert producers.table.find("a") is None
    assert producers.table.find("b") is not None


def test_a_closed_connection_leaves_all_its_groups(producers: Producers) -> None:
    peer = Peer()
    for group in ("g", "h"):
        producers.beat(group, "a", peer)
    peer.hang_up()
    assert producers.table.groups() == {}
    assert producers.table.find("a") is None
    producers.beat("g", "a", peer)
    assert producers.table.groups() == {}


def test_who_is_silent_for_too_long_is_taken_out(producers: Producers) -> None:
    silent, alive = Peer(port=1), Peer(port=2)
    producers.beat("g", "a", silent)
    producers.beat("g", "b", alive)
    producers.clock.advance(HEARTBEAT_TIMEOUT_MS)
    producers.table.expire()
    assert producers.ids("g") == ["a", "b"]
    producers.beat("g", "b", alive)
    producers.clock.advance(1)
    producers.table.expire()
    assert producers.ids("g") == ["b"]


class CountedGroup(str):
    """The name of a group that counts how often it is compared or looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        CountedGroup.looked_up += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


def look_ups_of_closing(producers: Producers, count: int) -> int:
    peer = Peer(port=count)
    for number in range(count):
        producers.beat(CountedGroup(f"g{number}"), "a", peer)
    CountedGroup.looked_up = 0
    peer.hang_up()
    return CountedGroup.looked_up


def test_closing_a_connection_costs_the_same_for_each_of_its_groups(producers: Producers) -> None:
    few, many = (look_ups_of_closing(producers, count) for count in (100, 1000))
    assert many <= 11 * few
    assert not producers.table.groups()
    assert producers.table.find("a") is None


def test_those_that_went_silent_go_without_a_look_at_the_others(producers: Producers) -> None:
    silent, alive = Peer(port=1), Peer(port=2)
    producers.beat("g", "a", silent)
    for number in range(1000):
        producers.beat(CountedGroup(f"g{number}"), "b", alive)
    producers.clock.advance(HEARTBEAT_TIMEOUT_MS + 1)
    for number in range(1000):
        producers.beat(CountedGroup(f"g{number}"), "b", alive)
    CountedGroup.looked_up = 0
    producers.table.expire()
    assert CountedGroup.looked_up < 10
    assert producers.ids("g") == []
    assert producers.table.find("b") is not None


def test_a_connection_is_in_a_bounded_number_of_groups(producers: Producers) -> None:
    peer, other = Peer(port=1), Peer(port=2)
    for number in range(GROUPS_PER_CONNECTION_MAX):
        producers.beat(f"g{number}", "a", peer)
    with pytest.raises(TooManyWait, match="2000 producer groups"):
        producers.beat("one more", "a", peer)
    producers.beat("g0", "a", peer)
    producers.beat("one more", "b", other)
    assert producers.ids("one more") == ["b"]


def test_all_connections_together_are_in_a_bounded_number_of_groups(
    producers: Producers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.kernel.members.producers.GROUPS_MAX", 2)
    producers.beat("g", "a", Peer(port=1))
    last = Peer(port=2)
    producers.beat("g", "b", last)
    with pytest.raises(TooManyWait, match="all connections together"):
        producers.beat("g", "c", Peer(port=3))
    last.hang_up()
    producers.beat("g", "c", Peer(port=3))


def test_an_id_goes_with_the_last_of_its_groups_on_a_connection(producers: Producers) -> None:
    peer = Peer()
    for group in ("g", "h"):
        producers.beat(group, "a", peer)
    producers.beat("h", "b", peer)
    producers.table.unregister("g", peer.connection)
    assert producers.table.find("a") is None
    assert producers.table.find("b") is not None
