"""Sharing topics: what one broker made is passed on to the other brokers of ours, and no others."""

import asyncio

import pytest

from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server import sharing as module
from rockhopper.broker.name_server.advertisement import Advertisement
from rockhopper.broker.name_server.sharing import TopicSharing, adopt, share_fields
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import FieldError
from tests.support.name_server import FIELDS, NameServer
from tests.support.peers import Peer

SHARED = {"topic": "new", "queueNums": "3", "perm": "6"}


class Brokers:
    """Name server with brokers that registered, by name: (cluster, how they create)."""

    def __init__(self, server: NameServer) -> None:
        self.server = server
        self.sharing: TopicSharing = server.processors.sharing
        self.peers: dict[str, Peer] = {}

    def register(self, name: str, cluster: str = "C", creates: str | None = "on-send") -> Peer:
        peer = self.peers[name] = Peer(port=len(self.peers) + 1)
        self.sharing.registered(peer.connection, cluster, name, creates)
        return peer

    def told(self) -> set[str]:
        return {name for name, peer in self.peers.items() if peer.requests}


def test_brokers_of_the_same_cluster_are_told_but_for_who_says_it(alone: NameServer) -> None:
    brokers = Brokers(alone)
    origin = brokers.register("a")
    brokers.register("b")
    brokers.register("other", cluster="D")
    brokers.register("apache", creates=None)
    answer = alone.ask(RequestCode.SHARE_TOPIC, SHARED, peer=origin)
    assert answer.code == ResponseCode.SUCCESS
    assert brokers.told() == {"b"}
    assert brokers.peers["b"].requests == [(RequestCode.SHARE_TOPIC, SHARED)]


def test_only_who_is_registered_shares(alone: NameServer) -> None:
    brokers = Brokers(alone)
    brokers.register("a")
    assert alone.ask(RequestCode.SHARE_TOPIC, SHARED, peer=Peer()).code == (
        ResponseCode.NO_PERMISSION
    )
    gone = brokers.register("b")
    gone.hang_up()
    assert alone.ask(RequestCode.SHARE_TOPIC, SHARED, peer=gone).code == ResponseCode.NO_PERMISSION
    assert brokers.told() == set()


def test_the_broker_in_this_process_takes_part_in_its_own_cluster(server: NameServer) -> None:
    brokers = Brokers(server)
    ours = server.config.cluster_name
    peer = brokers.register("a", cluster=ours)
    server.ask(RequestCode.SHARE_TOPIC, SHARED, peer=peer)
    topic = server.topics.get("new")
    assert topic is not None
    assert topic.write_queue_nums == 3
    (listener,) = server.topics.listeners
    listener.topic_created(TopicConfig("mine", read_queue_nums=2, write_queue_nums=2))
    assert peer.requests == [
        (RequestCode.SHARE_TOPIC, {"topic": "mine", "queueNums": "2", "perm": "6"})
    ]
    stranger = brokers.register("b", cluster="elsewhere")
    server.ask(RequestCode.SHARE_TOPIC, SHARED | {"topic": "theirs"}, peer=stranger)
    assert server.topics.get("theirs") is None


def test_a_follower_has_its_topics_from_its_master_and_lets_that_create_them(
    server: NameServer,
) -> None:
    brokers = Brokers(server)
    server.advertisement = Advertisement(1)
    peer = brokers.register("master", cluster=server.config.cluster_name, creates="on-lookup")
    server.ask(RequestCode.SHARE_TOPIC, SHARED, peer=peer)
    assert server.topics.get("new") is None
    assert brokers.sharing.may_create("new")
    server.advertisement = Advertisement(1, leads_in=1)
    assert not brokers.sharing.may_create("new")


def test_what_is_shared_is_made_with_its_queues_and_nothing_without_a_topic(
    server: NameServer,
) -> None:
    adopt(server.topics, share_fields(TopicConfig("new", write_queue_nums=5)))
    topic = server.topics.get("new")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (5, 5, 6)
    with pytest.raises(FieldError, match="topic"):
        adopt(server.topics, {})


@pytest.mark.parametrize(
    ("topic", "creates", "may"),
    [
        ("new", "on-lookup", True),
        ("new", "on-send", False),
        ("new", None, False),
        ("%RETRY%g", "on-lookup", False),
        ("no topic!", "on-lookup", False),
    ],
)
def test_a_look_up_creates_where_a_broker_does_so(
    alone: NameServer, topic: str, creates: str | None, may: bool
) -> None:
    brokers = Brokers(alone)
    brokers.register("a", creates=creates)
    assert brokers.sharing.may_create(topic) is may


async def test_a_look_up_waits_until_every_broker_that_creates_has_registered(
    alone: NameServer,
) -> None:
    brokers = Brokers(alone)
    peer = brokers.register("broker-b", creates="on-lookup")
    brokers.register("lazy", creates="on-send")
    waiting = asyncio.ensure_future(brokers.sharing.created("orders"))
    await asyncio.sleep(0)
    assert [ext["queueNums"] for _, ext in peer.requests] == ["0"]
    assert brokers.told() == {"broker-b"}
    assert not waiting.done()
    alone.register(**FIELDS)
    brokers.sharing.registered(peer.connection, "C", "broker-b", "on-lookup")
    await waiting


async def test_a_broker_that_does_not_register_is_not_waited_for(
    alone: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_TIMEOUT_S", 0.0)
    brokers = Brokers(alone)
    brokers.register("a", creates="on-lookup")
    await brokers.sharing.created("orders")
    monkeypatch.setattr(module, "LOOKUPS_MAX", 0)
    assert not brokers.sharing.may_create("orders")
