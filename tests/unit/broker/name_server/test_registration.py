"""Registering with name servers: every topic at once, again when one changed, and goodbye."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.name_server import link
from rockhopper.broker.name_server import registration as module
from rockhopper.broker.name_server.advertisement import ALONE, Advertisement
from rockhopper.broker.name_server.registration import Registrar
from rockhopper.broker.settings.advertise import Advertiser
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol import fastjson
from rockhopper.protocol.command import Command
from tests.support.fake_server import FakeServer
from tests.support.peers import Clock

REGISTER, UNREGISTER, SHARE, SHARE_ACCOUNTS = 103, 104, 70010, 70017
REGISTER_TOPIC = 217


class Registered:
    """A broker with the topic "orders" that registers with some name servers."""

    def __init__(self, root: Path, *addresses: str, **settings: str) -> None:
        self.advertisement = ALONE
        given = {"storePathRootDir": str(root), "brokerName": "me", "brokerClusterName": "C"}
        given |= {"namesrvAddr": ";".join(addresses)} | settings
        self.config = build_config(given)
        self.topics = TopicTable(root / "topics.json", self.config, now_ms=Clock())
        self.topics.put(TopicConfig("orders", perm=6))
        self.accounts: bytes | None = None
        advertiser = Advertiser([], broker_ip1="10.1.1.1", port=10_911, route_table="")
        self.registration = Registrar(
            self.config,
            self.topics,
            advertiser,
            instance="i1",
            ha_port=10_912,
            advertisement=lambda: self.advertisement,
            accounts=lambda: self.accounts or b"{}",
        )


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as made:
        made.on(REGISTER, lambda request: Command(0))
        made.on(UNREGISTER, lambda request: Command(0))
        made.on(SHARE_ACCOUNTS, lambda request: Command(0))
        yield made


@pytest.fixture
async def registered(tmp_path: Path, server: FakeServer) -> AsyncIterator[Registered]:
    made = Registered(tmp_path, server.address)
    made.registration.start()
    await server.wait_for(REGISTER)
    await made.registration.wait_until_announced()
    yield made
    await made.registration.stop()


def epoch_of(request: Command) -> int:
    wrapper = fastjson.loads(request.body)["topicConfigSerializeWrapper"]
    epoch: int = wrapper["dataVersion"]["stateVersion"]
    return epoch


def topics_of(request: Command) -> dict[str, dict[str, object]]:
    wrapper = fastjson.loads(request.body)["topicConfigSerializeWrapper"]
    table: dict[str, dict[str, object]] = wrapper["topicConfigTable"]
    return table


async def test_every_topic_is_registered_under_the_address(
    server: FakeServer, registered: Registered
) -> None:
    (request,) = server.requests_of(REGISTER)
    ext = request.ext or {}
    assert (ext["brokerName"], ext["clusterName"], ext["brokerId"]) == ("me", "C", "0")
    assert ext["brokerAddr"].endswith(":10911")
    assert ext["haServerAddr"].endswith(":10912")
    assert ext["bodyCrc32"] == str(zlib.crc32(request.body) & 0x7FFFFFFF)
    assert topics_of(request)["orders"]["perm"] == 6


async def test_a_change_is_registered_at_once(server: FakeServer, registered: Registered) -> None:
    registered.topics.put(TopicConfig("new"))
    await registered.registration.wait_until_announced()
    assert "new" in topics_of(server.requests_of(REGISTER)[-1])


async def test_a_changed_topic_is_told_alone_and_all_of_them_when_one_goes(
    server: FakeServer, registered: Registered
) -> None:
    server.on(REGISTER_TOPIC, lambda request: Command(0))
    registered.topics.put(TopicConfig("new", read_queue_nums=2, write_queue_nums=3))
    registered.topics.put(TopicConfig("newer"))
    await registered.registration.wait_until_announced()
    assert len(server.requests_of(REGISTER)) == 1
    told = server.requests_of(REGISTER_TOPIC)
    assert [(request.ext or {})["topic"] for request in told] == ["new", "newer"]
    (queues,) = fastjson.loads(told[0].body)["queueDatas"]
    assert queues == {
        "brokerName": "me",
        "readQueueNums": 2,
        "writeQueueNums": 3,
        "perm": 6,
        "topicSysFlag": 0,
    }
    registered.topics.delete("new")
    await registered.registration.wait_until_announced()
    assert topics_of(server.requests_of(REGISTER)[-1]).keys() == {"orders", "newer"}
    assert len(server.requests_of(REGISTER_TOPIC)) == 2


async def test_many_topics_at_once_are_registered_with_all(
    server: FakeServer, registered: Registered
) -> None:
    server.on(REGISTER_TOPIC, lambda request: Command(0))
    for number in range(module.TOLD_ALONE_MAX + 1):
        registered.topics.put(TopicConfig(f"t{number}"))
    await registered.registration.wait_until_announced()
    assert len(server.requests_of(REGISTER)) == 2
    assert server.requests_of(REGISTER_TOPIC) == []


async def test_a_name_service_that_lost_the_connection_is_told_all_topics(
    server: FakeServer, registered: Registered
) -> None:
    server.on(REGISTER_TOPIC, lambda request: Command(0))
    server.drop_connections()
    await server.wait_for(REGISTER, count=2)
    registered.topics.put(TopicConfig("new"))
    await registered.registration.wait_until_announced()
    known = topics_of(server.requests_of(REGISTER)[-1]).keys()
    alone = {(request.ext or {})["topic"] for request in server.requests_of(REGISTER_TOPIC)}
    assert "new" in known | alone


async def test_all_topics_are_registered_in_time_however_many_change_alone(
    tmp_path: Path, server: FakeServer
) -> None:
    server.on(REGISTER_TOPIC, lambda request: Command(0))
    made = Registered(tmp_path, server.address, registerNameServerPeriod="10000")
    made.registration.start()
    await server.wait_for(REGISTER)
    await made.registration.wait_until_announced()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    shift = 0.0
    real = loop.time
    loop.time = lambda: real() + shift  # type: ignore[method-assign]
    try:
        for number in range(3):
            made.topics.put(TopicConfig(f"t{number}"))
            await made.registration.wait_until_announced()
        assert len(server.requests_of(REGISTER)) == 1
        shift = 11.0
        made.topics.put(TopicConfig("wakes"))
        await server.wait_for(REGISTER, count=2)
        assert real() - began_s < 10
    finally:
        loop.time = real  # type: ignore[method-assign]
        await made.registration.stop()


async def test_users_are_told_when_they_change_and_to_who_was_away(
    server: FakeServer, registered: Registered
) -> None:
    for accounts in (b"one", b"one", b"two"):
        registered.accounts = accounts
        registered.registration.announce_soon()
        await registered.registration.wait_until_announced()
    told = [request.body for request in server.requests_of(SHARE_ACCOUNTS)]
    assert told == [b"{}", b"one", b"two"]
    assert (server.requests_of(SHARE_ACCOUNTS)[0].ext or {})["brokerName"] == "me"
    server.drop_connections()
    await server.wait_for(SHARE_ACCOUNTS, count=4)
    assert server.requests_of(SHARE_ACCOUNTS)[-1].body == b"two"


async def test_a_name_service_on_another_host_is_told_no_secret_without_tls(
    server: FakeServer, registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "is_loopback", lambda _host: False)
    registered.accounts = b"changed"
    with capture_logs() as lines:
        for _ in range(2):
            registered.registration.announce_soon()
            await registered.registration.wait_until_announced()
    assert [line["event"] for line in lines if "without TLS" in line["event"]] == [
        "users are not copied to a name server on another host without TLS: set tlsEnable=true, "
        "or give it its own users"
    ]
    assert [request.body for request in server.requests_of(SHARE_ACCOUNTS)] == [b"{}"]


async def test_a_replica_registers_as_what_it_is_in_the_epoch_that_it_knows(
    server: FakeServer, registered: Registered
) -> None:
    for advertisement, broker_id in (
        (Advertisement(3, elected_in=7), "3"),
        (Advertisement(3, leads_in=8), "0"),
    ):
        registered.advertisement = advertisement
        registered.registration.announce_soon()
        await registered.registration.wait_until_announced()
        request = server.requests_of(REGISTER)[-1]
        assert ((request.ext or {})["brokerId"], epoch_of(request)) == (
            broker_id,
            advertisement.epoch,
        )


async def test_a_follower_that_is_not_to_be_shown_takes_its_registration_back(
    server: FakeServer, registered: Registered
) -> None:
    registered.advertisement = Advertisement(3, shows_followers=False)
    for _ in range(2):
        registered.registration.announce_soon()
        await registered.registration.wait_until_announced()
    assert len(server.requests_of(UNREGISTER)) == 1
    assert len(server.requests_of(REGISTER)) == 1


async def test_what_a_replica_was_while_its_topics_were_collected_is_not_registered(
    server: FakeServer, registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = registered.registration.request_body

    def deposed_meanwhile(advertisement: Advertisement) -> bytes:
        registered.advertisement = Advertisement(3, elected_in=9)
        return collect(advertisement)

    monkeypatch.setattr(registered.registration, "request_body", deposed_meanwhile)
    registered.advertisement = Advertisement(3, leads_in=8)
    registered.registration.announce_soon()
    await registered.registration.wait_until_announced()
    assert [epoch_of(request) for request in server.requests_of(REGISTER)] == [0, 9]


async def test_a_follower_takes_no_topic_that_is_passed_on(tmp_path: Path) -> None:
    made = Registered(tmp_path, "127.0.0.1:1")
    made.advertisement = Advertisement(3)
    made.registration.handle(Command(SHARE, ext={"topic": "theirs", "queueNums": "2", "perm": "6"}))
    assert made.topics.get("theirs") is None


async def test_what_the_broker_forbids_is_taken_from_its_topics(
    server: FakeServer, registered: Registered
) -> None:
    registered.config.live.broker_permission = 4
    registered.registration.announce_soon()
    await registered.registration.wait_until_announced()
    assert topics_of(server.requests_of(REGISTER)[-1])["orders"]["perm"] == 4


async def test_a_name_service_that_lost_it_is_told_again(
    server: FakeServer, registered: Registered
) -> None:
    server.drop_connections()
    assert len(await server.wait_for(REGISTER, 2)) == 2


async def test_a_name_service_that_is_away_is_tried_again_and_named_once(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    answers = [Command(1, remark="not yet"), Command(1, remark="not yet")]
    server.on(REGISTER, lambda request: answers.pop() if answers else Command(0))
    made = Registered(tmp_path, server.address)
    with capture_logs() as logs:
        made.registration.start()
        await server.wait_for(REGISTER, 3)
        made.registration.announce_soon()
        await server.wait_for(REGISTER, 4)
    assert [entry["event"] for entry in logs] == ["registration failed, retrying", "registered"]
    await made.registration.stop()


async def test_it_says_goodbye_where_it_is_registered(
    server: FakeServer, registered: Registered
) -> None:
    await registered.registration.stop()
    (request,) = server.requests_of(UNREGISTER)
    assert (request.ext or {})["brokerName"] == "me"
    registered.registration.announce_soon()
    await asyncio.sleep(0)
    assert len(server.requests_of(REGISTER)) == 1


async def test_a_topic_is_shared_where_it_is_registered(
    server: FakeServer, registered: Registered
) -> None:
    (listener,) = registered.topics.listeners
    listener.topic_created(TopicConfig("mine", write_queue_nums=3))
    (request,) = await server.wait_for(SHARE)
    assert (request.ext or {})["queueNums"] == "3"


def test_what_a_name_service_passes_on_is_taken_or_named(tmp_path: Path) -> None:
    made = Registered(tmp_path, "127.0.0.1:1")
    made.registration.handle(Command(SHARE, ext={"topic": "theirs", "queueNums": "2", "perm": "6"}))
    assert made.topics.get("theirs") is not None
    with capture_logs() as logs:
        made.registration.handle(Command(SHARE, ext={}))
        made.registration.handle(Command(99, ext={}))
    assert len(logs) == 1
