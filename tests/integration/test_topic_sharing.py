"""A topic that a client makes is on every master, however many messages were sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.name_server.alone import NameServer
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from tests.integration.test_group_consumption import heartbeat
from tests.support.direct import ask, route, send
from tests.support.raw_peer import RawPeer, until


@asynccontextmanager
async def cluster(
    tmp_path: Path, *modes: str, other_cluster: bool = False
) -> AsyncIterator[tuple[NameServer, list[Broker]]]:
    """A name server alone, and a broker for each autoCreateTopic."""
    home = str(tmp_path / "names")
    config = {"namesrvPort": "0", "httpPort": "-1", "storePathRootDir": home}
    names = NameServer(build_config(config))
    await names.start()
    brokers = []
    try:
        for number, mode in enumerate(modes):
            settings = {
                "role": "broker",
                "brokerName": f"broker-{number}",
                "namesrvAddr": names.address,
                "autoCreateTopic": mode,
                "httpPort": "-1",
            }
            if other_cluster and number:
                settings["brokerClusterName"] = "Elsewhere"
            broker = Broker.temporary(settings)
            await broker.start()
            brokers.append(broker)
        await until(lambda: len(names.routes.members("")) == len(modes))
        yield names, brokers
    finally:
        for broker in brokers:
            await broker.stop()
        await names.stop()


def brokers_of(names: NameServer, topic: str) -> list[str]:
    """The brokers that the name server knows to have a topic."""
    known = names.routes.route(topic, "")
    return [] if known is None else [data.broker_name for data in known.queues]


def queues_of(answer: Command) -> dict[str, int]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    datas = fastjson.loads(answer.body)["queueDatas"]
    return {data["brokerName"]: data["writeQueueNums"] for data in datas}


@pytest.mark.parametrize("count", [1, 10])
async def test_all_masters_have_it_after_one_message_and_after_ten(
    tmp_path: Path, count: int
) -> None:
    async with cluster(tmp_path, "on-send", "on-send") as (names, brokers):
        for number in range(count):
            answer = await send(brokers[number % 2].address, "orders", b"x")
            assert answer.code == ResponseCode.SUCCESS
        await until(lambda: len(brokers_of(names, "orders")) == 2)
        found = queues_of(await route(names.address, "orders"))
        assert found == {"broker-0": 4, "broker-1": 4}


async def test_producers_that_disagree_end_with_the_larger_number(tmp_path: Path) -> None:
    fields = {"producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "queueId": "0"}
    fields |= {"sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": ""}
    async with cluster(tmp_path, "on-send", "on-send") as (_, brokers):
        await asyncio.gather(
            *(
                ask(
                    broker.address,
                    Code.SEND_MESSAGE,
                    fields | {"defaultTopicQueueNums": wanted},
                    b"x",
                )
                for broker, wanted in zip(brokers, ("2", "6"), strict=True)
            )
        )
        await until(
            lambda: all(b.tables.topics.configs["orders"].write_queue_nums == 6 for b in brokers)
        )


async def test_an_embedded_name_service_shares_both_ways(tmp_path: Path) -> None:
    async with Broker.temporary({"brokerName": "home"}) as home:
        settings = {"role": "broker", "brokerName": "away", "namesrvAddr": home.nameserver}
        async with Broker.temporary(settings | {"httpPort": "-1"}) as away:
            assert home.servers.name_service is not None
            routes = home.servers.name_service.routes
            await until(lambda: len(routes.members("")) == 2)
            await send(home.address, "from-home", b"x")
            await send(away.address, "from-away", b"x")
            await until(
                lambda: "from-home" in away.tables.topics and "from-away" in home.tables.topics
            )
            assert (
                away.tables.topics.configs["from-home"] == home.tables.topics.configs["from-home"]
            )


async def test_a_broker_that_makes_no_topics_and_another_cluster_take_no_part(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, "on-send", "off") as (_, brokers):
        await send(brokers[0].address, "orders", b"x")
        await brokers[0].announce()
        assert "orders" not in brokers[1].tables.topics
    async with cluster(tmp_path, "on-send", "on-send", other_cluster=True) as (_, brokers):
        await send(brokers[0].address, "orders", b"x")
        await brokers[0].announce()
        assert "orders" not in brokers[1].tables.topics


async def test_a_stranger_cannot_share_topics(tmp_path: Path) -> None:
    async with cluster(tmp_path, "on-send") as (names, brokers), RawPeer(names.address) as peer:
        answer = await peer.ask(Code.SHARE_TOPIC, {"topic": "orders", "queueNums": "4"})
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "orders" not in brokers[0].tables.topics


async def test_a_route_that_is_asked_for_makes_the_topic_on_all_masters(tmp_path: Path) -> None:
    async with cluster(tmp_path, "on-lookup", "on-lookup") as (names, _):
        found = queues_of(await route(names.address, "orders"))
        assert found == {"broker-0": 4, "broker-1": 4}


@pytest.mark.parametrize(
    "name", ["%RETRY%g/h", "%DLQ%g", "%LMQ%x", "rmq_sys_x", "TBW102x y", "SCHEDULE_TOPIC_YYYY!", ""]
)
async def test_names_that_are_not_for_users_are_not_made_by_asking(name: str) -> None:
    async with Broker.temporary({"autoCreateTopic": "on-lookup"}) as broker:
        before = set(broker.tables.topics.configs)
        assert (await route(broker.nameserver, name)).code == ResponseCode.TOPIC_NOT_EXIST
        assert set(broker.tables.topics.configs) == before


@pytest.mark.parametrize(("settings", "is_there"), [({}, True), ({"traceOn": "false"}, False)])
async def test_topic_for_traces_is_there_when_traces_are_asked_for(
    settings: dict[str, str], is_there: bool
) -> None:
    async with Broker.temporary({"autoCreateTopic": "off"} | settings) as broker:
        answer = await route(broker.nameserver, "RMQ_SYS_TRACE_TOPIC")
        assert (answer.code == ResponseCode.SUCCESS) == is_there
        sent = await send(broker.address, "RMQ_SYS_TRACE_TOPIC", b"Pub\x01...")
        assert (sent.code == ResponseCode.SUCCESS) == is_there


async def test_retry_topic_has_a_route_elsewhere_once_the_heartbeat_is_answered(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, "on-send", "on-send") as (names, brokers):
        for number, broker in enumerate(brokers):
            body = heartbeat("c1", f"group-{number}", "orders")
            await ask(broker.address, Code.HEART_BEAT, body=body)
            found = queues_of(await route(names.address, f"%RETRY%group-{number}"))
            assert found == {f"broker-{number}": 1}
