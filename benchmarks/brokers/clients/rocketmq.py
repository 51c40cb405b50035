"""Our own client, for our broker and for Apache RocketMQ."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from benchmarks.brokers.clients.client import (
    BATCH,
    BATCHES,
    CATCH_UP,
    EACH,
    GATHERED,
    IN_BATCHES,
    LIVE,
    LOOK_EVERY,
    MANY,
    ONE,
    Client,
    Tally,
)
from rockhopper import Consumer, Message, Producer
from rockhopper.client.consuming.options import StartFrom

WAIT_S = 0.1


class Rockhopper(Client):
    """Rockhopper's client; its topic has four queues, and consumers commit once a second."""

    library = "rockhopper-mq"
    ways: ClassVar[Mapping[str, str]] = {
        ONE: "send",
        GATHERED: "asyncio.gather of send",
        MANY: "send_many",
        BATCHES: "send_batch",
        EACH: "async for",
        IN_BATCHES: f"batches({BATCH})",
        LIVE: "send; async for",
        CATCH_UP: f"batches({BATCH})",
    }

    async def open(self) -> None:
        """Connect; the topic exists."""
        producer = Producer(f"127.0.0.1:{self._nameserver_port}", timeout_s=30)
        self._producer = await self._stack.enter_async_context(producer)

    async def send(self, body: bytes) -> None:
        """Send one message."""
        await self._producer.send(self.topic, body)

    async def send_gathered(self, bodies: Sequence[bytes]) -> None:
        """Send without the base's coroutine around each send."""
        send = self._producer.send
        await asyncio.gather(*[send(self.topic, body) for body in bodies])

    async def send_many(self, bodies: Sequence[bytes]) -> None:
        """Send a list."""
        await self._producer.send_many([Message(self.topic, body) for body in bodies])

    async def send_batch(self, bodies: Sequence[bytes]) -> None:
        """Send one batch."""
        await self._producer.send_batch([Message(self.topic, body) for body in bodies])

    async def consume_each(self, group: str, tally: Tally) -> None:
        """Consume with `async for`."""
        seen = 0
        async with self._consumer(group) as consumer:
            async for message in consumer:
                seen += len(message.body) > 0
                if not seen % LOOK_EVERY and tally.is_over(seen):
                    return

    async def consume_in_batches(self, group: str, tally: Tally) -> None:
        """Consume with `batches`."""
        seen = 0
        async with self._consumer(group) as consumer:
            async for batch in consumer.batches(BATCH, WAIT_S):
                seen += sum([len(message.body) > 0 for message in batch])
                if tally.is_over(seen):
                    return

    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        """Consume new messages with `async for`."""
        nameserver = f"127.0.0.1:{self._nameserver_port}"
        async with Consumer(
            group, self.topic, nameserver=nameserver, start_from="latest"
        ) as consumer:
            async for message in consumer:
                take(message.body)

    def _consumer(self, group: str, start_from: StartFrom = "earliest") -> Consumer:
        nameserver = f"127.0.0.1:{self._nameserver_port}"
        return Consumer(group, self.topic, nameserver=nameserver, start_from=start_from)
