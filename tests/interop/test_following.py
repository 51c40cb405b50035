"""Our broker follows Apache's master: the same bytes, and consumers go on after the takeover."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client import Consumer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import ClientError, RequestRefusedError
from rockhopper.protocol.codes import RequestCode
from tests.interop.apache import ApacheServer
from tests.interop.bodies import hashes
from tests.interop.conftest import Launcher
from tests.interop.java_client import JavaClient
from tests.interop.reading import read_topic
from tests.interop.rockhopper import RockhopperServer
from tests.support.direct import ask, send_fields
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop

FILES = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 100),
    "mapperFileSizeBatchConsumeQueue": str(46 * 10),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
MASTER = {**FILES, "brokerRole": "ASYNC_MASTER", "brokerName": "shared"}
TOPICS = ("Plain:3", "Batches:2:queue.type=BatchCQ")
GROUP = "readers"


class Migration:
    """Apache's master, and our broker that follows it."""

    def __init__(self, launch: Launcher, java: JavaClient) -> None:
        self._launch = launch
        self._java = java
        self.master: ApacheServer = launch.apache(MASTER, topics=TOPICS)
        self.ours: RockhopperServer = self._follow({})
        self._hashes: list[str] = []
        self._sends = 0

    def _follow(self, settings: dict[str, str]) -> RockhopperServer:
        own = {**FILES, "brokerName": "shared", "followMaster": self.master.broker_address}
        return self._launch.rockhopper({**own, "followTablesInterval": "500", **settings})

    def send(self, count: int) -> None:
        """Send singles and batches to both topics, through Apache's own client."""
        for topic in ("Plain", "Batches"):
            for mode in ({}, {"mode": "batch", "batchSize": 8}):
                prefix = f"s{self._sessions()}"
                options: dict[str, Any] = {"bodySize": 300, "tags": ["red", "green"], **mode}
                self._java.call(
                    "send",
                    nameserver=self.master.nameserver,
                    topic=topic,
                    prefix=prefix,
                    count=count,
                    keys=True,
                    **options,
                )
                if topic == "Plain":
                    self._hashes += hashes(prefix, range(count), 300)

    def _sessions(self) -> int:
        self._sends += 1
        return self._sends

    def kill_and_follow_again(self) -> None:
        """Kill our broker in the middle of it."""
        self.ours.kill()
        self.ours = self._follow({"storePathRootDir": str(self.ours.store)})

    async def caught_up(self) -> None:
        """Return when our copy has all of it, in its queues too."""
        async with Admin(self.master.nameserver) as admin:

            async def ends() -> tuple[str, str, str]:
                theirs = await admin.broker_status(self.master.broker_address)
                ours = await admin.broker_status(self.ours.broker_address)
                end = ours["commitLogMaxOffset"]
                return theirs["commitLogMaxOffset"], end, ours["dispatchBehindBytes"]

            await until(ends, lambda found: found[0] == found[1] and found[2] == "0")

    async def take_over(self) -> None:
        """As docs/migrating.md says it."""
        async with Admin(self.master.nameserver) as admin:
            with pytest.raises(RequestRefusedError, match="still accepts messages"):
                await admin.take_over(self.ours.broker_address)
            closed = {"brokerPermission": "4"}
            await admin.update_broker_config(self.master.broker_address, closed)
            await self.caught_up()
            await admin.take_over(self.ours.broker_address)

            async def serves() -> bool:
                try:
                    facts = await admin.broker_status(self.ours.broker_address)
                except ClientError:
                    return False
                return "followedMaster" not in facts

            await until(serves, bool)

    def assert_same_files(self) -> None:
        """Log and queues, byte for byte."""
        for kind in ("commitlog", "consumequeue", "batchconsumequeue"):
            theirs, ours = (files_of(each.store / kind) for each in (self.master, self.ours))
            assert {name for name, data in theirs.items() if any(data)} <= ours.keys()
            for name, data in theirs.items():
                if any(data):
                    assert ours[name] == data, f"{kind}/{name}"

    def assert_all_readable(self) -> None:
        """What Apache's client reads from ours is what it sent to the other."""
        reading = read_topic(self._java, self.ours.nameserver, "Plain")
        reading.assert_whole()
        assert reading.hashes == sorted(self._hashes)


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


async def until(look: Callable[[], Any], is_right: Callable[[Any], bool]) -> None:
    deadline_s = time.monotonic() + HANG_S
    while not is_right(found := await look()):
        assert time.monotonic() < deadline_s, found
        await asyncio.sleep(0.1)


async def consume(nameserver: str, count: int) -> list[bytes]:
    """Consume so many messages of Plain, commit, and leave."""
    found = []
    async with Consumer(GROUP, "Plain", nameserver=nameserver) as consumer:
        async with asyncio.timeout(HANG_S):
            async for message in consumer:
                found.append(message.body)
                if len(found) == count:
                    break
    return found


@pytest.fixture
def migration(launch: Launcher, java: JavaClient) -> Migration:
    return Migration(launch, java)


def test_a_copy_has_the_same_bytes_and_serves_them_after_the_takeover(
    migration: Migration,
) -> None:
    async def scenario() -> None:
        await asyncio.to_thread(migration.send, 200)
        await migration.caught_up()
        seen = await consume(migration.master.nameserver, 150)
        await asyncio.to_thread(migration.send, 40)
        await migration.caught_up()
        migration.assert_same_files()
        await migration.take_over()
        migration.master.stop()
        rest = await consume(migration.ours.nameserver, 480 - 150)
        assert len({*seen, *rest}) == 480

    asyncio.run(scenario())
    migration.assert_all_readable()
    migration.ours.stop()


def test_kills_in_the_middle_cost_nothing(migration: Migration) -> None:
    async def scenario() -> None:
        for _ in range(4):
            sending = asyncio.create_task(asyncio.to_thread(migration.send, 100))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(migration.kill_and_follow_again)
            await sending
        await migration.caught_up()
        migration.assert_same_files()
        await migration.take_over()

    asyncio.run(scenario())
    migration.assert_all_readable()
    migration.master.stop()
    migration.ours.stop()


@pytest.mark.long
def test_what_waits_is_delivered_by_the_one_that_took_over(migration: Migration) -> None:
    async def scenario() -> None:
        due_ms = int(time.time() * 1000) + 20_000
        waits = {"delayed": "DELAY\x015\x02", "timed": f"TIMER_DELIVER_MS\x01{due_ms}\x02"}
        for body, wish in waits.items():
            fields = send_fields("Plain") | {"properties": f"UNIQ_KEY\x01{body}\x02{wish}"}
            address = migration.master.broker_address
            answer = await ask(address, RequestCode.SEND_MESSAGE, fields, body.encode())
            assert answer.code == 0, answer.remark
        await migration.caught_up()
        await migration.take_over()
        migration.master.stop()
        assert sorted(await consume(migration.ours.nameserver, 2)) == [b"delayed", b"timed"]

    asyncio.run(scenario())
    migration.ours.stop()
