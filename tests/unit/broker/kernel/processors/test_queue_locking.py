"""Codes 41 and 42: orderly consumers lock the queues they read."""

import json

import pytest

from rockhopper.broker.kernel.members.queue_locks import LEASE_MS
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker


def queue(queue_id: int) -> dict[str, object]:
    return {"brokerName": "broker-a", "queueId": queue_id, "topic": "orders"}


def body(client_id: str, *queue_ids: int, group: str = "billing") -> bytes:
    return json.dumps(
        {
            "clientId": client_id,
            "consumerGroup": group,
            "mqSet": [queue(queue_id) for queue_id in queue_ids],
            "onlyThisBroker": False,
        }
    ).encode()


async def lock(broker: ServedBroker, peer: Peer, client_id: str, *queue_ids: int) -> list[int]:
    answer = await broker.ask(Code.LOCK_BATCH_MQ, body=body(client_id, *queue_ids), peer=peer)
    assert answer.code == ResponseCode.SUCCESS
    granted = fastjson.loads(answer.body)["lockOKMQSet"]
    assert all(item == queue(item["queueId"]) for item in granted)
    return [item["queueId"] for item in granted]


async def test_answer_names_the_queues_that_the_client_holds_now(broker: ServedBroker) -> None:
    first, second = Peer(), Peer()
    assert await lock(broker, first, "c1", 0, 1) == [0, 1]
    assert await lock(broker, second, "c2", 1, 2) == [2]
    assert await lock(broker, first, "c1", 1) == [1]


async def test_unlocked_queue_is_free(broker: ServedBroker) -> None:
    first, second = Peer(), Peer()
    await lock(broker, first, "c1", 0, 1)
    answer = await broker.ask(Code.UNLOCK_BATCH_MQ, body=body("c1", 0), peer=first)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"")
    assert await lock(broker, second, "c2", 0, 1) == [0]


async def test_lost_connection_frees_its_queues(broker: ServedBroker) -> None:
    first, second = Peer(), Peer()
    await lock(broker, first, "c1", 0)
    first.hang_up()
    assert await lock(broker, second, "c2", 0) == [0]


async def test_answer_without_queues_is_an_empty_list(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.LOCK_BATCH_MQ, body=body("c1"))
    assert answer.body == b'{"lockOKMQSet":[]}'


async def test_many_queues_at_once_are_served_too(broker: ServedBroker) -> None:
    assert len(await lock(broker, Peer(), "c1", *range(1000))) == 1000


@pytest.mark.parametrize("code", [Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"[]",
        b'{"clientId":"c1","consumerGroup":"billing","mqSet":[{"topic":5}]}',
        body("", 0),
        body("c1", 0, group="g" * 4097),
    ],
)
async def test_garbage_is_refused(broker: ServedBroker, code: Code, data: bytes) -> None:
    peer = Peer()
    answer = await broker.ask(code, body=data, peer=peer)
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    assert answer.remark
    assert not broker.kernel.locks.is_held_by("billing", peer.connection)


@pytest.mark.parametrize("group", ["a.b", "a b", "gr\u00fc\u00dfe", "g" * 300, ""])
async def test_any_name_of_a_group_can_lock(broker: ServedBroker, group: str) -> None:
    """As in RocketMQ: no file is called by it."""
    locked = body("c1", 0, group=group)
    answer = await broker.ask(Code.LOCK_BATCH_MQ, body=locked)
    assert fastjson.loads(answer.body)["lockOKMQSet"] == [queue(0)]
    assert (await broker.ask(Code.UNLOCK_BATCH_MQ, body=locked)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
async def test_a_clock_that_is_set_ends_no_lock(
    broker: ServedBroker, clock: Clock, by_ms: int
) -> None:
    first, second = Peer(), Peer()
    await lock(broker, first, "c1", 0)
    clock.set_by(by_ms)
    assert await lock(broker, second, "c2", 0) == []
    clock.advance(LEASE_MS + 1)
    assert await lock(broker, second, "c2", 0) == [0]
