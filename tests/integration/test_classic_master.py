"""A broker with haMode=classic, as its clients and its slaves see it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rockhopper.broker.app import Broker
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.classic_slave import ClassicSlave
from tests.support.direct import ask, send_fields
from tests.support.free_ports import free_port
from tests.support.turns import until

TOPIC = "orders"


@contextlib.asynccontextmanager
async def serving(**settings: str) -> AsyncIterator[tuple[Broker, int]]:
    port = free_port()
    texts = {"haMode": "classic", "haListenPort": str(port), "autoCreateTopic": "on-send"}
    async with Broker.temporary(texts | settings) as broker:
        yield broker, port


async def send(broker: Broker) -> int:
    answer = await ask(broker.address, RequestCode.SEND_MESSAGE, send_fields(TOPIC), b"hello")
    return answer.code


def end_of(broker: Broker) -> int:
    return broker.store.log.written_offset


async def test_a_master_that_waits_for_nobody_is_copied() -> None:
    async with serving() as (broker, port), ClassicSlave(port) as slave:
        slave.report(0)
        for _ in range(10):
            assert await send(broker) == ResponseCode.SUCCESS
        await slave.copy_to(end_of(broker))
        log = next(broker.store.opened.layout.commit_log.iterdir()).read_bytes()
        assert slave.data == log[: end_of(broker)]


async def test_without_a_slave_a_send_is_stored_and_not_confirmed() -> None:
    waits = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "20"}
    async with serving(**waits) as (broker, port):
        assert await send(broker) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        queue = {"topic": TOPIC, "queueId": "0"}
        shown = await ask(broker.address, RequestCode.GET_MAX_OFFSET, queue)
        assert shown.ext is not None
        assert shown.ext["offset"] == "0"
        async with ClassicSlave(port) as slave:
            slave.report(0)
            await slave.copy_to(end_of(broker))
            slave.report(end_of(broker))
            await until(lambda: broker.store.reading.queue_range(TOPIC, 0)[1] == 1)
            copying = asyncio.ensure_future(_acknowledge(slave, end_of(broker)))
            assert await send(broker) == ResponseCode.SUCCESS
            await copying


async def _acknowledge(slave: ClassicSlave, known: int) -> None:
    while slave.end_offset <= known:
        await slave.next_frames()
    slave.report(slave.end_offset)


async def test_below_the_least_nothing_is_stored() -> None:
    least = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2"}
    async with serving(**least) as (broker, _):
        assert await send(broker) == ResponseCode.SYSTEM_ERROR
        assert end_of(broker) == 0


async def test_slaves_find_topics_at_the_port_two_below() -> None:
    port = free_port(below=[2])
    async with serving(listenPort=str(port)):
        answer = await ask(f"127.0.0.1:{port - 2}", RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert answer.code == ResponseCode.SUCCESS


async def test_a_broker_that_is_no_master_opens_no_port() -> None:
    async with Broker.temporary() as broker:
        answer = await ask(broker.address, RequestCode.EXCHANGE_BROKER_HA_INFO)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
