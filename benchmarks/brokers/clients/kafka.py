"""confluent-kafka, which librdkafka drives in C, and aiokafka, which is Python with parts in C."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import aiokafka
import confluent_kafka

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
    refuse_silence,
)
from benchmarks.errors import BenchError

FLUSHED_WITHIN_S = 30.0
POLL_S = 1.0


class ConfluentKafka(Client):
    """confluent-kafka; linger.ms is 0 where one message waits for its receipt, else the default.

    It blocks, so nothing can be gathered. Consumers commit by themselves, every five seconds.
    """

    library = "confluent-kafka"
    ways: ClassVar[Mapping[str, str]] = {
        ONE: "produce and flush",
        MANY: "1,000 x produce with a callback each, then flush",
        BATCHES: "produce_batch and flush",
        EACH: "poll",
        IN_BATCHES: f"consume({BATCH})",
        LIVE: "produce; poll in a thread",
        CATCH_UP: f"consume({BATCH})",
    }

    async def open(self) -> None:
        """Connect; the broker creates the topic."""
        common = {
            "bootstrap.servers": f"127.0.0.1:{self._port}",
            "broker.address.family": "v4",
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
        }
        self._producer = confluent_kafka.Producer(common)
        self._quick = confluent_kafka.Producer({**common, "linger.ms": 0})
        self._failures: list[str] = []

    async def send(self, body: bytes) -> None:
        """Produce, and wait until it is delivered."""
        self._quick.produce(self.topic, body, on_delivery=self._note)
        self._flush(self._quick)

    def post(self, body: bytes) -> None:
        """Produce without waiting."""
        self._quick.produce(self.topic, body, on_delivery=self._note)
        self._quick.poll(0)

    async def drain(self) -> None:
        """Wait until everything is delivered."""
        self._flush(self._quick)

    async def send_many(self, bodies: Sequence[bytes]) -> None:
        """Produce each message with a callback."""
        for body in bodies:
            self._producer.produce(self.topic, body, on_delivery=self._note)
        self._flush(self._producer)

    async def send_batch(self, bodies: Sequence[bytes]) -> None:
        """Produce a list."""
        messages = [{"value": body} for body in bodies]
        if self._producer.produce_batch(self.topic, messages, on_delivery=self._note) != len(
            bodies
        ):
            raise BenchError("confluent-kafka refused messages of a batch")
        self._flush(self._producer)

    async def consume_each(self, group: str, tally: Tally) -> None:
        """Poll one message after another."""
        seen = empty = 0
        consumer = self._consumer(group, "earliest")
        try:
            while True:
                message = consumer.poll(POLL_S)
                if message is None:
                    empty += 1
                    refuse_silence(empty)
                    continue
                seen += len(_body_of(message)) > 0
                if not seen % LOOK_EVERY and tally.is_over(seen):
                    return
        finally:
            consumer.close()

    async def consume_in_batches(self, group: str, tally: Tally) -> None:
        """Take lists of messages."""
        seen = empty = 0
        consumer = self._consumer(group, "earliest")
        try:
            while True:
                messages = consumer.consume(BATCH, POLL_S)
                if not messages:
                    empty += 1
                    refuse_silence(empty)
                    continue
                seen += sum([len(_body_of(message)) > 0 for message in messages])
                if tally.is_over(seen):
                    return
        finally:
            consumer.close()

    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        """Poll in a thread."""
        stopped = threading.Event()

        def poll() -> None:
            consumer = self._consumer(group, "latest")
            while not stopped.is_set():
                message = consumer.poll(POLL_S / 10)
                if message is not None:
                    take(_body_of(message))
            consumer.close()

        try:
            await asyncio.to_thread(poll)
        finally:
            stopped.set()

    def _consumer(self, group: str, start_from: str) -> Any:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self._port}",
                "broker.address.family": "v4",
                "group.id": group,
                "auto.offset.reset": start_from,
            }
        )
        consumer.subscribe([self.topic])
        return consumer

    def _note(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _flush(self, producer: Any) -> None:
        left = producer.flush(FLUSHED_WITHIN_S)
        if left or self._failures:
            raise BenchError(f"Kafka did not take {left} messages: {self._failures[:1]}")


def _body_of(message: Any) -> bytes:
    if message.error():
        raise BenchError(f"Kafka delivered an error: {message.error()}")
    body: bytes = message.value()
    return body


class AioKafka(Client):
    """aiokafka with acks=all and its default linger of none.

    Consumers commit by themselves, every five seconds.
    """

    library = "aiokafka"
    ways: ClassVar[Mapping[str, str]] = {
        ONE: "send_and_wait",
        GATHERED: "asyncio.gather of send_and_wait",
        MANY: "1,000 x send, then asyncio.gather of their futures",
        BATCHES: "create_batch, append and send_batch",
        EACH: "async for",
        IN_BATCHES: f"getmany(max_records={BATCH})",
        LIVE: "send_and_wait; async for",
        CATCH_UP: f"getmany(max_records={BATCH})",
    }

    async def open(self) -> None:
        """Connect; the broker creates the topic."""
        self._address = f"127.0.0.1:{self._port}"
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._address, acks="all")
        self._producer = await self._stack.enter_async_context(producer)
        await self.send(b"the topic exists")
        self._partitions = sorted(await self._producer.partitions_for(self.topic))
        self._next = 0

    async def send(self, body: bytes) -> None:
        """Send one message."""
        await self._producer.send_and_wait(self.topic, body)

    async def send_gathered(self, bodies: Sequence[bytes]) -> None:
        """Send without the base's coroutine around each send."""
        send = self._producer.send_and_wait
        await asyncio.gather(*[send(self.topic, body) for body in bodies])

    async def send_many(self, bodies: Sequence[bytes]) -> None:
        """Queue each message, then wait for all."""
        await asyncio.gather(*[await self._producer.send(self.topic, body) for body in bodies])

    async def send_batch(self, bodies: Sequence[bytes]) -> None:
        """Fill batches, each as large as the producer allows, and wait for all."""
        waiting, batch = [], self._producer.create_batch()
        for body in bodies:
            if batch.append(key=None, value=body, timestamp=None) is None:
                waiting.append(await self._send_batch(batch))
                batch = self._producer.create_batch()
                batch.append(key=None, value=body, timestamp=None)
        waiting.append(await self._send_batch(batch))
        await asyncio.gather(*waiting)

    async def _send_batch(self, batch: Any) -> Any:
        self._next = (self._next + 1) % len(self._partitions)
        partition = self._partitions[self._next]
        return await self._producer.send_batch(batch, self.topic, partition=partition)

    async def consume_each(self, group: str, tally: Tally) -> None:
        """Consume with `async for`."""
        seen = 0
        async with self._consumer(group, "earliest") as consumer:
            async for message in consumer:
                seen += len(message.value) > 0
                if not seen % LOOK_EVERY and tally.is_over(seen):
                    return

    async def consume_in_batches(self, group: str, tally: Tally) -> None:
        """Consume with `getmany`."""
        seen = empty = 0
        async with self._consumer(group, "earliest") as consumer:
            while True:
                found = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
                empty = 0 if found else empty + 1
                refuse_silence(empty)
                for messages in found.values():
                    seen += sum([len(message.value) > 0 for message in messages])
                if found and tally.is_over(seen):
                    return

    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        """Consume new messages with `async for`."""
        async with self._consumer(group, "latest") as consumer:
            async for message in consumer:
                take(message.value)

    def _consumer(self, group: str, start_from: str) -> Any:
        return aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self._address,
            group_id=group,
            auto_offset_reset=start_from,
        )
