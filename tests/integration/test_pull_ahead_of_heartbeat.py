"""A consumer whose pulls name a newer subscription than its heartbeats did."""

import json
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.kernel.pull import pull_filters
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.wire import WireClient

GROUP, TOPIC = "hasty", "Topic"


@pytest.fixture
async def client() -> AsyncIterator[WireClient]:
    async with Broker.temporary() as broker, WireClient(broker.address) as consumer:
        yield consumer


async def beat(client: WireClient, version: int) -> None:
    subscription = {"topic": TOPIC, "subString": "red", "subVersion": version}
    group = {"groupName": GROUP, "subscriptionDataSet": [subscription]}
    body = json.dumps({"clientID": "one", "consumerDataSet": [group], "producerDataSet": []})
    answer = await client.ask(Code.HEART_BEAT, {}, body.encode())
    assert answer.code == ResponseCode.SUCCESS


async def send(client: WireClient, tag: str) -> None:
    ext = {"a": "senders", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0"}
    ext |= {"g": "1700000000000", "h": "0", "i": f"TAGS\x01{tag}\x02"}
    answer = await client.ask(Code.SEND_MESSAGE_V2, ext, tag.encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pull(client: WireClient, version: int) -> Command:
    ext = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": str(version),
    }
    return await client.ask(Code.PULL_MESSAGE, ext)


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in decode_messages(answer.body)]


async def test_it_is_refused_at_first_and_then_filters_by_itself(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await beat(client, version=1)
    for tag in ("red", "green"):
        await send(client, tag)
    assert bodies(await pull(client, version=1)) == [b"red"]

    refused = await pull(client, version=2)
    monkeypatch.setattr(pull_filters, "HEARTBEAT_GRACE_S", -1.0)

    assert refused.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert bodies(await pull(client, version=2)) == [b"red", b"green"]
    monkeypatch.undo()
    assert (await pull(client, version=3)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_the_heartbeat_that_catches_up_brings_the_filter_back(client: WireClient) -> None:
    await beat(client, version=1)
    for tag in ("red", "green"):
        await send(client, tag)
    assert (await pull(client, version=2)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    await beat(client, version=2)

    assert bodies(await pull(client, version=2)) == [b"red"]
