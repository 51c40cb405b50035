"""Exactly-once copies by real Spark: the driver, its Python processes and brokers are killed.

A streaming query copies a topic to other topics, on two or three brokers, while the topic is being
written. In most rounds the rows name their target topic, with or without sharding keys, and some
rows cannot be sent and become dead letters. At random moments the test kills and restarts the
driver with all its children, one of Spark's Python processes, or one or more brokers. Another
broker, which only has the source topic, joins and leaves. At the end each source message must be
exactly once in its target, in order within its sharding key, and the source must hold everything
that was acknowledged.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import NamedTuple

from rockhopper.client import Admin, Message, Producer
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.chaos.outcome import Outcome
from tests.chaos.shared_sinks import Brokers
from tests.chaos.workshop import Workshop
from tests.support.copying_driver import Driver
from tests.support.copying_query import LETTERS, SECOND, SOURCE, TARGET, has_key, topic_of

KILLS = 10
EVENTS = ("driver", "worker", "broker", "brokers", "guest")
WEIGHTS = (3, 3, 3, 1, 3)
TARGETS = (TARGET, SECOND, LETTERS)
AWAY_S = (0.0, 2.0)
BATCH = 100
SEND_EVERY_S = 0.1
ERRORS_SHOWN = 20_000
LAST_TRIES = 5
"""Spark gives up on a Python process that does not answer within ten seconds."""


class Stored(NamedTuple):
    """A message in a topic."""

    queue: tuple[str, str, int]
    """Topic, broker and queue."""
    offset: int
    body: str

    @property
    def copied(self) -> str:
        """The body of its copy."""
        _, broker, queue_id = self.queue
        return f"{broker}:{queue_id}:{self.offset} {self.body}"


async def rounds(
    workshop: Workshop, seed: int, counts: tuple[int, ...] = (2, 3, 3, 3), kills: int = KILLS
) -> AsyncGenerator[Outcome]:
    """Run a copy with *kills* kills, on a number of brokers drawn from *counts*."""
    dice = random.Random(seed)
    count = dice.choice(counts)
    by_columns = dice.random() < 0.75
    with workshop.scratch("spark") as directory:
        copy = _Copy(directory, count, dice, by_columns)
        try:
            await copy.begin()
            status = await copy.live(kills)
            source = await _stored(copy.nameserver, [SOURCE])
            found = await _stored(copy.nameserver, TARGETS)
        finally:
            await copy.close()
        events = ", ".join(f"{name} {times}" for name, times in sorted(copy.events.items()))
        how = "by columns" if by_columns else "plain"
        note = f"{count} brokers, {how}, {len(source):,} messages, {events}"
        complaints, lost, repeated = judge(source, found, copy.acknowledged, by_columns=by_columns)
        if status:
            print(copy.errors)
            complaints.insert(0, f"the query did not come to its end (exit code {status})")
        yield Outcome(
            fault="spark-sinks",
            variant=f"spark sinks, {count} brokers",
            seed=seed,
            acknowledged=len(copy.acknowledged),
            lost=lost,
            repeated=repeated,
            complaints=complaints,
            note=note,
        )


class _Copy:
    """The brokers, the query, and the producer of the source."""

    def __init__(self, directory: Path, count: int, dice: random.Random, by_columns: bool) -> None:
        self._dice = dice
        self._count = count
        self._brokers = Brokers(directory, count + 1)
        self.nameserver = self._brokers.nameserver
        flags = ["--by-columns"] if by_columns else []
        self._errors = directory / "driver.log"
        self._driver = Driver(self.nameserver, directory / "checkpoint", self._errors, *flags)
        self.acknowledged: set[str] = set()
        self.events = Counter[str]()

    @property
    def errors(self) -> str:
        """The last output of the query on standard error."""
        return self._errors.read_text(errors="replace")[-ERRORS_SHOWN:]

    async def begin(self) -> None:
        for number in range(self._count):
            await self._brokers.start(number)
        await self._brokers.registered()
        async with Admin(self.nameserver) as admin:
            for topic in (SOURCE, *TARGETS):
                await admin.create_topic(topic, queues=2)

    async def live(self, kills: int) -> int:
        """Kill *kills* times while messages arrive, then let all be copied.

        Return 0 on success.
        """
        ends = asyncio.Event()
        producing = asyncio.create_task(self._produce(ends))
        await self._driver.start()
        killed = 0
        while killed < kills:
            is_running = await self._driver.batches(1)
            await asyncio.sleep(self._dice.uniform(0.0, 1.0))
            (event,) = self._dice.choices(EVENTS, WEIGHTS)
            killed += await self._make(event)
            if event == "driver" or not is_running:
                self.events["queries that failed"] += not is_running
                await self._kill_driver()
                await self._driver.start()
        ends.set()
        await producing
        await self._kill_driver()
        if self._count not in self._brokers.processes:
            await self._let_guest_in_or_out()
        await self._brokers.registered()
        return await self._finish()

    async def _make(self, event: str) -> int:
        """Make the event happen, and return how many processes, or process trees, it killed."""
        if event == "guest":
            await self._let_guest_in_or_out()
            return 0
        if event in ("driver", "worker"):
            self._driver.kill(workers_only=event == "worker", random_source=self._dice)
            self.events[f"{event}s killed"] += 1
            return 1
        numbers = sorted(self._brokers.processes)
        some = numbers if event == "brokers" else [self._dice.choice(numbers)]
        for number in some:
            await self._brokers.kill(number)
        await asyncio.sleep(self._dice.uniform(*AWAY_S))
        for number in some:
            await self._brokers.start(number)
        self.events["brokers killed"] += len(some)
        return len(some)

    async def _let_guest_in_or_out(self) -> None:
        """Start the guest broker, or stop it.

        By now the first batch is published, so the guest is not the sink's home.
        """
        if self._count in self._brokers.processes:
            await self._brokers.end(self._count)
            self.events["brokers left"] += 1
            return
        await self._brokers.start(self._count)
        await self._brokers.registered()
        async with Admin(self.nameserver) as admin:
            for topic in TARGETS:
                await admin.create_topic(topic, queues=2, broker=f"broker-{self._count}")
        self.events["brokers joined"] += 1

    async def _kill_driver(self) -> None:
        self._driver.kill(workers_only=False, random_source=self._dice)
        await self._driver.gone()

    async def _finish(self) -> int:
        """Let the query copy everything that is left; return 0 if it succeeds."""
        for _ in range(LAST_TRIES):
            await self._driver.start("--to-the-end")
            status = await self._driver.end()
            if status == 0:
                break
        return status

    async def _produce(self, ends: asyncio.Event) -> None:
        """Send until *ends* is set; unanswered sends to a killed broker may be stored or not."""
        number = 0
        async with Producer(self.nameserver, retries=0) as producer:
            while not ends.is_set():
                texts = [f"{each:08d}" for each in range(number, number + BATCH)]
                number += BATCH
                try:
                    await producer.send_batch([Message(SOURCE, text.encode()) for text in texts])
                    self.acknowledged.update(texts)
                except ClientError:
                    pass
                await asyncio.sleep(SEND_EVERY_S)

    async def close(self) -> None:
        self._driver.kill(workers_only=False, random_source=self._dice)
        for number in self._brokers.processes:
            await self._brokers.kill(number)


async def _stored(nameserver: str, topics: Iterable[str]) -> list[Stored]:
    """Return all messages of some topics."""
    found: list[Stored] = []
    async with Admin(nameserver) as admin:
        for topic in topics:
            for each in await admin.ranges(topic):
                queue, offset = each.queue, each.min_offset
                address = (await admin.masters(queue.broker_name))[0].address
                where = (topic, queue.broker_name, queue.queue_id)
                while offset < each.max_offset:
                    fields = {"topic": topic, "queueId": str(queue.queue_id), "offset": str(offset)}
                    answer = await admin.request(address, RequestCode.BULK_PULL, fields)
                    found += (
                        Stored(where, message.queue_offset, message.body.decode())
                        for message in decode_messages(answer.body)
                    )
                    assert answer.ext is not None
                    offset = int(answer.ext["nextBeginOffset"])
    return found


def judge(
    source: list[Stored], found: list[Stored], acknowledged: set[str], *, by_columns: bool
) -> tuple[list[str], int, int]:
    """Return the complaints, the number of lost and the number of repeated messages."""
    complaints = []
    if gone := acknowledged - {each.body for each in source}:
        complaints.append(f"{len(gone)} acknowledged messages are not in the source: {min(gone)}")
    due = {(topic_of(int(each.body)) if by_columns else TARGET, each.copied) for each in source}
    there = Counter((each.queue[0], each.body) for each in found)
    if lost := due - there.keys():
        complaints.append(f"{len(lost)} were not copied, such as {min(lost)}")
    if more := there.keys() - due:
        complaints.append(f"{len(more)} are where they do not belong, such as {min(more)}")
    if repeated := [place for place, times in there.items() if times > 1]:
        complaints.append(f"{len(repeated)} are there twice, such as {min(repeated)}")
    if by_columns:
        complaints += _disorder(found)
    return complaints, len(lost) + len(gone), len(repeated)


def _disorder(found: list[Stored]) -> list[str]:
    """Return violations of the order within a sharding key, in each queue that has had it."""
    last: dict[tuple[str, ...], tuple[int, str]] = {}
    for each in sorted(found):
        place, _, number = each.body.partition(" ")
        if each.queue[0] == LETTERS or not has_key(int(number)):
            continue
        key, _, offset = place.rpartition(":")
        where = (*map(str, each.queue), key)
        before = last.get(where, (-1, ""))
        if before[0] > int(offset):
            return [f"{each.body} lies behind {before[1]} in {each.queue}"]
        last[where] = int(offset), each.body
    return []
