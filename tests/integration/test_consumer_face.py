"""Batches, pauses and news of queues, against a broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper import (
    Broker,
    ClientStateError,
    Consumer,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
)
from tests.support.billing import AT_ONCE
from tests.support.hang import HANG_S
from tests.support.turns import until

COUNT = 100


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    async with Producer(broker.nameserver, timeout_s=HANG_S) as producer:
        yield producer


async def _send(producer: Producer, count: int, topic: str = "orders") -> None:
    await producer.send_batch([Message(topic, b"%d" % number) for number in range(count)])


async def test_a_batch_is_acknowledged_by_the_next_and_comes_again_after_an_exception(
    broker: Broker, producer: Producer
) -> None:
    await _send(producer, COUNT)
    bodies: list[bytes] = []

    async def consume() -> None:
        async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
            async for batch in consumer.batches(COUNT // 2, HANG_S):
                if bodies:
                    raise RuntimeError("no database")
                bodies.extend(message.body for message in batch)

    with pytest.raises(RuntimeError, match="no database"):
        await consume()
    assert len(bodies) == COUNT // 2
    async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
        async for batch in consumer.batches(COUNT // 2, HANG_S):
            assert {message.reconsume_times for message in batch} == {1}
            bodies += [message.body for message in batch]
            break
    assert sorted(map(int, bodies)) == list(range(COUNT))


async def test_one_of_a_batch_may_come_again_alone(broker: Broker, producer: Producer) -> None:
    await _send(producer, 3)
    async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
        batches = consumer.batches(3, HANG_S)
        first = await anext(batches)
        await consumer.retry_later(first[1], delay_s=0)
        again = await anext(consumer.batches(1, 0.0))
        assert [message.reconsume_times for message in again] == [1]


async def test_a_paused_topic_keeps_what_was_fetched_and_goes_on(
    broker: Broker, producer: Producer
) -> None:
    await _send(producer, 3)
    async with Consumer("billing", ["orders", "returns"], nameserver=broker.nameserver) as consumer:
        messages = aiter(consumer)
        await anext(messages)
        consumer.pause("orders")
        assert consumer.paused == ["orders"]
        await _send(producer, 1, "returns")
        assert (await anext(messages)).topic == "returns"
        waiting = asyncio.ensure_future(anext(messages))
        held = consumer.engine.assignment.held
        assert sum(len(each.waiting) for each in held.values()) == 2
        consumer.pause()
        assert consumer.paused == ["orders", "returns"]
        consumer.resume()
        assert (await waiting).topic == "orders"


async def test_a_failed_message_of_a_paused_topic_waits_too(
    broker: Broker, producer: Producer
) -> None:
    await _send(producer, 1)
    async with Consumer("billing", ["orders", "returns"], nameserver=broker.nameserver) as consumer:
        messages = aiter(consumer)
        failed = await anext(messages)
        consumer.pause("orders")
        await consumer.retry_later(failed)
        waiting = asyncio.ensure_future(anext(messages))
        retry = MessageQueue("%RETRY%billing", broker.config.broker_name, 0)
        await until(lambda: len(consumer.engine.assignment.held[retry].waiting) == 1)
        assert not waiting.done()
        consumer.resume("orders")
        assert (await waiting).reconsume_times == 1


async def test_queues_are_told_of_before_they_come_and_before_they_go(
    broker: Broker, producer: Producer
) -> None:
    await _send(producer, 1)
    news: list[tuple[str, int]] = []
    seen: list[bytes] = []

    async def assigned(queues: list[MessageQueue]) -> None:
        await asyncio.sleep(0.01)
        assert not seen
        news.append(("assigned", sum(queue.topic == "orders" for queue in queues)))

    async def revoked(queues: list[MessageQueue]) -> None:
        assert set(queues) <= set(first.assigned)
        news.append(("revoked", sum(queue.topic == "orders" for queue in queues)))

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    first = Consumer(
        "billing",
        "orders",
        nameserver=broker.nameserver,
        handler=handle,
        on_assigned=assigned,
        on_revoked=revoked,
    )
    async with first:
        assert news == [("assigned", 4)]
        await until(lambda: bool(seen))
        async with Consumer("billing", "orders", nameserver=broker.nameserver):
            await until(lambda: ("revoked", 2) in news)
            first.pause("orders")
            seen.clear()
        await until(lambda: ("assigned", 2) in news)  # what comes back is paused still
        held = first.engine.assignment.held
        assert all(held[queue].is_paused for queue in held if queue.topic == "orders")
    assert news[-1] == ("revoked", 4)


async def test_topics_that_match_are_found_as_they_appear(
    broker: Broker, producer: Producer
) -> None:
    await _send(producer, 1, "orders_eu")
    await _send(producer, 1, "returns")
    consumer = Consumer("billing", {"orders_.*": "*"}, nameserver=broker.nameserver)
    async with consumer:
        messages = aiter(consumer)
        assert (await anext(messages)).topic == "orders_eu"
        await _send(producer, 1, "orders_us")
        assert await consumer.engine.find()
        assert (await anext(messages)).topic == "orders_us"
        assert {queue.topic for queue in consumer.assigned} == {
            "orders_eu",
            "orders_us",
            "%RETRY%billing",
        }


async def test_a_loop_beside_a_handler_is_refused(broker: Broker) -> None:
    async def handle(message: ReceivedMessage) -> None:
        """Never called."""

    async with Consumer(
        "billing", "orders", nameserver=broker.nameserver, handler=handle
    ) as consumer:
        with pytest.raises(
            ClientStateError, match="a handler already gets this consumer's messages"
        ):
            aiter(consumer)
