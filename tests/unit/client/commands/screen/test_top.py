"""`rockhopper top`: once, for programs, and on a terminal."""

import asyncio
import os
import pty
import re

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin
from rockhopper.client.errors import BrokerUnreachableError
from rockhopper.client.network.addresses import BrokerAddress
from tests.support.command_line import CommandLine
from tests.support.hang import HANG_S
from tests.support.shell import Shell, consume, send


async def test_once_it_measures_an_interval_and_ends(broker: Broker, shell: CommandLine) -> None:
    await send(broker, *[b"x"] * 5)
    await consume(broker, 2)
    shown = await shell.run("top", "--once", "--interval", "0.2")
    assert (shown.code, shown.err) == (0, "")
    assert ["TOPIC", "IN/S", "OUT/S", "SENT", "GROUPS"] in shown.rows
    assert ["orders", "0.0", "0.0", "5", "1"] in shown.rows
    assert re.search(r"^billing +3  [\d.]+ s +\+0 +0\.0 +0  orders$", shown.out, re.MULTILINE)
    (told,) = (await shell.run("top", "--once", "--json", "--interval", "0.2")).objects
    (topic,) = told["topics"]
    assert topic == {
        "topic": "orders",
        "inPerSecond": 0.0,
        "outPerSecond": 0.0,
        "sent": 5,
        "groups": ["billing"],
    }
    (group,) = told["groups"]
    assert (told["brokers"], told["lag"], group["lag"]) == (1, 3, 3)
    # Sent before the interval began.
    assert group["lagSeconds"] >= 0.2


async def test_without_a_terminal_it_goes_on_line_by_line(broker: Broker) -> None:
    process = await Shell(broker.nameserver).start("top", "--json", "--interval", "0.2")
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        assert all([(await process.stdout.readline()).endswith(b"}\n") for _ in range(2)])
    process.terminate()
    await process.communicate()


@pytest.mark.parametrize(
    ("options", "said", "samples"),
    [((), ["away", "gone", "enough"], 1), (("--once",), ["away"], 0)],
)
async def test_without_a_terminal_a_broker_that_is_away_is_a_line(
    shell: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    said: list[str],
    samples: int,
) -> None:
    brokers = Admin.brokers
    outcomes = iter([None, BrokerUnreachableError("away"), None, BrokerUnreachableError("gone")])

    async def by_turns(admin: Admin, *, with_left_out: bool = False) -> list[BrokerAddress]:
        # Who is silent is asked first.
        if not with_left_out and (error := next(outcomes, ValueError("enough"))) is not None:
            raise error
        return await brokers(admin, with_left_out=with_left_out)

    monkeypatch.setattr(Admin, "brokers", by_turns)
    told = await shell.run("top", "--json", "--interval", "0.2", *options)
    assert told.err.splitlines() == [f"rockhopper: {each}" for each in said]
    assert len(told.objects) == samples


async def test_on_a_terminal_keys_sort_it_and_q_leaves_it_as_it_was(broker: Broker) -> None:
    await send(broker, b"x")
    ours, its = pty.openpty()
    process = await Shell(broker.nameserver).start("top", stdin=its, stdout=its)
    os.close(its)
    seen = b""

    async def until(mark: bytes) -> None:
        nonlocal seen
        async with asyncio.timeout(HANG_S):
            while mark not in seen:
                seen += await asyncio.to_thread(os.read, ours, 4096)

    await until(b"by in")
    await until(b"orders")
    os.write(ours, b"l")
    await until(b"by lag")
    os.write(ours, b"q")
    # Out of the other screen, and the cursor is back.
    await until(b"\x1b[?25h\x1b[?1049l")
    await process.wait()
    assert process.returncode == 0
    assert re.search(rb"\x1b\[\?1049h", seen)
    os.close(ours)
