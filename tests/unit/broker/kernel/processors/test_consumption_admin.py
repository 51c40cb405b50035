"""Codes 303, 317, 328, 353: how groups consume; 306 and 316: what needs no doing."""

import json
from typing import Any

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

QUEUE = '{"brokerName":"broker-a","queueId":%d,"topic":"orders"}'


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker, clock: Clock) -> None:
    """Three messages in queue 0 of two, a second apart."""
    broker.create_topic("orders", queues=2)
    broker.tables.groups.find_or_create("billing")
    for _ in range(3):
        broker.put("orders")
        clock.advance(1000)


async def asked(broker: ServedBroker, code: Code, **ext: str) -> Any:
    answer = await broker.ask(code, ext)
    assert answer.code == ResponseCode.SUCCESS
    return fastjson.loads(answer.body)


@pytest.mark.parametrize(("offset", "consumed", "delay"), [(0, 3, 3), (1, 3, 2), (3, 1, 0)])
async def test_the_span_between_what_is_stored_and_what_is_consumed(
    broker: ServedBroker, clock: Clock, offset: int, consumed: int, delay: int
) -> None:
    broker.tables.offsets.commit("orders", "billing", 0, offset)
    found = await asked(broker, Code.QUERY_CONSUME_TIME_SPAN, topic="orders", group="billing")
    first, empty = found["consumeTimeSpanSet"]
    now_ms = clock.now_ms
    assert first["minTimeStamp"] == now_ms - 3000
    assert first["maxTimeStamp"] == now_ms - 1000
    assert first["consumeTimeStamp"] == now_ms - consumed * 1000
    assert first["delayTime"] == delay * 1000
    assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (-1, -1, 0)


async def test_a_span_of_a_topic_that_is_gone_is_refused(broker: ServedBroker) -> None:
    ext = {"topic": "gone", "group": "billing"}
    answer = await broker.ask(Code.QUERY_CONSUME_TIME_SPAN, ext)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_every_group_is_told_in_every_topic(broker: ServedBroker) -> None:
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    broker.tables.offsets.commit("gone", "billing", 0, 1)
    broker.tables.offsets.commit("orders", "stranger", 0, 1)
    answer = await broker.ask(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    body = answer.body.decode()
    assert f'{QUEUE % 0}:{{"brokerOffset":3,"consumerOffset":1' in body
    found = fastjson.loads(answer.body)
    assert [list(each) for each in found["consumeStatsList"]] == [["billing"]]
    assert (found["totalDiff"], found["totalInflightDiff"]) == (2, 0)


async def test_of_ordered_topics_only_if_asked(broker: ServedBroker) -> None:
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    found = await asked(broker, Code.GET_BROKER_CONSUME_STATS, isOrder="true")
    assert found["consumeStatsList"] == []


async def test_a_group_is_forbidden_and_allowed_one_topic(broker: ServedBroker) -> None:
    async def forbidden(**ext: str) -> bool:
        where = {"group": "billing", "topic": "orders"}
        found = await asked(broker, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **where, **ext)
        return bool(found["readable"])

    assert await forbidden()
    assert not await forbidden(readable="false")
    assert not await forbidden()
    assert not broker.tables.groups.is_forbidden("billing", "others")
    assert await forbidden(readable="true")


async def test_a_group_that_cannot_be_is_forbidden_nothing(broker: ServedBroker) -> None:
    ext = {"group": "no group!", "topic": "orders", "readable": "false"}
    answer = await broker.ask(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, ext)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_producers_are_told_by_group(broker: ServedBroker) -> None:
    peer = Peer()
    broker.kernel.producers.register("payers", Client(peer.connection, "p1", 0, 479))
    broker.kernel.producers.register("payers", Client(Peer(port=2).connection, "p2", 99, 479))
    answer = await broker.ask(Code.GET_ALL_PRODUCER_INFO)
    rows = json.loads(answer.body)["data"]["payers"]
    assert [row["clientId"] for row in rows] == ["p1", "p2"]
    assert rows[0]["remoteIP"] == "/127.0.0.1:40000"
    assert rows[0]["language"] == "JAVA"


@pytest.mark.parametrize("code", [Code.CLEAN_UNUSED_TOPIC, Code.CLEAN_EXPIRED_CONSUMEQUEUE])
async def test_what_happens_by_itself_is_a_success(broker: ServedBroker, code: Code) -> None:
    assert (await broker.ask(code)).code == ResponseCode.SUCCESS
    assert broker.store.reading.queue_range("orders", 0) == (0, 3)
