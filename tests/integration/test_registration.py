"""Several brokers under one name server: registering, changing, leaving, coming back."""

import asyncio
import json
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.alone import NameServer
from rockhopper.broker.name_server.route_table import Accepted
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol.codes import ResponseCode
from tests.support.direct import pull, route, send
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
from tests.support.listening import listening


def name_server(port: str = "0") -> NameServer:
    return NameServer(build_config({"role": "nameserver", "namesrvPort": port, "httpPort": "-1"}))


@pytest.fixture
async def names() -> AsyncIterator[NameServer]:
    server = name_server()
    await server.start()
    yield server
    await server.stop()


def broker_named(name: str, nameserver: str, **settings: str) -> Broker:
    return Broker.temporary(
        {"brokerName": name, "namesrvAddr": nameserver, "role": "broker"} | settings
    )


async def brokers_of(nameserver: str, topic: str) -> dict[str, str]:
    """Broker name -> address of the master, for the brokers that have *topic*."""
    answer = await route(nameserver, topic)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return {}
    return {
        data["brokerName"]: data["brokerAddrs"]["0"]
        for data in json.loads(answer.body)["brokerDatas"]
    }


async def test_a_topic_on_two_brokers_is_found_on_both(names: NameServer) -> None:
    async with (
        broker_named("broker-a", names.address) as a,
        broker_named("broker-b", names.address) as b,
    ):
        for broker in (a, b):
            await broker.announce()
            await send(broker.address, "orders", broker.config.broker_name.encode())
            await broker.announce()
        found = await brokers_of(names.address, "orders")
        assert found == {"broker-a": a.address, "broker-b": b.address}
        bodies = [(await pull(address, "orders"))[0].body for address in found.values()]
        assert sorted(bodies) == [b"broker-a", b"broker-b"]


async def test_a_broker_that_stops_leaves_at_once(names: NameServer) -> None:
    async with broker_named("broker-a", names.address) as a:
        await a.announce()
        async with broker_named("broker-b", names.address) as b:
            await b.announce()
            assert set(await brokers_of(names.address, "TBW102")) == {"broker-a", "broker-b"}
        assert set(await brokers_of(names.address, "TBW102")) == {"broker-a"}


async def test_a_change_of_topics_is_announced_at_once(names: NameServer) -> None:
    async with broker_named("broker-a", names.address) as broker:
        await broker.announce()
        broker.tables.topics.put(TopicConfig("orders", read_queue_nums=3, write_queue_nums=3))
        await broker.announce()
        queues = json.loads((await route(names.address, "orders")).body)["queueDatas"]
        assert queues[0]["readQueueNums"] == 3
        broker.tables.topics.put(TopicConfig("orders", read_queue_nums=5, write_queue_nums=5))
        await broker.announce()
        queues = json.loads((await route(names.address, "orders")).body)["queueDatas"]
        assert queues[0]["readQueueNums"] == 5


async def test_a_broker_comes_back_after_the_name_service_did() -> None:
    port = str(free_port())
    first = name_server(port)
    await first.start()
    async with broker_named("broker-a", first.address, registerNameServerPeriod="60000") as broker:
        await broker.announce()
        await first.stop()
        second = name_server(port)
        registered = asyncio.Event()
        real = second.routes.register_in_steps

        def register(*arguments: Any) -> Generator[None, None, Accepted | None]:
            accepted = yield from real(*arguments)
            registered.set()
            return accepted

        second.routes.register_in_steps = register  # type: ignore[assignment,method-assign]
        await second.start()
        async with asyncio.timeout(HANG_S):
            await registered.wait()
        assert await brokers_of(second.address, "TBW102") == {"broker-a": broker.address}
    await second.stop()


async def test_a_name_service_that_is_down_delays_nothing(names: NameServer) -> None:
    dead = f"127.0.0.1:{free_port()}"
    async with broker_named("broker-a", f"{dead};{names.address}") as broker:
        await broker.announce()
        assert set(await brokers_of(names.address, "TBW102")) == {"broker-a"}


async def test_a_broker_may_name_its_own_name_service() -> None:
    port = str(free_port())
    own = f"127.0.0.1:{port}"
    async with Broker.temporary({"namesrvPort": port, "namesrvAddr": own}) as broker:
        await broker.announce()
        assert await brokers_of(own, "TBW102") == {"broker-a": broker.address}


async def test_a_second_broker_joins_the_name_service_of_the_first() -> None:
    async with (
        Broker.temporary() as first,
        broker_named("broker-b", first.nameserver) as second,
    ):
        await second.announce()
        await send(second.address, "orders", b"hello")
        await second.announce()
        await send(first.address, "orders", b"hello")
        assert await brokers_of(first.nameserver, "orders") == {
            "broker-a": first.address,
            "broker-b": second.address,
        }


async def test_a_second_broker_of_the_same_name_is_kept_out() -> None:
    async with (
        Broker.temporary() as first,
        broker_named("broker-a", first.nameserver) as second,
    ):
        await second.announce()
        assert await brokers_of(first.nameserver, "TBW102") == {"broker-a": first.address}


async def test_what_another_cluster_member_advertises_is_told_as_it_is(names: NameServer) -> None:
    async with broker_named("broker-a", names.address, brokerIP1="203.0.113.9") as broker:
        await broker.announce()
        port = broker.address.rpartition(":")[2]
        assert await brokers_of(names.address, "TBW102") == {"broker-a": f"203.0.113.9:{port}"}


async def test_a_peer_that_speaks_no_remoting_is_not_registered_with() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example ESMTP\r\n")
        await reader.read(-1)
        writer.close()

    async with listening(babble) as port:
        address = f"127.0.0.1:{port}"
        async with broker_named("broker-a", address) as broker:
            await broker.announce()
            assert (await send(broker.address, "orders", b"hello")).code == ResponseCode.SUCCESS
