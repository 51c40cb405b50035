"""Producers go on while the daemon is killed and started again: in order, and as decided."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.client import (
    Admin,
    ClientError,
    Message,
    Producer,
    PullConsumer,
    TransactionProducer,
)
from rockhopper.client.received import ReceivedMessage
from tests.support.daemon import Daemon
from tests.support.features import needs
from tests.support.hang import HANG_S

pytestmark = pytest.mark.costly


class Restarted:
    """A daemon that can be killed and comes back at the same addresses."""

    def __init__(self, store: Path, *options: str) -> None:
        self._store = store
        self._options = options
        self._daemon = Daemon(store, *options)

    async def start(self) -> None:
        await self._daemon.__aenter__()

    @property
    def nameserver(self) -> str:
        return self._daemon.nameserver

    async def kill(self) -> None:
        await self._daemon.__aexit__()

    async def restart(self) -> None:
        """Kill it, and start it on the same store and ports."""
        broker, nameserver = (
            address.rpartition(":")[2]
            for address in (self._daemon.address, self._daemon.nameserver)
        )
        await self.kill()
        ports = ("--listen-port", broker, "--namesrv-port", nameserver)
        self._daemon = Daemon(self._store, *self._options, *ports)
        await self.start()


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Restarted]:
    checks = ("transactionTimeOut=100", "transactionCheckInterval=100")
    daemon = Restarted(tmp_path, *(part for check in checks for part in ("--set", check)))
    await daemon.start()
    yield daemon
    await daemon.kill()


async def read_all(nameserver: str, topic: str) -> list[ReceivedMessage]:
    """Read until nothing comes for a while."""
    messages: list[ReceivedMessage] = []
    async with PullConsumer(topic, nameserver=nameserver) as consumer:
        while found := await consumer.pull(1000, timeout_s=0.7):
            messages += found
    return messages


async def create(nameserver: str, topic: str) -> None:
    async with Admin(nameserver) as admin:
        await admin.create_topic(topic, queues=4)


async def test_keys_keep_their_order_while_the_broker_is_killed(daemon: Restarted) -> None:
    await create(daemon.nameserver, "orders")
    stored = 0
    enough = asyncio.Event()

    async def send(producer: Producer, key: int) -> None:
        nonlocal stored
        for numbers in batches(200, 10):
            await asyncio.gather(
                *(
                    producer.send(
                        Message("orders", b"%d" % number, keys=[str(key)], sharding_key=f"k{key}")
                    )
                    for number in numbers
                )
            )
            stored += len(numbers)
            if stored >= 300:
                enough.set()

    async with Producer(daemon.nameserver, timeout_s=HANG_S) as producer:
        sends = [asyncio.create_task(send(producer, key)) for key in range(5)]
        await enough.wait()
        await daemon.restart()
        await asyncio.gather(*sends)
    by_key: dict[str, list[int]] = defaultdict(list)
    for message in await read_all(daemon.nameserver, "orders"):
        by_key[message.keys[0]].append(int(message.body))
    for numbers in by_key.values():
        # A message under way at the kill may be there twice, but in its place.
        assert [number for number, _ in itertools.groupby(numbers)] == list(range(200))
    assert len(by_key) == 5


def batches(count: int, size: int) -> list[range]:
    return [range(start, start + size) for start in range(0, count, size)]


@needs("transactions")
async def test_transactions_end_as_decided_while_the_broker_is_killed_twice(
    daemon: Restarted,
) -> None:
    await create(daemon.nameserver, "payments")
    decided: dict[str, str] = {}
    begun = 0

    async def check(message: ReceivedMessage) -> str:
        return decided.get(message.keys[0], "rollback")

    async def pay(producer: TransactionProducer, number: int) -> None:
        nonlocal begun
        key = f"p-{number}"
        begun += 1
        try:
            async with producer.transaction(Message("payments", key.encode(), keys=[key])) as paid:
                decided[key] = ("commit", "rollback", "commit")[number % 3]
                if number % 3 == 2:
                    paid.leave_unknown()
                elif number % 3 == 1:
                    paid.roll_back()
        except ClientError:
            assert key not in decided

    async def pay_all(producer: TransactionProducer, first: int) -> None:
        for number in range(first, 300, 10):
            await pay(producer, number)

    async with TransactionProducer(
        "payers", check=check, nameserver=daemon.nameserver, timeout_s=5
    ) as producer:
        work = [asyncio.create_task(pay_all(producer, first)) for first in range(10)]
        for goal in (60, 150):
            while begun < goal:  # noqa: ASYNC110  counted up by the transactions
                await asyncio.sleep(0.005)
            await daemon.restart()
        await asyncio.gather(*work)
        expected = sorted(key for key, how in decided.items() if how == "commit")
        found: list[str] = []
        async with (
            asyncio.timeout(HANG_S),
            PullConsumer("payments", nameserver=daemon.nameserver) as consumer,
        ):
            while len(found) < len(expected):
                found += [each.body.decode() for each in await consumer.pull(timeout_s=1)]
            found += [each.body.decode() for each in await consumer.pull(timeout_s=1)]
    assert sorted(found) == expected
    assert len(expected) > 150
