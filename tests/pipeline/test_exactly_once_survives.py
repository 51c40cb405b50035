"""A streaming copy loses nothing and repeats nothing, whichever process of it is killed.

A query copies a topic that a producer keeps writing to, while the driver with all that it has
started, one of Spark's Python processes, or the broker is ended with SIGKILL at a random moment and
started again. In the end every message of the source is in the target once.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from rockhopper.client import Admin, Message, Producer
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.copying_query import SOURCE, TARGET
from tests.support.daemon import ROOT, Daemon
from tests.support.free_ports import free_ports
from tests.support.process_tree import command_line, descendants

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
]

VICTIMS = ("driver", "broker", "worker", "broker", "driver", "worker")
LAST_TRIES = 5
SEED = int(os.environ.get("ROCKHOPPER_SEED", "20261120"))


class Driver:
    """The process of the query, and what it starts."""

    def __init__(self, nameserver: str, checkpoint: Path) -> None:
        self._arguments = (nameserver, str(checkpoint))
        self._process: asyncio.subprocess.Process | None = None
        self.lines: list[str] = []

    async def start(self, *flags: str) -> None:
        """Start it, and wait until the query runs."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.copying_query",
            *self._arguments,
            *flags,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        await self._until("ready")

    async def _until(self, start: str) -> bool:
        """Read on up to a line that starts so; False if it ends before."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(900):
            while line := (await self._process.stdout.readline()).decode().strip():
                self.lines.append(line)
                if line.startswith(start):
                    return True
        return False

    async def batches(self, count: int) -> bool:
        """Wait for some batches; False if the query failed before."""
        return all([await self._until("batch") for _ in range(count)])

    async def end(self) -> int:
        """Wait until it ends by itself."""
        assert self._process is not None
        await self._until("ended")
        return await self._process.wait()

    def kill(self, *, workers_only: bool, random_source: random.Random) -> None:
        """SIGKILL for all of it, or for one of Spark's Python processes."""
        assert self._process is not None
        tree = descendants(self._process.pid)
        if workers_only:
            workers = [pid for pid in tree if b"pyspark" in command_line(pid)]
            chosen = [random_source.choice(workers)] if workers else []
        else:
            chosen = [self._process.pid, *tree]
        for pid in chosen:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    async def gone(self) -> None:
        """Wait until the driver itself has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        while await self._process.stdout.readline():
            pass
        await self._process.wait()


async def produce(nameserver: str, ends: asyncio.Event) -> int:
    """Send until told to end; what a killed broker did not answer may or may not be there."""
    number = 0
    async with Producer(nameserver, retries=0) as producer:
        while not ends.is_set():
            batch = [Message(SOURCE, b"%08d" % each) for each in range(number, number + 200)]
            number += 200
            try:
                await producer.send_batch(batch)
            except ClientError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.2)
    return number


async def stored(nameserver: str, topic: str) -> list[str]:
    """Queue, offset and body of everything in a topic, as the query writes it."""
    found: list[str] = []
    async with Admin(nameserver) as admin:
        for each in await admin.ranges(topic):
            offset = each.min_offset
            address = (await admin.masters(each.queue.broker_name))[0].address
            while offset < each.max_offset:
                fields = {
                    "topic": topic,
                    "queueId": str(each.queue.queue_id),
                    "offset": str(offset),
                }
                answer = await admin.request(address, RequestCode.BULK_PULL, fields)
                for message in decode_messages(answer.body):
                    place = f"{message.queue_id}:{message.queue_offset} "
                    found.append(("" if topic == TARGET else place) + message.body.decode())
                assert answer.ext is not None
                offset = int(answer.ext["nextBeginOffset"])
    return found


async def test_a_copy_is_exact_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    broker_port, names_port = free_ports(2)
    ports = ("--listen-port", str(broker_port), "--namesrv-port", str(names_port))
    nameserver = f"127.0.0.1:{names_port}"

    def new_broker() -> Daemon:
        return Daemon(tmp_path / "store", *ports)

    broker = await new_broker().__aenter__()
    driver = Driver(nameserver, tmp_path / "checkpoint")
    ends = asyncio.Event()
    async with Admin(nameserver) as admin:
        await admin.create_topic(SOURCE, queues=3)
        await admin.create_topic(TARGET, queues=4)
    producer = asyncio.create_task(produce(nameserver, ends))
    failures = 0
    try:
        await driver.start()
        for victim in VICTIMS:
            running = await driver.batches(chance.randint(1, 3))
            await asyncio.sleep(chance.random())
            if victim == "broker":
                await broker.__aexit__()
                broker = await new_broker().__aenter__()
            else:
                driver.kill(workers_only=victim == "worker", random_source=chance)
            if victim == "driver" or not running:
                failures += not running
                driver.kill(workers_only=False, random_source=chance)
                await driver.gone()
                await driver.start()
        ends.set()
        await producer
        driver.kill(workers_only=False, random_source=chance)
        await driver.gone()
        # Spark gives up on a Python process that does not answer within ten seconds.
        for _ in range(LAST_TRIES):
            await driver.start("--to-the-end")
            status = await driver.end()
            if status == 0:
                break
            failures += 1
        assert status == 0
        source, target = await stored(nameserver, SOURCE), await stored(nameserver, TARGET)
        print(f"{len(source)} messages, {failures} queries had failed, seed {SEED}")
        repeated = [text for text, count in Counter(target).items() if count > 1]
        assert not repeated
        assert set(source) - set(target) == set()
        assert sorted(source) == sorted(target)
        assert len(source) > 5_000
    finally:
        ends.set()
        driver.kill(workers_only=False, random_source=chance)
        await broker.__aexit__()
