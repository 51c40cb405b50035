"""Reading queues backwards."""

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer
from rockhopper.client.commands.messages.reading import Span, newest
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
        spans = [Span(queue, 0, await consumer.end_offset(queue)) for queue in queues]
        assert len(spans) > 1
        found = await newest(consumer, spans, count, wanted)
    right = [number for number in range(total) if number % step == 0][-count:]
    times = [each.store_time_ms for each in found]
    assert (len(found), times) == (len(right), sorted(times))
    # Which of those of one millisecond are the newest nobody can say.
    older = {int(each.body) for each in found} - set(right)
    assert not older or min(times) == max(times[: len(older)])
