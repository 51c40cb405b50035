"""Locks of orderly consumers: what a renewal and an unlocking at the same time end in."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from rockhopper.client.consuming.locks import ConsumerLocks
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody
from rockhopper.protocol.codes import RequestCode

QUEUE = MessageQueue("orders", "a", 0)


class Broker:
    """Grants everything, in the order of asking, but answers only when told."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.answer = asyncio.Event()
        self.answer.set()
        self.client_id = "member"
        self.routes = SimpleNamespace(known=lambda _: SimpleNamespace(master=lambda _: "a:1"))

    async def request(self, _: str, code: RequestCode, *, body: bytes) -> SimpleNamespace:
        keys = LockBatchRequestBody.decode(body).mq_set
        ids = {key.queue_id for key in keys}
        self.held = self.held | ids if code == RequestCode.LOCK_BATCH_MQ else self.held - ids
        await self.answer.wait()
        return SimpleNamespace(body=LockBatchResponseBody(lock_ok_mq_set=keys).encode())


@pytest.fixture
async def broker() -> Broker:
    return Broker()


@pytest.fixture
async def locks(broker: Broker) -> ConsumerLocks:
    locks = ConsumerLocks(cast(Session, broker), "billing", lambda: 0.0)
    await locks.lock([QUEUE])
    return locks


async def test_a_renewal_while_a_queue_is_unlocked_does_not_lock_it_again(
    broker: Broker, locks: ConsumerLocks
) -> None:
    broker.answer.clear()
    unlocking = asyncio.create_task(locks.unlock([QUEUE]))
    await asyncio.sleep(0)
    renewal = asyncio.create_task(locks.lock([QUEUE]))
    await asyncio.sleep(0)
    broker.answer.set()
    await asyncio.gather(unlocking, renewal)
    assert broker.held == set()
    assert not locks.holds(QUEUE)


async def test_a_renewal_that_is_answered_after_the_unlocking_counts_for_nothing(
    broker: Broker, locks: ConsumerLocks
) -> None:
    broker.answer.clear()
    renewal = asyncio.create_task(locks.lock([QUEUE]))
    await asyncio.sleep(0)
    unlocking = asyncio.create_task(locks.unlock([QUEUE]))
    await asyncio.sleep(0)
    broker.answer.set()
    await asyncio.gather(unlocking, renewal)
    assert broker.held == set()
    assert not locks.holds(QUEUE)


async def test_a_queue_that_was_unlocked_can_be_locked_again(
    broker: Broker, locks: ConsumerLocks
) -> None:
    await locks.unlock([QUEUE])
    await locks.lock([QUEUE])
    assert broker.held == {0}
    assert locks.holds(QUEUE)
