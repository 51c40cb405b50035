"""Read all topics whose names start with metrics_, including future ones."""

import asyncio

from rockhopper import Consumer, Producer


async def main() -> None:
    async with Producer() as producer:
        for topic in ("metrics_cpu", "metrics_disk", "other"):
            await producer.send(topic, b"42")
        seen: set[str] = set()
        async with Consumer("charts", "metrics_.*") as consumer:
            async for message in consumer:
                print(message.topic, message.body)
                seen.add(message.topic)
                if seen == {"metrics_cpu", "metrics_disk"}:
                    break


if __name__ == "__main__":
    asyncio.run(main())
