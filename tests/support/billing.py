"""A group that bills orders: its consumers, what they take, and how far they are at our broker."""

from rockhopper.broker import Broker
from rockhopper.client import Consumer, Producer
from rockhopper.client.received import ReceivedMessage

# A consumer looks at everything by itself every 20 s: what has to happen at once is over before.
NEXT_ROUND_S = 15.0
# Settings of a broker at which what failed comes again without a delay.
AT_ONCE = {"messageDelayLevel": " ".join(["0s"] * 18)}


def billing(broker: Broker, **options: object) -> Consumer:
    return Consumer("billing", "orders", nameserver=broker.nameserver, **options)  # type: ignore[arg-type]


async def send(producer: Producer, count: int, first: int = 0, topic: str = "orders") -> None:
    """Send numbered messages to one queue, so that their order is known."""
    for number in range(first, first + count):
        await producer.send(topic, b"%d" % number, queue=0)


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """Read with a loop of its own, which leaves the last message unfinished."""
    messages: list[ReceivedMessage] = []
    async for message in consumer:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


async def leave_with(error: Exception, consumer: Consumer, count: int) -> None:
    """Read some messages, then fail."""
    async with consumer:
        await take(consumer, count)
        raise error


def committed(broker: Broker, group: str = "billing", topic: str = "orders") -> int | None:
    return broker.offsets.get(topic, group, 0)


def sent_back(broker: Broker) -> int:
    """How many messages were asked for again by the ladder."""
    return broker.store.queue_range("SCHEDULE_TOPIC_XXXX", 2)[1]
