"""Tracks: what became of a message in each group."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.broker import Broker
from rockhopper.client import Consumer, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.tracks import Outcome, Track, tracks
from rockhopper.client.received import ReceivedMessage


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


async def sent(broker: Broker, tag: str) -> ReceivedMessage:
    async with Producer(broker.nameserver) as producer, Admin(broker.nameserver) as admin:
        receipt = await producer.send("orders", b"x", tags=tag)
        return await admin.message(receipt.message_id, "orders")


async def told(broker: Broker, message: ReceivedMessage) -> dict[str, Outcome]:
    async with Admin(broker.nameserver) as admin:
        return {each.group: each.outcome for each in await tracks(admin, message)}


async def consume(broker: Broker, group: str, tags: str = "*") -> ReceivedMessage:
    async with Consumer(group, {"orders": tags}, nameserver=broker.nameserver) as consumer:
        async for message in consumer:
            return message
    raise AssertionError


async def test_a_group_has_consumed_it_or_not(broker: Broker) -> None:
    first = await sent(broker, "new")
    assert await told(broker, first) == {}
    await consume(broker, "billing")
    assert await told(broker, first) == {"billing": Outcome.CONSUMED}
    second = await sent(broker, "new")
    while second.queue != first.queue:
        second = await sent(broker, "new")
    assert await told(broker, second) == {"billing": Outcome.OFFLINE}


async def test_a_group_that_does_not_want_its_tag_passes_over_it(broker: Broker) -> None:
    first = await sent(broker, "old")
    second = await sent(broker, "new")
    while second.queue != first.queue:
        second = await sent(broker, "new")
    async with Consumer("billing", {"orders": "new"}, nameserver=broker.nameserver) as consumer:
        async for message in consumer:
            if message.message_id == second.message_id:
                await consumer.commit()
                break
        # It is acknowledged when the loop is left; the commit is what brokers know.
        async with Admin(broker.nameserver) as admin:
            await admin.offsets.commit("billing", first.queue, second.queue_offset + 1)
        assert (await told(broker, first))["billing"] is Outcome.FILTERED
        assert (await told(broker, second))["billing"] is Outcome.CONSUMED


async def test_what_was_given_up_is_a_dead_letter(broker: Broker) -> None:
    message = await sent(broker, "new")
    async with Consumer(
        "billing", "orders", nameserver=broker.nameserver, max_reconsume_times=0
    ) as consumer:
        async for each in consumer:
            await consumer.retry_later(each)
            break
    async with Admin(broker.nameserver) as admin:
        (track,) = await tracks(admin, message)
    assert track == Track("billing", Outcome.DEAD, "in %DLQ%billing")
