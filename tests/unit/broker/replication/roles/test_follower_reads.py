"""Pulls from a replica that does not lead, if slaveReadEnable says so."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.client import Producer
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import ask
from tests.support.replica_set import ReplicaSet
from tests.support.turns import until


@pytest.fixture
async def readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ReplicaSet]:
    async with ReplicaSet(tmp_path, monkeypatch, {"slaveReadEnable": "true"}) as replicas:
        await replicas.start(1, 2, 3)
        await replicas.master(in_sync=3)
        async with Producer(replicas.nameserver, group="p") as producer:
            await producer.send("orders", b"kept", queue=0)
        await replicas.same_logs()
        yield replicas


async def pull(replicas: ReplicaSet, number: int, sys_flag: int) -> Command:
    ext = {
        "consumerGroup": "readers",
        "topic": "orders",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": str(sys_flag),
        "commitOffset": "1",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    return await ask(replicas.brokers[number].address, RequestCode.PULL_MESSAGE, ext)


async def test_a_follower_shows_what_is_confirmed_and_commits_nothing(
    readable: ReplicaSet,
) -> None:
    master = await readable.master(in_sync=3)
    follower = next(number for number in readable.brokers if number != master)
    store = readable.brokers[follower].store
    await until(lambda: store.reading.queue_range("orders", 0)[1] == 1)
    found = await pull(readable, follower, sys_flag=4)
    assert [message.body for message in decode_messages(found.body)] == [b"kept"]
    refused = await pull(readable, follower, sys_flag=5)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert readable.brokers[follower].tables.offsets.get("orders", "readers", 0) is None


async def test_nothing_is_read_there_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ReplicaSet(tmp_path, monkeypatch) as replicas:
        await replicas.start(1, 2, 3)
        master = await replicas.master(in_sync=3)
        follower = next(number for number in replicas.brokers if number != master)
        assert (await pull(replicas, follower, sys_flag=4)).code == ResponseCode.SYSTEM_BUSY
