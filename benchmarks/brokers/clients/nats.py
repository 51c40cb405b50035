"""nats-py, for JetStream: one stream in a file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import nats
from nats.js import api

from benchmarks.brokers.clients.client import (
    BATCH,
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

SUBJECT = "python"
WAITING_MAX = 1024
"""The messages that a push consumer may have before it acknowledges them."""


class NatsPy(Client):
    """nats-py; single messages are acknowledged singly, and a batch with its last message."""

    library = "nats-py"
    ways: ClassVar[Mapping[str, str]] = {
        ONE: "publish",
        GATHERED: "asyncio.gather of publish",
        MANY: "1,000 x publish_async, then asyncio.gather of their futures",
        EACH: "push subscription, each message acknowledged",
        IN_BATCHES: f"pull subscription, fetch({BATCH}), the last one acknowledged for all",
        LIVE: "publish; push subscription, each message acknowledged",
    }

    async def open(self) -> None:
        """Connect, and create the stream."""
        connection = await nats.connect(f"nats://127.0.0.1:{self._port}")
        self._stack.push_async_callback(connection.close)
        self._stream = connection.jetstream(timeout=30)
        await self._stream.add_stream(name=SUBJECT, subjects=[SUBJECT])

    async def send(self, body: bytes) -> None:
        """Publish one message."""
        await self._stream.publish(SUBJECT, body)

    async def send_gathered(self, bodies: Sequence[bytes]) -> None:
        """Publish without the base's coroutine around each send."""
        publish = self._stream.publish
        await asyncio.gather(*[publish(SUBJECT, body) for body in bodies])

    async def send_many(self, bodies: Sequence[bytes]) -> None:
        """Publish each message, then wait for all."""
        publish = self._stream.publish_async
        await asyncio.gather(*[await publish(SUBJECT, body) for body in bodies])

    async def consume_each(self, group: str, tally: Tally) -> None:
        """Consume what the server pushes."""
        seen = 0
        subscription = await self._push(group, api.DeliverPolicy.ALL)
        async for message in subscription.messages:
            await message.ack()
            seen += len(message.data) > 0
            if not seen % LOOK_EVERY and tally.is_over(seen):
                break
        await subscription.unsubscribe()

    async def consume_in_batches(self, group: str, tally: Tally) -> None:
        """Fetch lists."""
        seen = 0
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.ALL)
        subscription = await self._stream.pull_subscribe(SUBJECT, durable=group, config=config)
        while True:
            messages = await subscription.fetch(BATCH, timeout=30)
            await messages[-1].ack()
            seen += sum([len(message.data) > 0 for message in messages])
            if tally.is_over(seen):
                break
        await subscription.unsubscribe()

    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        """Take what the server pushes."""
        subscription = await self._push(group, api.DeliverPolicy.NEW)
        async for message in subscription.messages:
            take(message.data)
            await message.ack()

    async def _push(self, group: str, start_from: api.DeliverPolicy) -> "nats.js.PushSubscription":
        config = api.ConsumerConfig(deliver_policy=start_from, max_ack_pending=WAITING_MAX)
        return await self._stream.subscribe(SUBJECT, durable=group, manual_ack=True, config=config)
