"""Java consumers of a log that ends earlier than it did: what is sent afterwards reaches them."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.client import Admin, Producer
from rockhopper.client.queues import MessageQueue
from tests.interop import apache, rockhopper
from tests.interop.bodies import hashes, sha1
from tests.interop.java_client import JavaClient
from tests.interop.rockhopper import RockhopperServer
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop


class Restored:
    """A broker whose store is put back to where it was."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.server = self._start(apache.SMALL_FILES)

    def _start(self, settings: dict[str, str]) -> RockhopperServer:
        return rockhopper.start(self._root, settings=settings)

    def back_up(self) -> None:
        """Keep the store, stopped, and serve on."""
        self.server.stop()
        shutil.copytree(self.server.store, self._root / "backup")
        self.server = self._start(self.server.settings)

    def restore(self) -> None:
        """Serve what was kept."""
        self.server.stop()
        shutil.rmtree(self.server.store)
        shutil.copytree(self._root / "backup", self.server.store)
        self.server = self._start(self.server.settings)


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.server.kill()


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_push_consumer_skips_nothing_after_a_restore(
    java: JavaClient, restored: Restored, broadcast: bool
) -> None:
    server = restored.server
    address = {"nameserver": server.nameserver, "topic": "Cut"}
    java.call("createTopic", **address, broker=server.broker_address, queues=1)
    java.call("send", **address, count=10, prefix="old")
    restored.back_up()
    waiting = java.begin(
        "consume", **address, group="cut", count=70, timeoutMs=300_000, broadcast=broadcast
    )
    java.until_assigned("cut", "Cut", [1])
    java.call("send", **address, count=20, prefix="lost")
    # By then the other one has them, too.
    java.call("consume", **address, group="another", count=30)
    if not broadcast:
        asyncio.run(until_committed(server, "cut", MessageQueue("Cut", "rockhopper", 0), 30))
    # As many as it had read, and more, are there when it comes back: its offset is beyond nothing.
    with stopped(java):
        restored.restore()
        new = [b"new %d" % number for number in range(40)]
        asyncio.run(send(server, "Cut", new))

    seen = {message["sha1"] for message in waiting.result(160)["messages"]}

    assert not {sha1(each) for each in new} - seen


@contextlib.contextmanager
def stopped(java: JavaClient) -> Iterator[None]:
    """Let the JVM stand still meanwhile."""
    os.kill(java.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(java.process.pid, signal.SIGCONT)


async def send(server: RockhopperServer, topic: str, bodies: list[bytes]) -> None:
    async with Producer(server.nameserver) as producer:
        for body in bodies:
            await producer.send(topic, body, timeout_s=HANG_S)


async def until_committed(
    server: RockhopperServer, group: str, queue: MessageQueue, offset: int
) -> None:
    """Wait until a group has come to *offset*; Java's consumers commit every five seconds."""
    async with Admin(server.nameserver) as admin, asyncio.timeout(HANG_S):
        while await admin.offsets.committed(group, queue) != offset:  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(0.05)


def test_a_topic_that_is_created_again_is_read_on(java: JavaClient, restored: Restored) -> None:
    server = restored.server
    address = {"nameserver": server.nameserver, "topic": "Again"}
    java.call("createTopic", **address, broker=server.broker_address, queues=1)
    waiting = java.begin("consume", **address, group="again", count=30, timeoutMs=300_000)
    java.until_assigned("again", "Again", [1])
    java.call("send", **address, count=20, prefix="old")
    asyncio.run(until_committed(server, "again", MessageQueue("Again", "rockhopper", 0), 20))
    java.call("deleteTopic", **address, cluster="DefaultCluster")
    java.call("createTopic", **address, broker=server.broker_address, queues=1)
    java.call("send", **address, count=10, prefix="new")

    seen = {message["sha1"] for message in waiting.result(160)["messages"]}

    assert not set(hashes("new", range(10))) - seen
