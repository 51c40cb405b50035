"""A log that ends earlier than it did: what is sent afterwards reaches every consumer."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rockhopper.broker.app import TEMPORARY_SETTINGS, Broker
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client import Admin, Consumer, Producer, PullConsumer
from rockhopper.client.received import ReceivedMessage
from tests.support.free_ports import free_ports
from tests.support.hang import HANG_S


class Restored:
    """A broker whose store can be put back to where it was."""

    def __init__(self, root: Path) -> None:
        broker, names = free_ports(2)
        ports = {"listenPort": str(broker), "namesrvPort": str(names), "httpPort": "-1"}
        self._root, self._backup = root / "store", root / "backup"
        self._settings = TEMPORARY_SETTINGS | ports | {"storePathRootDir": str(self._root)}
        self.broker = Broker(build_config(self._settings))

    async def back_up(self) -> None:
        """Keep the store as it is now; it is another run afterwards."""
        await self.broker.stop()
        shutil.copytree(self._root, self._backup)
        await self.start()

    async def restore(self) -> None:
        """Serve what was kept."""
        await self.broker.stop()
        shutil.rmtree(self._root)
        shutil.copytree(self._backup, self._root)
        await self.start()

    async def lose(self) -> None:
        """Serve an empty volume."""
        await self.broker.stop()
        shutil.rmtree(self._root)
        await self.start()

    async def start(self) -> None:
        self.broker = Broker(build_config(self._settings))
        await self.broker.start()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Restored]:
    made = Restored(tmp_path)
    await made.start()
    yield made
    await made.broker.stop()


async def send(store: Restored, first: int, count: int) -> None:
    async with Producer(nameserver=store.broker.nameserver) as producer:
        for number in range(first, first + count):
            await producer.send("orders", b"%d" % number, timeout_s=HANG_S)


async def create(store: Restored) -> None:
    async with Admin(store.broker.nameserver) as admin:
        await admin.create_topic("orders", queues=1)


class Seen:
    """The bodies that a handler was given."""

    def __init__(self) -> None:
        self.bodies: set[int] = set()
        self._came = asyncio.Event()

    async def handle(self, message: ReceivedMessage) -> None:
        self.bodies.add(int(message.body))
        self._came.set()

    async def has(self, *numbers: int) -> None:
        """Return once all of them have come."""
        async with asyncio.timeout(HANG_S):
            while not self.bodies.issuperset(numbers):
                self._came.clear()
                await self._came.wait()


def consumer(store: Restored, seen: Seen, kind: str, directory: Path) -> Consumer:
    return Consumer(
        "billing",
        "orders",
        nameserver=store.broker.nameserver,
        handler=seen.handle,
        start_from="earliest",
        orderly=kind == "orderly",
        broadcast=kind == "broadcast",
        offsets_directory=directory if kind == "broadcast" else None,
    )


@pytest.mark.parametrize("cut", [Restored.restore, Restored.lose])
@pytest.mark.parametrize("kind", ["", "orderly", "broadcast"])
async def test_a_running_consumer_skips_nothing(
    store: Restored,
    tmp_path: Path,
    cut: Callable[[Restored], Awaitable[None]],
    kind: str,
) -> None:
    await create(store)
    seen = Seen()
    async with consumer(store, seen, kind, tmp_path):
        await send(store, 0, 5)
        await seen.has(*range(5))
        await store.back_up()
        await send(store, 100, 10)
        await seen.has(*range(100, 110))
        await cut(store)
        if cut is Restored.lose:
            await create(store)
        await send(store, 200, 3)
        await seen.has(200, 201, 202)


@pytest.mark.parametrize("kind", ["", "broadcast"])
async def test_a_consumer_that_was_away_skips_nothing(
    store: Restored, tmp_path: Path, kind: str
) -> None:
    await create(store)
    await send(store, 0, 5)
    await store.back_up()
    await send(store, 100, 5)
    before, after = Seen(), Seen()
    async with consumer(store, before, kind, tmp_path):
        await before.has(*range(100, 105))
    await store.restore()
    # As many as were lost, and more: offsets alone tell nothing.
    await send(store, 200, 10)
    async with consumer(store, after, kind, tmp_path):
        await after.has(*range(200, 210))


async def test_a_pull_consumer_goes_back(store: Restored) -> None:
    await create(store)
    await send(store, 0, 5)
    async with PullConsumer("orders", nameserver=store.broker.nameserver) as consumer:
        assert len(await consumer.pull(5, timeout_s=HANG_S)) == 5
        await store.back_up()
        await send(store, 100, 5)
        seen: list[int] = []
        while len(seen) < 5:
            seen += [int(each.body) for each in await consumer.pull(5, timeout_s=HANG_S)]
        await store.restore()
        await send(store, 200, 8)
        seen.clear()
        while len(seen) < 8:
            seen += [int(each.body) for each in await consumer.pull(8, timeout_s=HANG_S)]
        assert seen == list(range(200, 208))


async def test_a_restart_alone_repeats_nothing(store: Restored) -> None:
    await create(store)
    await send(store, 0, 5)
    async with PullConsumer("orders", nameserver=store.broker.nameserver) as consumer:
        assert len(await consumer.pull(5, timeout_s=HANG_S)) == 5
        for first in (100, 200):
            await store.broker.stop()
            await store.start()
            await send(store, first, 1)
            (message,) = await consumer.pull(5, timeout_s=HANG_S)
            assert message.body == b"%d" % first


async def test_a_topic_that_is_made_again_is_read_on(store: Restored) -> None:
    await create(store)
    seen = Seen()
    nameserver = store.broker.nameserver
    async with (
        Admin(nameserver) as admin,
        Consumer("billing", "orders", nameserver=nameserver, handler=seen.handle),
    ):
        await send(store, 0, 5)
        await seen.has(*range(5))
        await admin.delete_topic("orders")
        await create(store)
        await send(store, 100, 3)
        await seen.has(100, 101, 102)
