"""Our Consumer against our broker: messages that fail come again, later, in order, or never."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer, PullConsumer, RetryLater
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.names import dlq_topic
from tests.support.billing import AT_ONCE, billing, committed, leave_with, send, sent_back, take
from tests.support.hang import HANG_S
from tests.support.turns import until


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


async def test_a_loop_may_ask_for_its_message_again_and_go_on(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    seen: list[tuple[bytes, int]] = []
    async with billing(broker) as consumer:
        async for message in consumer:
            seen.append((message.body, message.reconsume_times))
            if seen == [(b"0", 0)]:
                await consumer.retry_later(message, delay_level=1)
            if len(seen) == 4:
                break
    assert seen[0] == (b"0", 0)
    assert sorted(seen) == [(b"0", 0), (b"0", 1), (b"1", 0), (b"2", 0)]


async def test_a_message_that_fails_for_ever_ends_in_the_dead_letters(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    times: dict[bytes, list[int]] = {}

    async def fail(message: ReceivedMessage) -> None:
        times.setdefault(message.body, []).append(message.reconsume_times)
        raise RuntimeError("no")

    async with billing(broker, handler=fail, max_reconsume_times=1):
        async with PullConsumer(nameserver=broker.nameserver) as reader:
            dead = MessageQueue(dlq_topic("billing"), "broker-a", 0)
            await until(lambda: broker.tables.topics.get(dead.topic) is not None)
            await reader.assign([dead])
            found = [*await reader.pull(1), *await reader.pull(1), *await reader.pull(1)]
    assert {message.body for message in found} == {b"0", b"1", b"2"}
    assert times == {body: [0, 1] for body in (b"0", b"1", b"2")}
    assert found[0].properties["RETRY_TOPIC"] == "orders"


async def test_delay_level_minus_one_sends_straight_to_the_dead_letters(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 1)
    with pytest.raises(RetryLater):
        await leave_with(RetryLater(delay_level=-1), billing(broker), 1)
    assert broker.store.reading.queue_range(dlq_topic("billing"), 0)[1] == 1
    assert committed(broker) == 1


async def test_a_message_comes_again_after_the_seconds_asked_for_and_the_tries_count() -> None:
    async with (
        Broker.temporary() as broker,
        Producer(broker.nameserver) as producer,
        billing(broker, max_reconsume_times=2) as consumer,
    ):
        sent = await producer.send(Message("orders", b"x", tags="new", keys=["k"], delay_s=0.001))
        times: list[float] = []

        async def handle(message: ReceivedMessage) -> None:
            times.append(asyncio.get_running_loop().time())
            assert (message.topic, message.message_id) == ("orders", sent.message_id)
            assert (message.tags, message.keys) == ("new", ["k"])
            assert message.reconsume_times == len(times) - 1
            raise RetryLater(delay_s=0.2)

        running = asyncio.create_task(consumer.run(handle))
        async with asyncio.timeout(HANG_S):
            await until(lambda: bool(broker.tables.topics.get(dlq_topic("billing"))))
        consumer.stop()
        await running
        assert len(times) == 3
        assert all(after - before > 0.19 for before, after in pairwise(times))


async def test_in_order_a_queue_rests_for_the_seconds_asked_for(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    seen: list[tuple[bytes, float]] = []
    consumer = billing(broker, orderly=True, suspend_s=60)

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, asyncio.get_running_loop().time()))
        if len(seen) == 1:
            raise RetryLater(delay_s=0.2)
        if len(seen) == 3:
            consumer.stop()

    async with consumer, asyncio.timeout(HANG_S):
        await consumer.run(handle)
    assert [body for body, _ in seen] == [b"0", b"0", b"1"]
    assert seen[1][1] - seen[0][1] > 0.19  # the clock of the loop counts milliseconds


async def test_in_order_a_failed_message_is_tried_again_first(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 5)
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"2" and seen.count(b"2") < 3:
            raise RuntimeError("not yet")

    async with billing(broker, orderly=True, handler=handle, concurrency=4, suspend_s=0.01):
        await until(lambda: b"4" in seen)
    assert seen == [b"0", b"1", b"2", b"2", b"2", b"3", b"4"]
    assert committed(broker) == 5
    assert sent_back(broker) == 0


async def test_in_order_a_message_goes_to_the_dead_letters_after_the_maximum(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    seen: list[tuple[bytes, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.body == b"0":
            raise RuntimeError("never")

    options = {"suspend_s": 0.01, "max_reconsume_times": 2}
    async with billing(broker, orderly=True, handler=handle, **options):
        await until(lambda: (b"1", 0) in seen)
    assert seen == [(b"0", 0), (b"0", 1), (b"0", 2), (b"1", 0)]
    assert broker.store.reading.queue_range(dlq_topic("billing"), 0)[1] == 1


async def test_in_order_an_exception_leaves_the_message_the_first_of_its_queue(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    with pytest.raises(ZeroDivisionError):
        await leave_with(ZeroDivisionError(), billing(broker, orderly=True), 2)
    assert committed(broker) == 1
    async with billing(broker, orderly=True) as consumer:
        assert [message.body for message in await take(consumer, 2)] == [b"1", b"2"]
