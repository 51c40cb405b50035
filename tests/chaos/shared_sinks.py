"""Exactly-once batches on several brokers: the job and brokers are killed at random moments.

The job is a process that uses the sink as Spark does (tasks in threads, commit on the driver),
without Spark. It stages each batch in tasks, whose rows it distributes differently at each attempt.
It publishes the batch and notes it as done in a file, from which it continues after a restart.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rockhopper.client import Admin, PullConsumer
from rockhopper.client.errors import ClientError
from rockhopper.client.received import ReceivedMessage
from tests.chaos.outcome import Outcome
from tests.chaos.workshop import Workshop
from tests.support.free_ports import free_port

if TYPE_CHECKING:
    from rockhopper.pipeline.sink.rules import SinkRules
    from rockhopper.pipeline.sink.staging import TaskPart

TOPIC, QUEUES, SINK = "shared", 2, "the-sink"
BATCHES = 40
KEYS = 11
KILL_EVERY_S = (0.5, 2.0)
AWAY_S = (0.0, 1.5)
READ_WITHIN_S = 60.0
FAILURES_MAX = 20
"""A job that ends by itself more often than this never completes."""


class Brokers:
    """Up to *count* brokers at fixed ports; the first has the name server."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._ports = [(free_port(), free_port()) for _ in range(count)]
        self.processes: dict[int, asyncio.subprocess.Process] = {}

    @property
    def nameserver(self) -> str:
        return f"127.0.0.1:{self._ports[0][1]}"

    async def start(self, number: int) -> None:
        port, names = self._ports[number]
        options = ["--store", self._directory / f"store-{number}", "--name", f"broker-{number}"]
        options += ["--listen-port", port, "--http-port", -1, "--bind-address", "127.0.0.1"]
        if number == 0:
            options += ["--namesrv-port", names]
        else:
            options += ["--role", "broker", "--namesrv-addr", self.nameserver]
        log = (self._directory / f"broker-{number}.log").open("a")
        with log:
            self.processes[number] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "rockhopper.broker", *map(str, options)),
                stdout=log,
                stderr=log,
            )

    async def kill(self, number: int) -> None:
        process = self.processes[number]
        process.kill()
        await process.wait()

    async def end(self, number: int) -> None:
        """Stop a broker cleanly, which removes it from the name server."""
        process = self.processes.pop(number)
        process.terminate()
        await process.wait()

    async def registered(self) -> None:
        """Wait until the name server knows all started brokers."""
        async with asyncio.timeout(READ_WITHIN_S):
            while True:
                with contextlib.suppress(ClientError):
                    async with Admin(self.nameserver) as admin:
                        if len(await admin.brokers()) == len(self.processes):
                            return
                await asyncio.sleep(0.1)


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Run a job of some batches, and read everything back."""
    dice = random.Random(seed)
    count = dice.choice([1, 2, 2, 3, 3, 3])
    rows = dice.choice([20, 200, 1000])
    with workshop.scratch("sinks") as directory:
        brokers = Brokers(directory, count)
        try:
            for number in range(count):
                await brokers.start(number)
            await brokers.registered()
            async with Admin(brokers.nameserver) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)
            kills = await _live(directory, brokers, dice, rows)
            await brokers.registered()
            wanted = 0 if kills.get("failed", 0) > FAILURES_MAX else BATCHES * rows
            found = await _read(brokers.nameserver, wanted)
        finally:
            for number in brokers.processes:
                await brokers.kill(number)
    yield _judge(seed, rows, found, f"{count} brokers, {rows} rows a batch, kills: {kills}")


async def _live(
    directory: Path, brokers: Brokers, dice: random.Random, rows: int
) -> dict[str, int]:
    """Run the job to completion, with kills on the way."""
    kills = Counter[str]()
    while True:
        job = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.shared_sinks", "--seed"),
            *(str(dice.randrange(1 << 30)), "--rows", str(rows), "--state"),
            *(str(directory / "state.json"), "--nameserver", brokers.nameserver),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(dice.uniform(*KILL_EVERY_S)):
                if await job.wait() == 0:
                    return dict(kills)
            kills["failed"] += 1
            if kills["failed"] > FAILURES_MAX:
                return dict(kills)
            await asyncio.sleep(0.2)
        except TimeoutError:
            if sum(kills.values()) < 12 and dice.random() < 0.5:
                number = dice.randrange(len(brokers.processes))
                kills["broker"] += 1
                await brokers.kill(number)
                await asyncio.sleep(dice.uniform(*AWAY_S))
                await brokers.start(number)
            if sum(kills.values()) < 12:
                kills["job"] += 1
                if job.returncode is None:
                    job.kill()
            await job.wait()
            if job.returncode == 0:
                return dict(kills)


async def _read(nameserver: str, count: int) -> list[tuple[str, int, int, str]]:
    """Return broker, queue, offset and body of all messages, waiting a little for extra ones."""
    found: list[tuple[str, int, int, str]] = []
    async with PullConsumer(TOPIC, nameserver=nameserver) as consumer:
        async with asyncio.timeout(READ_WITHIN_S):
            while len(found) < count:
                found += _places(await consumer.pull())
        for _ in range(3):
            found += _places(await consumer.pull(timeout_s=0.3))
    return found


def _places(messages: list[ReceivedMessage]) -> Iterator[tuple[str, int, int, str]]:
    for one in messages:
        yield one.queue.broker_name, one.queue.queue_id, one.queue_offset, one.body.decode()


def _judge(seed: int, rows: int, found: list[tuple[str, int, int, str]], note: str) -> Outcome:
    times = Counter(body for *_, body in found)
    wanted = {f"{number}" for number in range(BATCHES * rows)}
    complaints = []
    if lost := wanted - times.keys():
        complaints.append(f"{len(lost)} lost, such as {min(lost)}")
    if repeated := [body for body, count in times.items() if count > 1]:
        complaints.append(f"{len(repeated)} twice, such as {min(repeated)}")
    last: dict[tuple[str, int, int], int] = {}
    for broker, queue_id, _, body in sorted(found):
        key = int(body) % KEYS
        before = last.get((broker, queue_id, key), -1)
        if before // rows > int(body) // rows:
            complaints.append(f"{body} lies behind {before}, of a later batch")
        last[broker, queue_id, key] = int(body)
    return Outcome(
        fault="shared-sinks",
        variant=f"shared sinks, {note[0]} brokers",
        seed=seed,
        acknowledged=len(wanted),
        lost=len(lost),
        repeated=len(repeated),
        complaints=complaints[:5],
        note=note,
    )


# The job.


def job(seed: int, rows: int, state: Path, nameserver: str) -> None:
    """Write the batches that are not done yet."""
    from rockhopper.pipeline.sink.publishing import publish
    from rockhopper.pipeline.sink.rules import read_rules

    dice = random.Random(seed)
    given = {"nameServer": nameserver, "topic": TOPIC, "delivery": "exactly-once", "sinkId": SINK}
    given |= {"retryIntervalMs": "100", "retries": "50", "batchBytes": "4k"}
    rules = read_rules(given, streaming=True)
    done = json.loads(state.read_text()) if state.exists() else -1
    for batch in range(done + 1, BATCHES):
        tasks = dice.randint(1, 4)
        # Rows of one key go to one task, in order, as after a shuffle by key.
        keys = [dice.randrange(tasks) for _ in range(KEYS)]
        numbers = range(batch * rows, batch * rows + rows)
        parts = [[each for each in numbers if keys[each % KEYS] == task] for task in range(tasks)]
        with ThreadPoolExecutor(tasks) as pool:
            writing = [
                pool.submit(_stage, rules, batch, number, dice.randrange(1 << 40), part)
                for number, part in enumerate(parts)
            ]
            staged = [each.result() for each in writing]
        publish(rules, staged)
        partial = state.with_suffix(".partial")
        partial.write_text(json.dumps(batch))
        partial.rename(state)


def _stage(
    rules: "SinkRules", batch: int, partition: int, attempt: int, numbers: list[int]
) -> "TaskPart":
    import pyarrow as pa

    from rockhopper.pipeline.sink.staging import PartWriter

    writer = PartWriter(rules, SINK, batch, partition, f"0.{attempt:x}", owner="the job")
    columns = {
        "body": pa.array([str(each) for each in numbers], pa.string()),
        "shardingKey": pa.array([f"k{each % KEYS}" for each in numbers], pa.string()),
    }
    return writer.write([pa.RecordBatch.from_pydict(columns)])


def main() -> None:
    """Run the job's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--nameserver", required=True)
    given = parser.parse_args()
    job(given.seed, given.rows, given.state, given.nameserver)


if __name__ == "__main__":
    main()
