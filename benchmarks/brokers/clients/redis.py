"""redis-py with asyncio and hiredis, for Redis Streams: one stream."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from redis.asyncio import BlockingConnectionPool, Redis

from benchmarks.brokers.clients.client import (
    BATCH,
    BATCHES,
    EACH,
    GATHERED,
    IN_BATCHES,
    LIVE,
    ONE,
    Client,
    Tally,
    refuse_silence,
)

STREAM = "python"
CONNECTIONS = 50
"""The default of its pool that waits; without a bound each gathered send opens a connection."""


class RedisPy(Client):
    """redis-py; consumers belong to a group and acknowledge with XACK."""

    library = "redis"
    ways: ClassVar[Mapping[str, str]] = {
        ONE: "XADD",
        GATHERED: f"asyncio.gather of XADD over {CONNECTIONS} connections",
        BATCHES: "a pipeline of XADD, an id each",
        EACH: "XREADGROUP COUNT 1 and XACK",
        IN_BATCHES: f"XREADGROUP COUNT {BATCH} and one XACK",
        LIVE: f"XADD; XREADGROUP COUNT {BATCH} BLOCK and XACK",
    }

    async def open(self) -> None:
        """Connect; the first message creates the stream."""
        pool = BlockingConnectionPool(
            host="127.0.0.1", port=self._port, max_connections=CONNECTIONS, timeout=30
        )
        client: Any = Redis(connection_pool=pool)
        self._redis = client
        self._stack.push_async_callback(pool.disconnect)

    async def send(self, body: bytes) -> None:
        """Add one message."""
        await self._redis.xadd(STREAM, {b"b": body})

    async def send_gathered(self, bodies: Sequence[bytes]) -> None:
        """Add without the base's coroutine around each send."""
        add = self._redis.xadd
        await asyncio.gather(*[add(STREAM, {b"b": body}) for body in bodies])

    async def send_batch(self, bodies: Sequence[bytes]) -> None:
        """Add all with one pipeline."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for body in bodies:
                pipeline.xadd(STREAM, {b"b": body})
            await pipeline.execute()

    async def consume_each(self, group: str, tally: Tally) -> None:
        """Read one message after another."""
        await self._consume(group, tally, 1)

    async def consume_in_batches(self, group: str, tally: Tally) -> None:
        """Read lists."""
        await self._consume(group, tally, BATCH)

    async def _consume(self, group: str, tally: Tally, count: int) -> None:
        seen = empty = 0
        await self._redis.xgroup_create(STREAM, group, id="0")
        while True:
            found = await self._read(group, count)
            empty = 0 if found else empty + 1
            refuse_silence(empty)
            seen += sum([len(fields[b"b"]) > 0 for _, fields in found])
            if found:
                await self._redis.xack(STREAM, group, *[number for number, _ in found])
                if tally.is_over(seen):
                    return

    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        """Read new messages."""
        await self._redis.xgroup_create(STREAM, group, id="$", mkstream=True)
        while True:
            found = await self._read(group, BATCH)
            for _, fields in found:
                take(fields[b"b"])
            if found:
                await self._redis.xack(STREAM, group, *[number for number, _ in found])

    async def _read(self, group: str, count: int) -> Sequence[tuple[bytes, dict[bytes, bytes]]]:
        answer = await self._redis.xreadgroup(group, "one", {STREAM: ">"}, count=count, block=1000)
        if not answer:
            return []
        ((_, found),) = answer.items() if isinstance(answer, dict) else answer
        if found and isinstance(found[0], list) and isinstance(found[0][0], (tuple, list)):
            found = found[0]  # as its third protocol nests them
        return [(number, fields) for number, fields in found]
