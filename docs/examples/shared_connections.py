"""A producer and two consumers that share one connection to each broker."""

import asyncio

from rockhopper import Connections, Consumer, Producer, ReceivedMessage


async def main() -> None:
    done = asyncio.Event()
    async with Connections() as shared:
        producer = Producer(connections=shared)

        async def bill(message: ReceivedMessage) -> None:
            await producer.send("invoices", b"for " + message.body)

        async def write(message: ReceivedMessage) -> None:
            print(message.body)
            done.set()

        async with (
            producer,
            Consumer("billing", "orders", handler=bill, connections=shared),
            Consumer("letters", "invoices", handler=write, connections=shared),
        ):
            await producer.send("orders", b"7")
            await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
