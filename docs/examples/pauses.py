"""Count messages per queue, save the counts before a queue is revoked, and pause a topic."""

import asyncio
from collections import Counter

from rockhopper import Consumer, MessageQueue, Producer, ReceivedMessage

counts: dict[MessageQueue, Counter[bytes]] = {}


async def assigned(queues: list[MessageQueue]) -> None:
    for queue in queues:
        counts[queue] = Counter()


async def revoked(queues: list[MessageQueue]) -> None:
    for queue in queues:
        print(f"save {dict(counts.pop(queue))} of {queue}")


async def main() -> None:
    done = asyncio.Event()

    async def count(message: ReceivedMessage) -> None:
        counts[message.queue][message.body] += 1
        if message.body == b"end":
            done.set()

    async with Producer() as producer:
        await producer.send("votes", b"yes")
        async with Consumer(
            "counting", "votes", handler=count, on_assigned=assigned, on_revoked=revoked
        ) as consumer:
            consumer.pause("votes")
            await producer.send("votes", b"end")
            print(f"paused: {consumer.paused}")
            consumer.resume("votes")
            await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
