"""aio-pika, for RabbitMQ: one durable classic queue, persistent messages, publisher confirms."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.brokers.clients.client import (
    BATCH,
    EACH,
    GATHERED,
    IN_BATCHES,
    LIVE,
    LOOK_EVERY,
    ONE,
    Client,
    Tally,
)

QUEUE, LIVE_QUEUE = "python", "python-live"


class AioPika(Client):
    """aio-pika with a prefetch of two batches; it has no batches of sends."""

    library = "aio-pika"
    ways: ClassVar[Mapping[str, str]] = {
        ONE: "publish",
        GATHERED: "asyncio.gather of publish",
        EACH: "async for over the queue's iterator, each message acknowledged",
        IN_BATCHES: f"a callback, every {BATCH}th message acknowledged for all",
        LIVE: "publish; async for, each message acknowledged",
    }
    keeps_consumed = False

    async def open(self) -> None:
        """Connect, and declare the queues."""
        address = f"amqp://guest:guest@127.0.0.1:{self._port}/"
        connection = await self._stack.enter_async_context(await aio_pika.connect(address))
        self._channel = await connection.channel()
        self._connection = connection
        for name in (QUEUE, LIVE_QUEUE):
            await self._channel.declare_queue(name, durable=True)
        self._exchange = self._channel.default_exchange
        self._queue = QUEUE

    async def send(self, body: bytes) -> None:
        """Publish one message, and wait for its confirm."""
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, self._queue)

    async def send_gathered(self, bodies: Sequence[bytes]) -> None:
        """Publish without the base's coroutine around each send."""
        publish, mode = self._exchange.publish, aio_pika.DeliveryMode.PERSISTENT
        await asyncio.gather(
            *[publish(aio_pika.Message(body, delivery_mode=mode), self._queue) for body in bodies]
        )

    async def consume_each(self, group: str, tally: Tally) -> None:
        """Iterate over the queue."""
        seen = 0
        async with self._connection.channel() as channel:
            await channel.set_qos(prefetch_count=2 * BATCH)
            queue = await channel.get_queue(QUEUE)
            async with queue.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    seen += len(message.body) > 0
                    if not seen % LOOK_EVERY and tally.is_over(seen):
                        return

    async def consume_in_batches(self, group: str, tally: Tally) -> None:
        """Take messages with a callback."""
        seen = 0
        is_over = asyncio.get_running_loop().create_future()

        async def take(message: AbstractIncomingMessage) -> None:
            nonlocal seen
            seen += len(message.body) > 0
            if not seen % BATCH and not is_over.done():
                await message.ack(multiple=True)
                if tally.is_over(seen):
                    is_over.set_result(None)

        async with self._connection.channel() as channel:
            await channel.set_qos(prefetch_count=2 * BATCH)
            queue = await channel.get_queue(QUEUE)
            await queue.consume(take)
            await is_over

    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        """Iterate over a queue of its own, which later sends go to."""
        self._queue = LIVE_QUEUE
        async with self._connection.channel() as channel:
            await channel.set_qos(prefetch_count=2 * BATCH)
            queue = await channel.get_queue(LIVE_QUEUE)
            async with queue.iterator() as messages:
                async for message in messages:
                    take(message.body)
                    await message.ack()
