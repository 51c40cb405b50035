"""Java clients of a replica set of ours, over planned switches and over the loss of its master."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client.admin.admin import Admin
from tests.chaos.replicas.network import Host, Network
from tests.chaos.replicas.observing import Observer
from tests.chaos.replicas.set_of_replicas import SetOfReplicas, running
from tests.interop.java_client import JavaClient
from tests.support.free_ports import free_port
from tests.support.listening import listening
from tests.support.steady_sends import (
    JavaSender,
    Sent,
    answered_since,
    read_numbers,
    wall_ms,
)

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("etcd_server")]

TOPIC, QUEUES = "Steady", 4
NEVER_MS = 3_600_000
STABLE = "127.0.0.99"


class Scene:
    """A set of three that is whole, and who leads it."""

    def __init__(self, replicas: SetOfReplicas, observer: Observer) -> None:
        self.replicas, self.observer = replicas, observer

    @property
    def nameserver(self) -> str:
        return self.replicas.nameserver

    async def whole(self) -> int:
        """Wait until all are in sync; return who leads."""
        await self.observer.until(self.observer.is_whole_set, "whole")
        master = self.observer.master
        assert master is not None
        return master

    async def create_topic(self) -> None:
        async with Admin(self.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)

    async def switch(self) -> None:
        await self.whole()
        await self.observer.switch()

    async def kill_the_master(self) -> None:
        self.replicas.replicas[await self.whole()].kill()

    async def assert_all_there(self, sent: Sent) -> None:
        """Each acknowledged message is in its queue."""
        found = await read_numbers(self.observer.master_address, TOPIC, QUEUES)
        assert sent.numbers() - set(found.values()) == set()


@contextlib.asynccontextmanager
async def a_set(directory: Path, hosts: list[str], **settings: Any) -> AsyncIterator[Scene]:
    network = Network(["e0"], is_cuttable=False)
    network.hosts |= {f"r{n}": Host(f"r{n}", host) for n, host in enumerate(hosts, 1)}
    async with running(directory, network, 1, **settings) as replicas:
        addresses = {number: each.address for number, each in replicas.replicas.items()}
        async with Observer(addresses) as observer:
            scene = Scene(replicas, observer)
            await scene.whole()
            yield scene


def consume(java: JavaClient, nameserver: str, count: int) -> "Future[Any]":
    """Begin to consume; the future has what came when *count* different messages did."""
    return java.begin(
        "consume",
        nameserver=nameserver,
        topic=TOPIC,
        group="steady",
        count=count,
        timeoutMs=300_000,
    )


async def test_no_send_fails_over_planned_switches_and_the_consumer_goes_on(
    java: JavaClient, tmp_path: Path
) -> None:
    async with a_set(tmp_path, ["127.0.0.1"] * 3) as scene:
        await scene.create_topic()
        consumed = consume(java, scene.nameserver, 2000)
        # Neither repeats what failed nor asks for the route: it is passed on, or fails.
        sender = JavaSender(java, scene.nameserver, TOPIC, retries=0, pollMs=NEVER_MS)
        async with sender:
            await answered_since(sender, 0, 200)
            for _ in range(2):
                await scene.switch()
                await answered_since(sender, wall_ms(), 200)
            await answered_since(sender, 0, 2500)
        assert sender.sent.failures == []
        await scene.assert_all_there(sender.sent)
        found = await asyncio.wrap_future(consumed)
        assert len(found["messages"]) >= 2000


async def test_a_producer_goes_on_with_the_next_route_after_its_master_is_killed(
    java: JavaClient, tmp_path: Path
) -> None:
    async with a_set(tmp_path, ["127.0.0.1"] * 3) as scene:
        await scene.create_topic()
        sender = JavaSender(java, scene.nameserver, TOPIC, pollMs=1000)
        async with sender:
            await answered_since(sender, 0, 100)
            await scene.kill_the_master()
            await answered_since(sender, wall_ms(), 100)
        await scene.assert_all_there(sender.sent)


async def test_no_send_fails_while_its_master_is_stopped_in_good_order(
    java: JavaClient, tmp_path: Path
) -> None:
    async with a_set(tmp_path, ["127.0.0.1"] * 3) as scene:
        await scene.create_topic()
        sender = JavaSender(java, scene.nameserver, TOPIC, retries=0, pollMs=1000)
        async with sender:
            await answered_since(sender, 0, 200)
            await scene.replicas.replicas[await scene.whole()].stop()
            await answered_since(sender, wall_ms(), 200)
        assert sender.sent.failures == []
        await scene.assert_all_there(sender.sent)


class StableAddress:
    """As a virtual IP, or a service that finds pods by a label: where the master is."""

    def __init__(self, observer: Observer, port: int) -> None:
        self._observer, self._port = observer, port

    def serve(self) -> AbstractAsyncContextManager[int]:
        return listening(self._connected, STABLE, self._port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            host, _, port = self._observer.master_address.rpartition(":")
            inner, outer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(_copy(reader, outer), _copy(inner, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_with_a_stable_address_a_producer_needs_no_other_route_after_a_kill(
    java: JavaClient, tmp_path: Path
) -> None:
    port = free_port((1, 2))
    hosts = ["127.0.0.101", "127.0.0.102", "127.0.0.103"]
    settings: dict[str, Any] = {"listen_port": port, "brokerIP1": STABLE}
    async with a_set(tmp_path, hosts, **settings) as scene:
        async with StableAddress(scene.observer, port).serve():
            await scene.create_topic()
            sender = JavaSender(java, scene.nameserver, TOPIC, pollMs=NEVER_MS)
            async with sender:
                await answered_since(sender, 0, 100)
                await scene.kill_the_master()
                await answered_since(sender, wall_ms(), 100)
            await scene.assert_all_there(sender.sent)
