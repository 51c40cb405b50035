"""Requests and replies between a producer and a broker that a script plays."""

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest

from rockhopper.client import (
    Message,
    MessageRejectedError,
    Producer,
    ReplyTimeoutError,
    RequestRefusedError,
    RequestTimeoutError,
)
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import decode_properties, encode_properties
from tests.support.held_clock import HeldClock
from tests.support.message_broker import MessageBroker
from tests.support.turns import until

PING = Message("orders", b"ping", tags="ask")


@pytest.fixture
async def broker() -> AsyncIterator[MessageBroker]:
    async with MessageBroker() as broker:
        yield broker


@pytest.fixture
async def producer(broker: MessageBroker) -> AsyncIterator[Producer]:
    async with Producer(broker.address, group="asking") as producer:
        yield producer


def reply_to(properties: dict[str, str], body: bytes = b"pong", sys_flag: int = 0) -> Command:
    """What a broker sends when somebody has replied."""
    replied = {
        "CORRELATION_ID": properties["CORRELATION_ID"],
        "REPLY_TO_CLIENT": properties["REPLY_TO_CLIENT"],
        "MSG_TYPE": "reply",
        "mood": "good",
    }
    ext = {
        "producerGroup": "answering",
        "topic": "DefaultCluster_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": str(sys_flag),
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": encode_properties(replied),
        "bornHost": "/10.1.2.3:4567",
        "storeHost": "10.1.2.4:10911",
        "storeTimestamp": "1700000000001",
    }
    return Command(326, ext=ext, body=body)


async def asked(broker: MessageBroker) -> dict[str, str]:
    await broker.wait_for(310)
    while not broker.stored:  # noqa: ASYNC110  stored a turn after it arrived
        await asyncio.sleep(0)
    return broker.stored[-1][1]


async def test_a_request_names_itself_and_its_sender(
    producer: Producer, broker: MessageBroker
) -> None:
    request = asyncio.create_task(producer.request(PING, timeout_s=2.5))
    properties = await asked(broker)
    assert properties["TTL"] == "2500"
    assert len(properties["CORRELATION_ID"]) == 36
    heartbeats = broker.requests_of(34)
    assert f'"clientID":"{properties["REPLY_TO_CLIENT"]}"'.encode() in heartbeats[0].body
    assert b'"groupName":"asking"' in heartbeats[0].body
    codes = [each.code for each in broker.requests]
    assert codes.index(34) < codes.index(310)
    answer = await broker.connections[-1].ask(reply_to(properties))
    assert answer.code == 0
    reply = await request
    assert reply.body == b"pong"
    assert reply.properties["mood"] == "good"
    assert (reply.stored.born_host, reply.stored.born_port) == ("10.1.2.3", 4567)
    assert reply.stored.store_host == "10.1.2.4"
    assert len(producer.requests) == 0


async def test_the_broker_knows_the_sender_before_it_has_the_request(
    producer: Producer, broker: MessageBroker
) -> None:
    gate = asyncio.Event()

    async def slowly(request: Command) -> Command:
        await gate.wait()
        return Command(0)

    broker.on(34, slowly)
    request = asyncio.create_task(producer.request(PING))
    await broker.wait_for(34)
    assert broker.requests_of(310) == []
    gate.set()
    await broker.connections[-1].ask(reply_to(await asked(broker)))
    await request
    broker.on(34, lambda request: Command(0))
    again = asyncio.create_task(producer.request(PING))
    await broker.wait_for(310, 2)
    await broker.connections[-1].ask(reply_to(broker.stored[-1][1]))
    await again
    assert len(broker.requests_of(34)) == 1


async def test_a_compressed_reply_is_unpacked(producer: Producer, broker: MessageBroker) -> None:
    request = asyncio.create_task(producer.request(PING))
    packed = zlib.compress(b"long " * 1000)
    properties = await asked(broker)
    await broker.connections[-1].ask(reply_to(properties, packed, sys_flag=1))
    assert (await request).body == b"long " * 1000


