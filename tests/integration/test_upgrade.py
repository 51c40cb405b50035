"""The store of the last release opens with the checkout, and opens there again after it."""

import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from tests.support.daemon import Daemon
from tests.support.direct import ask, pull_all, send_fields
from tests.support.released import LATEST, install
from tests.support.transactions import COMMIT, Half, end_fields, half_fields, half_of

pytestmark = pytest.mark.slow

TOPIC, PAID = "Orders", "Paid"
PLACE = {"consumerGroup": "billing", "topic": TOPIC, "queueId": "0"}
AN_HOUR_MS = 3_600_000


@dataclass
class History:
    """What the brokers of one store were told, each in its turn."""

    bodies: list[bytes] = field(default_factory=list)
    paid: list[bytes] = field(default_factory=list)
    open: list[Half] = field(default_factory=list)
    timers: int = 0
    committed: int | None = None
    """None: nothing yet, or nobody knows after a kill, which may take the last commits."""

    async def check(self, broker: Daemon) -> None:
        """Everything is there, and what waits still waits."""
        assert [each.body for each in await pull_all(broker.address, TOPIC)] == self.bodies
        if self.committed is not None:
            answer = await asked(broker, RequestCode.QUERY_CONSUMER_OFFSET, PLACE)
            assert (answer.ext or {})["offset"] == str(self.committed)
        assert metric(broker, "rockhopper_timers_pending") == self.timers
        assert metric(broker, "rocketmq_half_messages") == len(self.open)

    async def go_on(self, broker: Daemon, name: str) -> None:
        """End the transactions that are open; send, commit, begin another one and a timer."""
        for half in self.open:
            await asked(broker, RequestCode.END_TRANSACTION, end_fields(half, COMMIT))
            self.paid.append(half.unique_key.encode())
        assert [each.body for each in await pull_all(broker.address, PAID)] == self.paid
        for number in range(3):
            self.bodies.append(f"{name} {number}".encode())
            await asked(broker, RequestCode.SEND_MESSAGE, send_fields(TOPIC), self.bodies[-1])
        async with Admin(broker.nameserver) as admin:
            await admin.create_topic(PAID)
            await admin.groups.create(PLACE["consumerGroup"])
        self.committed = len(self.bodies)
        commit = PLACE | {"commitOffset": str(self.committed)}
        await asked(broker, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        at = f"TIMER_DELIVER_MS\x01{wall_clock_ms() + AN_HOUR_MS}\x02"
        await asked(broker, RequestCode.SEND_MESSAGE, send_fields(TOPIC) | {"properties": at}, b"-")
        self.timers += 1
        key = f"key of {name}"
        answer = await asked(
            broker, RequestCode.SEND_MESSAGE_V2, half_fields(PAID, key), key.encode()
        )
        self.open = [half_of(answer)]


async def asked(
    broker: Daemon, code: RequestCode, fields: dict[str, str], body: bytes = b""
) -> Command:
    """The answer, which is no refusal."""
    answer = await ask(broker.address, code, fields, body)
    assert answer.code == 0, answer.remark
    return answer


def metric(broker: Daemon, name: str) -> int:
    """The sum of a metric's values."""
    http = next(line["http"] for line in broker.lines if line["event"] == "serving")
    with urllib.request.urlopen(f"http://{http}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(name))


async def test_a_store_goes_to_the_next_release_and_back(tmp_path: Path) -> None:
    python = install(LATEST, tmp_path / "released")
    store, history = tmp_path / "store", History()
    for name, used in (("the release", python), ("the checkout", None), ("the release", python)):
        async with Daemon(store, "--http-port", "0", python=used) as broker:
            await history.check(broker)
            await history.go_on(broker, name)
            await history.check(broker)
            assert await broker.stop() == 0


async def test_a_store_that_the_release_left_when_it_was_killed_opens(tmp_path: Path) -> None:
    python = install(LATEST, tmp_path / "released")
    store, history = tmp_path / "store", History()
    async with Daemon(store, "--http-port", "0", python=python) as broker:
        await history.go_on(broker, "the release")
        await broker.kill()
    history.committed = None
    async with Daemon(store, "--http-port", "0") as broker:
        await history.check(broker)
        await history.go_on(broker, "the checkout")
        await history.check(broker)
        assert await broker.stop() == 0
