"""A group that bills orders: its consumers, their messages, and its offsets at our broker."""

from rockhopper.broker import Broker
from rockhopper.client import Consumer, Producer
from rockhopper.client.received import ReceivedMessage

# A consumer checks everything by itself every 20 s: immediate effects must come before that.
NEXT_ROUND_S = 15.0
# Broker settings with which failed messages are redelivered without a delay.
AT_ONCE = {"messageDelayLevel": " ".join(["0s"] * 18)}


def billing(broker: Broker, **options: object) -> Consumer:
    return Consumer("billing", "orders", nameserver=broker.nameserver, **options)  # type: ignore[arg-type]


async def send(producer: Producer, count: int, first: int = 0, topic: str = "orders") -> None:
    """Send numbered messages to one queue, so that their order is known."""
    for number in range(first, first + count):
        await producer.send(topic, b"%d" % number, queue=0)


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """Read with a loop that leaves the last message unfinished."""
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
    return broker.tables.offsets.get(topic, group, 0)


def sent_back(broker: Broker) -> int:
    """Return how many messages were scheduled for a retry through the delay levels."""
    return broker.store.reading.queue_range("SCHEDULE_TOPIC_XXXX", 2)[1]
