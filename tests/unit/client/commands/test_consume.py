"""`rockhopper consume` as a shell runs it: it handles signals and pipes, so in a process."""

import asyncio
import json
import os
import signal
import sys

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Producer
from tests.support.command_line import CommandLine
from tests.support.hang import HANG_S
from tests.support.shell import Shell
from tests.support.turns import until

PIPE = asyncio.subprocess.PIPE


async def start(broker: Broker, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "rockhopper.client",
            "consume",
            "orders",
            "--group",
            "billing",
            *options,
        ),
        env={**os.environ, "NAMESRV_ADDR": broker.nameserver},
        stdout=PIPE,
        stderr=PIPE,
    )


async def finish(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    async with asyncio.timeout(HANG_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def send(broker: Broker, *bodies: bytes) -> None:
    async with Producer(broker.nameserver) as producer:
        for body in bodies:
            await producer.send("orders", body, queue=0)


async def test_it_prints_what_pull_prints_and_stops_after_as_many_as_wanted(broker: Broker) -> None:
    await send(broker, b"0", b"1", b"2")
    code, out, err = await finish(await start(broker, "--max", "2", "--json"))
    assert (code, err) == (0, "")
    consumed = [json.loads(line) for line in out.splitlines()]
    shell = CommandLine(broker.nameserver)
    assert consumed == (await shell.run("pull", "orders", "--max", "2", "--json")).objects
    assert broker.tables.offsets.get("orders", "billing", 0) == 2
    _, out, _ = await finish(await start(broker, "--max", "1", "--order"))
    header, row = out.splitlines()
    assert header.split() == ["QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BODY"]
    assert row.endswith("2")


async def test_ctrl_c_ends_it_with_everything_committed(broker: Broker) -> None:
    await send(broker, b"0", b"1")
    process = await start(broker, "--json")
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        for _ in range(2):
            await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, out, err = await finish(process)
    assert (code, out) == (130, "")
    assert err == "rockhopper: 2 messages were consumed and acknowledged before Ctrl-C\n"
    assert broker.tables.offsets.get("orders", "billing", 0) == 2


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "the terminal was closed (SIGHUP)")],
)
async def test_other_signals_end_it_as_well_and_are_named(
    broker: Broker, number: signal.Signals, name: str
) -> None:
    await send(broker, b"0")
    process = await start(broker, "--json")
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        await process.stdout.readline()
    process.send_signal(number)
    code, _, err = await finish(process)
    assert code == 128 + number
    assert err == f"rockhopper: 1 message was consumed and acknowledged before {name}\n"
    assert broker.tables.offsets.get("orders", "billing", 0) == 1


@pytest.mark.parametrize("lines", [1, 3])
async def test_what_its_reader_did_not_take_is_not_acknowledged(broker: Broker, lines: int) -> None:
    await send(broker, *(b"%d" % number for number in range(50)))
    command = (
        f"{sys.executable} -m rockhopper.client consume orders --group billing | head -{lines}"
    )
    process = await asyncio.create_subprocess_shell(
        command,
        env={**os.environ, "NAMESRV_ADDR": broker.nameserver},
        stdout=PIPE,
        stderr=PIPE,
    )
    code, out, err = await finish(process)
    assert (code, err, len(out.splitlines())) == (0, "", lines)
    # The first line is the table's head.
    assert broker.tables.offsets.get("orders", "billing", 0) == lines - 1
    _, out, _ = await finish(await start(broker, "--max", "1", "--json"))
    again = json.loads(out)
    assert (again["body"], again["topic"]) == (f"{lines - 1}", "orders")


async def test_it_ends_when_its_reader_goes_though_nothing_comes(broker: Broker) -> None:
    await send(broker, b"0")
    process = await start(broker, "--json")
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    async with asyncio.timeout(HANG_S):
        assert await process.wait() == 0
        await until(lambda: broker.tables.offsets.get("orders", "billing", 0) == 1)


async def test_a_filter_chooses(broker: Broker) -> None:
    async with Producer(broker.nameserver) as producer:
        for price in range(6):
            await producer.send("orders", b"%d" % price, properties={"price": str(price)})
    _, out, _ = await finish(
        await start(broker, "--filter", "price > 3", "--max", "2", "--json", "--from", "-1h")
    )
    assert sorted(json.loads(line)["body"] for line in out.splitlines()) == ["4", "5"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--tag", "a", "--filter", "b > 1"], "exclude each other"),
        (["--filter", "b >"], "Error: "),
        (["--from", "42"], "rockhopper group reset"),
        (["--group", "a b"], "characters other than"),
    ],
)
async def test_a_wrong_command_line_is_told(
    broker: Broker, options: list[str], reason: str
) -> None:
    shell = CommandLine(broker.nameserver)
    ended = await shell.run("consume", "orders", "--group", "billing", *options)
    assert ended.code == 2
    assert reason in ended.err


async def test_a_topic_that_may_not_be_read_is_refused(broker: Broker, shell: CommandLine) -> None:
    await shell.run("topic", "create", "audit", "--perm", "w")
    refused = await Shell(broker.nameserver).run("consume", "audit", "--group", "billing")
    assert (refused.code, refused.out) == (1, "")
    assert "no queue of topic 'audit' is readable" in refused.err
