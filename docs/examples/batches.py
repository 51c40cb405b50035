"""Consume in batches of up to 500 messages, with one database statement per batch."""

import asyncio
import sqlite3

from rockhopper import Consumer, Message, Producer

COUNT = 1200


async def main() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table clicks (id text primary key, page text)")
    async with Producer() as producer:
        for start in range(0, COUNT, 100):
            await producer.send_batch(
                [Message("clicks", b"/page/%d" % number) for number in range(start, start + 100)]
            )
    stored = 0
    async with Consumer("reports", "clicks") as consumer:
        async for batch in consumer.batches(500, 1.0):
            rows = [(message.message_id, message.body.decode()) for message in batch]
            with database:  # an exception here redelivers the whole batch
                database.executemany("insert or ignore into clicks values (?, ?)", rows)
            stored += len(batch)
            print(f"{len(batch)} stored, {stored} in all")
            if stored >= COUNT:
                break


if __name__ == "__main__":
    asyncio.run(main())
