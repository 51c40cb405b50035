"""Exactly-once copies by real Spark: SIGKILL for the driver, its Python processes, and brokers.

A streaming query copies a topic that is being written to, on two or three brokers, into others; in
most rounds its rows say into which, with sharding keys or without, and some cannot be sent and
become dead letters. At random moments the driver with all that it has started, one of Spark's
Python processes, or one or more brokers are killed and started again, and a further broker, which
only has what is written to, joins and leaves. In the end each message of the source is once where
it belongs, those of a sharding key in order, and all that was acknowledged is in the source.
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
        """What the body of its copy is."""
        _, broker, queue_id = self.queue
        return f"{broker}:{queue_id}:{self.offset} {self.body}"


async def rounds(
    workshop: Workshop, seed: int, counts: tuple[int, ...] = (2, 3, 3, 3), kills: int = KILLS
) -> AsyncGenerator[Outcome]:
    """A copy with so many kills, on as many brokers as one of *counts* says."""
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
    """The brokers, the query, and who writes what it copies."""

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
        """What the query has said last on standard error."""
        return self._errors.read_text(errors="replace")[-ERRORS_SHOWN:]

    async def begin(self) -> None:
        for number in range(self._count):
            await self._brokers.start(number)
        await self._brokers.registered()
        async with Admin(self.nameserver) as admin:
            for topic in (SOURCE, *TARGETS):
                await admin.create_topic(topic, queues=2)

    async def live(self, kills: int) -> int:
        """Have so much killed while messages come, then all of them copied; 0 if that worked."""
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
        """Have it happen; how many processes, or trees of them, it killed."""
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
        """The first batch is published by now, so that the guest is not the sink's home."""
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
        """Let the query copy all that is there; 0 if it says that it has."""
        for _ in range(LAST_TRIES):
            await self._driver.start("--to-the-end")
            status = await self._driver.end()
            if status == 0:
                break
        return status

    async def _produce(self, ends: asyncio.Event) -> None:
        """Send until told to end; what a killed broker did not answer may or may not be there."""
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
    """Everything in some topics."""
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
    """What is wrong; how many are lost, and how many are there more than once."""
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
    """What is wrong with the order: of a sharding key, in each queue that has had it."""
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
