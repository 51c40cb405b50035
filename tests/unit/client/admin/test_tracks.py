"""Tracks: what became of a message in each group."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client import Consumer, Message, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.tracks import MessageHistory, TrackOutcome, find_history
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from tests.support.billing import AT_ONCE
from tests.support.hang import HANG_S
from tests.support.turns import until


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


async def sent(broker: Broker, tag: str) -> ReceivedMessage:
    async with Producer(broker.nameserver) as producer, Admin(broker.nameserver) as admin:
        receipt = await producer.send("orders", b"x", tags=tag)
        return await admin.message(receipt.message_id, "orders")


async def told(broker: Broker, message: ReceivedMessage) -> dict[str, TrackOutcome]:
    async with Admin(broker.nameserver) as admin:
        went = await find_history(admin, message)
    return {each.group: each.outcome for each in went.tracks}


async def traced(broker: Broker, message_id: str, topic: str | None = None) -> MessageHistory:
    async with Admin(broker.nameserver) as admin:
        return await find_history(admin, await admin.message(message_id, topic))


async def consume(broker: Broker, group: str, tags: str = "*") -> ReceivedMessage:
    async with Consumer(group, {"orders": tags}, nameserver=broker.nameserver) as consumer:
        async for message in consumer:
            return message
    raise AssertionError


async def test_a_group_has_consumed_it_or_not(broker: Broker) -> None:
    first = await sent(broker, "new")
    assert await told(broker, first) == {}
    await consume(broker, "billing")
    assert await told(broker, first) == {"billing": TrackOutcome.CONSUMED}
    second = await sent(broker, "new")
    while second.queue != first.queue:
        second = await sent(broker, "new")
    assert await told(broker, second) == {"billing": TrackOutcome.OFFLINE}


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
        assert (await told(broker, first))["billing"] is TrackOutcome.FILTERED
        assert (await told(broker, second))["billing"] is TrackOutcome.CONSUMED


async def fail(broker: Broker, retries_max: int) -> None:
    async with Consumer(
        "billing", "orders", nameserver=broker.nameserver, max_reconsume_times=retries_max
    ) as consumer:
        async for each in consumer:
            await consumer.retry_later(each)
            break


@pytest.mark.parametrize("topic", [None, "orders"])
async def test_what_was_given_up_is_a_dead_letter_of_its_topic(
    broker: Broker, topic: str | None
) -> None:
    message = await sent(broker, "new")
    await fail(broker, 0)
    went = await traced(broker, message.message_id, topic)
    (track,) = went.tracks
    assert (track.group, track.outcome) == ("billing", TrackOutcome.DEAD)
    assert track.detail == "in %DLQ%billing"
    assert track.time_ms is not None
    assert went.message.queue == message.queue
    async with Admin(broker.nameserver) as admin:
        (letter,) = [each async for each in admin.dead_letters.read("billing")]
        of_letter = await find_history(admin, letter.message)
    assert (of_letter.topic, of_letter.tracks) == ("orders", went.tracks)
    assert of_letter.message.queue == message.queue


@pytest.mark.parametrize("topic", [None, "orders"])
async def test_a_retry_at_its_delay_level_waits_and_tells_when_it_comes(topic: str | None) -> None:
    async with Broker.temporary({"messageDelayLevel": "1h 2h 3h"}) as broker:
        message = await sent(broker, "new")
        await fail(broker, 5)
        went = await traced(broker, message.message_id, topic)
        (track,) = went.tracks
        assert went.message.queue == message.queue
        assert (track.group, track.outcome) == ("billing", TrackOutcome.RETRYING)
        assert track.detail == "retry 1 at its delay level"
        assert track.time_ms is not None
        assert track.time_ms - message.store_time_ms >= 3 * 3_600_000


async def test_a_retry_that_came_waits_until_it_is_read() -> None:
    async with Broker.temporary(AT_ONCE) as broker:
        message = await sent(broker, "new")
        await fail(broker, 5)
        retried = MessageQueue("%RETRY%billing", message.broker_name, 0)
        async with Admin(broker.nameserver) as admin, asyncio.timeout(HANG_S):
            await until(lambda: broker.store.reading.queue_range("%RETRY%billing", 0)[1] == 1)
            assert (await find_history(admin, message)).tracks[0].outcome is TrackOutcome.RETRYING
            await admin.offsets.commit("billing", retried, 1)
            assert (await find_history(admin, message)).tracks[0].outcome is TrackOutcome.RETRIED


@pytest.mark.parametrize("to", [None, "%RETRY%billing"])
async def test_a_dead_letter_that_was_sent_back_waits_and_is_consumed(
    broker: Broker, to: str | None
) -> None:
    message = await sent(broker, "new")
    await fail(broker, 0)
    async with Admin(broker.nameserver) as admin:
        (copy,) = [each async for each in admin.dead_letters.requeue("billing", to=to)]
        went = await traced(broker, message.message_id)
        assert went.message.queue == message.queue
        assert went.message.queue_offset == message.queue_offset
        waits = TrackOutcome.RETRYING if to else TrackOutcome.REQUEUED
        assert [each.outcome for each in went.tracks] == [waits]
        assert copy.receipt is not None
        await admin.offsets.commit("billing", copy.receipt.queue, copy.receipt.queue_offset + 1)
        (track,) = (await traced(broker, message.message_id)).tracks
        assert track.outcome is (TrackOutcome.RETRIED if to else TrackOutcome.CONSUMED)


async def test_a_dead_letter_that_was_sent_to_another_topic_says_so(broker: Broker) -> None:
    message = await sent(broker, "new")
    await fail(broker, 0)
    async with Producer(broker.nameserver) as producer, Admin(broker.nameserver) as admin:
        await producer.send("others", b"x")
        assert [each async for each in admin.dead_letters.requeue("billing", to="others")]
    went = await traced(broker, message.message_id)
    assert went.message.queue == message.queue
    (track,) = went.tracks
    assert track.outcome is TrackOutcome.DEAD
    assert track.detail == "in %DLQ%billing; sent back since, to another topic"


@pytest.mark.parametrize("topic", [None, "orders"])
@pytest.mark.parametrize("later", [{"delay_s": 3600}, {"delay_level": 17}])
async def test_what_is_delayed_tells_when_it_comes_and_where(
    broker: Broker, later: dict[str, int], topic: str | None
) -> None:
    await sent(broker, "new")
    await consume(broker, "billing")
    async with Producer(broker.nameserver) as producer:
        delayed = Message("orders", b"later", **later)  # type: ignore[arg-type]
        receipt = await producer.send(delayed)
    went = await traced(broker, receipt.message_id, topic)
    assert went.topic == "orders"
    assert went.due_ms is not None
    # A timer counts from when the message was sent, a level from when it was stored.
    assert abs(went.due_ms - went.message.store_time_ms - 3_600_000) < HANG_S * 1000
    assert [(each.outcome, each.time_ms) for each in went.tracks] == [
        (TrackOutcome.DELAYED, went.due_ms)
    ]


async def test_a_copy_that_another_group_caused_is_told_beside_what_became_of_it(
    broker: Broker,
) -> None:
    message = await sent(broker, "new")
    await consume(broker, "audit")
    await fail(broker, 0)
    async with Admin(broker.nameserver) as admin:
        assert [each async for each in admin.dead_letters.requeue("billing")]
    went = await traced(broker, message.message_id)
    audit = next(each for each in went.tracks if each.group == "audit")
    assert audit.outcome is TrackOutcome.CONSUMED
    assert "the copy from %DLQ%billing/broker-a/0:0 waits" in audit.detail
