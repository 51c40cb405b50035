"""Java: RocketMQ's own producer and consumer in the load, in one JVM.

The producer sends some messages in a row and stops at the first failure; a new producer sends the
next ones, as in a restarted application. The consumer's group remains the same throughout.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.chaos import topics
from tests.chaos.ledger import Fact, Kind, Ledger
from tests.interop.apache import missing_tools
from tests.interop.java_client import JavaClient, JavaClientError

AT_ONCE = 40
SEND_TIMEOUT_MS = 4000
CONSUMED_WITHIN_MS = 4000
BODY_BYTES = 200
GROUP = "java-readers"
OK = "SEND_OK"


def lacking() -> str:
    """Return what this machine lacks for Java clients; empty if it lacks nothing."""
    tools = missing_tools()
    return f"{', '.join(tools)} (a JDK 17 or later, and Maven)" if tools else ""


class JavaClients:
    """Both clients, from ``async with`` to its end; none if they are not *wanted*."""

    def __init__(self, nameserver: str, ledger: Ledger, directory: Path, *, wanted: bool) -> None:
        self._nameserver, self._ledger = nameserver, ledger
        self._directory, self._wanted = directory, wanted
        self._tasks: list[asyncio.Task[None]] = []
        self._names = itertools.count()
        self.acknowledged = self.consumed = 0

    async def __aenter__(self) -> Self:
        if self._wanted:
            self._java = await asyncio.to_thread(JavaClient, self._directory)
            works = (self._send, self._consume)
            self._tasks = [asyncio.create_task(self._repeat(work)) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._wanted:
            await asyncio.to_thread(self._java.close)

    async def _repeat(self, work: Any) -> None:
        while True:
            try:
                await work()
            except JavaClientError as error:
                self._ledger.refused(error)

    async def _call(self, op: str, **arguments: object) -> Any:
        begun = self._java.begin(op, nameserver=self._nameserver, **arguments)
        return await asyncio.wrap_future(begun)

    async def _send(self) -> None:
        prefix = f"java {next(self._names)} "
        bodies = [_body(prefix, number) for number in range(AT_ONCE)]
        facts = [self._ledger.expect(topics.PLAIN, Kind.PLAIN, body) for body in bodies]
        receipts = await self._call(
            "send",
            topic=topics.PLAIN,
            prefix=prefix,
            count=AT_ONCE,
            bodySize=BODY_BYTES,
            timeoutMs=SEND_TIMEOUT_MS,
            untilFailure=True,
        )
        self.note_sent(facts, receipts)

    def note_sent(self, facts: Sequence[Fact], receipts: Sequence[Sequence[Any]]) -> None:
        """Note the producer's answers: one receipt for each of the first messages."""
        for fact, (status, _id, _offset_id, queue_id, queue_offset) in zip(
            facts, receipts, strict=False
        ):
            if status == OK:
                self.acknowledged += 1
                self._ledger.acknowledged(fact)
                self._ledger.saw(topics.PLAIN, queue_id, queue_offset, fact.body)

    async def _consume(self) -> None:
        found = await self._call(
            "consume",
            group=GROUP,
            topic=topics.PLAIN,
            count=1 << 30,
            timeoutMs=CONSUMED_WITHIN_MS,
            heartbeatMs=1000,
        )
        self.note_consumed(found["messages"])

    def note_consumed(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Note the messages that the consumer read: their places and the hashes of their bodies."""
        sent = {
            hashlib.sha1(fact.body).hexdigest(): fact
            for fact in self._ledger.facts.values()
            if fact.topic == topics.PLAIN
        }
        for message in messages:
            self.consumed += 1
            place = message["queueId"], message["queueOffset"]
            fact = sent.get(message["sha1"])
            if fact is None:
                self._ledger.problems.append(f"Java was shown what nobody sent, at {place}")
            else:
                self._ledger.acknowledged(fact)
                self._ledger.saw(topics.PLAIN, *place, fact.body)


def _body(prefix: str, number: int) -> bytes:
    """Return the body that interop.Bodies makes of the same arguments."""
    return f"{prefix}-{number}".ljust(BODY_BYTES, ".").encode()
