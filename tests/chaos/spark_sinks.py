"""Exactly-once copies by real Spark: SIGKILL for the driver, its Python processes, and brokers.

A streaming query copies a topic that is being written to into another one; both are on one to three
brokers. At random moments the driver with all that it has started, one of Spark's Python processes,
or one or more brokers are killed and started again. In the end each message of the source is in the
target once, and all that was acknowledged is in the source.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator

from rockhopper.client import Admin, Message, Producer
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.chaos.outcome import Outcome
from tests.chaos.shared_sinks import Brokers
from tests.chaos.workshop import Workshop
from tests.support.copying_driver import Driver
from tests.support.copying_query import SOURCE, TARGET

KILLS = 10
VICTIMS = ("driver", "worker", "broker", "brokers")
WEIGHTS = (3, 3, 3, 1)
AWAY_S = (0.0, 2.0)
BATCH = 100
SEND_EVERY_S = 0.1
LAST_TRIES = 5
"""Spark gives up on a Python process that does not answer within ten seconds."""


async def rounds(
    workshop: Workshop, seed: int, counts: tuple[int, ...] = (2, 3, 3, 3)
) -> AsyncGenerator[Outcome]:
    """A copy with KILLS kills, on as many brokers as one of *counts* says."""
    dice = random.Random(seed)
    count = dice.choice(counts)
    with workshop.scratch("spark") as directory:
        brokers = Brokers(directory, count)
        driver = Driver(brokers.nameserver, directory / "checkpoint", directory / "driver.log")
        try:
            for number in range(count):
                await brokers.start(number)
            await brokers.registered()
            async with Admin(brokers.nameserver) as admin:
                await admin.create_topic(SOURCE, queues=2)
                await admin.create_topic(TARGET, queues=2)
            acknowledged: set[str] = set()
            ends = asyncio.Event()
            producing = asyncio.create_task(_produce(brokers.nameserver, ends, acknowledged))
            kills = await _live(brokers, driver, dice)
            ends.set()
            await producing
            await brokers.registered()
            status = await _finish(driver, dice)
            source = await _stored(brokers.nameserver, SOURCE)
            target = await _stored(brokers.nameserver, TARGET)
        finally:
            driver.kill(workers_only=False, random_source=dice)
            for number in brokers.processes:
                await brokers.kill(number)
        note = f"{count} brokers, {len(source):,} messages, kills: {dict(kills)}"
        yield _judge(seed, source, target, acknowledged, status, note)


async def _live(brokers: Brokers, driver: Driver, dice: random.Random) -> Counter[str]:
    kills = Counter[str]()
    await driver.start()
    while kills.total() < KILLS:
        is_running = await driver.batches(1)
        await asyncio.sleep(dice.uniform(0.0, 1.0))
        (victim,) = dice.choices(VICTIMS, WEIGHTS)
        if victim in ("driver", "worker"):
            driver.kill(workers_only=victim == "worker", random_source=dice)
            kills[victim] += 1
        else:
            numbers = sorted(brokers.processes)
            some = numbers if victim == "brokers" else [dice.choice(numbers)]
            for number in some:
                await brokers.kill(number)
                kills["broker"] += 1
            await asyncio.sleep(dice.uniform(*AWAY_S))
            for number in some:
                await brokers.start(number)
        if victim == "driver" or not is_running:
            kills["failed queries"] += not is_running
            driver.kill(workers_only=False, random_source=dice)
            await driver.gone()
            await driver.start()
    driver.kill(workers_only=False, random_source=dice)
    await driver.gone()
    return kills


async def _finish(driver: Driver, dice: random.Random) -> int:
    """Let the query copy all that is there; 0 if it says that it has."""
    for _ in range(LAST_TRIES):
        await driver.start("--to-the-end")
        status = await driver.end()
        if status == 0:
            break
    return status


async def _produce(nameserver: str, ends: asyncio.Event, acknowledged: set[str]) -> None:
    """Send until told to end; what a killed broker did not answer may or may not be there."""
    number = 0
    async with Producer(nameserver, retries=0) as producer:
        while not ends.is_set():
            texts = [f"{each:08d}" for each in range(number, number + BATCH)]
            number += BATCH
            try:
                await producer.send_batch([Message(SOURCE, text.encode()) for text in texts])
                acknowledged.update(texts)
            except ClientError:
                pass
            await asyncio.sleep(SEND_EVERY_S)


async def _stored(nameserver: str, topic: str) -> list[str]:
    """Everything in a topic; of the source with its place, as the query writes it."""
    found: list[str] = []
    async with Admin(nameserver) as admin:
        for each in await admin.ranges(topic):
            queue, offset = each.queue, each.min_offset
            address = (await admin.masters(queue.broker_name))[0].address
            while offset < each.max_offset:
                fields = {"topic": topic, "queueId": str(queue.queue_id), "offset": str(offset)}
                answer = await admin.request(address, RequestCode.BULK_PULL, fields)
                for message in decode_messages(answer.body):
                    place = f"{queue.broker_name}:{message.queue_id}:{message.queue_offset} "
                    found.append(("" if topic == TARGET else place) + message.body.decode())
                assert answer.ext is not None
                offset = int(answer.ext["nextBeginOffset"])
    return found


def _judge(
    seed: int,
    source: list[str],
    target: list[str],
    acknowledged: set[str],
    status: int,
    note: str,
) -> Outcome:
    complaints = []
    if status:
        complaints.append(f"the query did not come to its end (exit code {status})")
    if gone := acknowledged - {text.partition(" ")[2] for text in source}:
        complaints.append(f"{len(gone)} acknowledged messages are not in the source: {min(gone)}")
    if lost := set(source) - set(target):
        complaints.append(f"{len(lost)} were not copied, such as {min(lost)}")
    if more := set(target) - set(source):
        complaints.append(f"{len(more)} are in the target alone, such as {min(more)}")
    if repeated := [text for text, count in Counter(target).items() if count > 1]:
        complaints.append(f"{len(repeated)} are there twice, such as {min(repeated)}")
    return Outcome(
        fault="spark-sinks",
        variant=f"spark sinks, {note[0]} brokers",
        seed=seed,
        acknowledged=len(acknowledged),
        lost=len(lost) + len(gone),
        repeated=len(repeated),
        wrong=len(more),
        complaints=complaints,
        note=note,
    )
