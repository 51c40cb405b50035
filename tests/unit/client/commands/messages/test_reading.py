"""Reading queues backwards."""

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer
from rockhopper.client.commands.messages.reading import OffsetSpan, read_in_order, read_newest
from rockhopper.client.pull_consumer import PullConsumer
from rockhopper.client.received import ReceivedMessage


@pytest.mark.parametrize(("count", "step"), [(1, 1), (5, 1), (7, 100), (1000, 1)])
async def test_the_newest_that_are_wanted_are_found_however_far_back_they_are(
    broker: Broker, count: int, step: int
) -> None:
    total = 900
    async with Producer(broker.nameserver) as producer:
        for begin in range(0, total, 30):
            batch = [Message("orders", b"%d" % (begin + number)) for number in range(30)]
            await producer.send_batch(batch)

    def wanted(message: ReceivedMessage) -> bool:
        return int(message.body) % step == 0

    async with PullConsumer(nameserver=broker.nameserver) as consumer:
        queues = await consumer.queues("orders")
        spans = [OffsetSpan(queue, 0, await consumer.end_offset(queue)) for queue in queues]
        assert len(spans) > 1
        found = await read_newest(consumer, spans, count, wanted)
    right = [number for number in range(total) if number % step == 0][-count:]
    assert [int(each.body) for each in found] == right


async def test_messages_of_one_millisecond_come_in_the_order_of_the_log(broker: Broker) -> None:
    total = 900
    async with Producer(broker.nameserver) as producer:
        for begin in range(0, total, 30):
            await producer.send_batch([Message("orders", b"%d" % (begin + i)) for i in range(30)])
    async with PullConsumer(nameserver=broker.nameserver) as consumer:
        queues = await consumer.queues("orders")
        spans = [OffsetSpan(queue, 0, await consumer.end_offset(queue)) for queue in queues]
        found = [int(each.body) async for each in read_in_order(consumer, spans)]
    assert found == list(range(total))