async def test_a_reply_may_come_before_the_answer_to_the_send(
    producer: Producer, broker: MessageBroker
) -> None:
    async def reply_first(request: Command) -> Command:
        answer = broker.store(request)
        await broker.connections[-1].ask(reply_to(broker.stored[-1][1]))
        return answer

    broker.on(310, reply_first)
    assert (await producer.request(PING)).body == b"pong"


async def test_without_a_reply_the_time_is_up(
    producer: Producer, broker: MessageBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    request = asyncio.create_task(producer.request(PING, timeout_s=5))
    await asked(broker)
    (connection,) = producer.session.pool.connections
    await until(lambda: not connection.pending)
    clock.advance(5)
    with pytest.raises(ReplyTimeoutError, match="no consumer replied in time") as caught:
        await request
    assert isinstance(caught.value, TimeoutError)
    late = await broker.connections[-1].ask(reply_to(broker.stored[-1][1]))
    assert late.code == 0
    assert len(producer.requests) == 0


async def test_a_broker_that_hangs_is_named_in_time(
    producer: Producer, broker: MessageBroker
) -> None:
    broker.on(34, lambda request: None)
    broker.on(310, lambda request: None)
    with pytest.raises(RequestTimeoutError, match=broker.address):
        await producer.request(PING, timeout_s=0.1)
    assert len(producer.requests) == 0


async def test_many_requests_get_their_own_replies(
    producer: Producer, broker: MessageBroker
) -> None:
    requests = [
        asyncio.create_task(producer.request(Message("orders", b"%d" % number)))
        for number in range(20)
    ]
    await broker.wait_for(310, 20)
    while len(broker.stored) < 20:  # noqa: ASYNC110  stored a turn after it arrived
        await asyncio.sleep(0)
    for _, properties, body in reversed(broker.stored):
        await broker.connections[-1].ask(reply_to(properties, b"re " + body))
    assert [reply.body for reply in await asyncio.gather(*requests)] == [
        b"re %d" % number for number in range(20)
    ]


async def test_a_reply_that_cannot_be_read_is_answered_as_such(
    producer: Producer, broker: MessageBroker
) -> None:
    await producer.send(PING)
    answer = await broker.connections[-1].ask(Command(326, ext={"topic": "x"}))
    assert answer.code == 1
    assert "producerGroup" in (answer.remark or "")


def consumed_request(**more: str) -> ReceivedMessage:
    properties = {
        "CLUSTER": "DefaultCluster",
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "10.0.0.1@77",
        "TTL": "3000",
        **more,
    }
    kept = {name: value for name, value in properties.items() if value}
    stored = StoredMessage("orders", 1, 5, 900, b"ping", properties=kept)
    return ReceivedMessage(MessageQueue("orders", "a", 1), stored)


async def test_a_reply_goes_to_the_broker_that_the_request_came_from(
    producer: Producer, broker: MessageBroker
) -> None:
    await producer.reply(consumed_request(), "pong", properties={"mood": "good"})
    (request,) = broker.requests_of(325)
    ext = request.ext or {}
    assert request.body == b"pong"
    assert (ext["a"], ext["b"], ext["n"]) == ("asking", "DefaultCluster_REPLY_TOPIC", "a")
    properties = decode_properties(ext["i"])
    assert properties.pop("UNIQ_KEY")
    assert properties == {
        "mood": "good",
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "10.0.0.1@77",
        "TTL": "3000",
        "WAIT": "true",
    }


@pytest.mark.parametrize("name", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
async def test_only_a_request_can_be_replied_to(
    producer: Producer, broker: MessageBroker, name: str
) -> None:
    with pytest.raises(MessageRejectedError, match=f"is not a request: it has no {name}"):
        await producer.reply(consumed_request(**{name: ""}), b"pong")
    assert broker.requests == []


async def test_a_reply_to_somebody_who_has_gone_says_so(
    producer: Producer, broker: MessageBroker
) -> None:
    broker.on(325, lambda request: Command(1, remark="push reply message fail, channel of x"))
    with pytest.raises(RequestRefusedError, match="push reply message fail"):
        await producer.reply(consumed_request(), b"pong")
