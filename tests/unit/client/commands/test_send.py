"""`rockhopper send` against our broker: standard input, files, and what stops it."""

import asyncio
import base64
import json
import os
import signal
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from tests.support.command_line import CommandLine
from tests.support.hang import HANG_S
from tests.support.shell import Shell
from tests.support.turns import until


@pytest.fixture
def processes(broker: Broker) -> Shell:
    return Shell(broker.nameserver)


async def test_every_line_of_standard_input_is_a_message(
    processes: Shell, shell: CommandLine
) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1000)) + b"\n\nlast"
    sent = await processes.run("send", "orders", "-", stdin=lines)
    assert sent.out.startswith("stored 1,001 messages in orders")
    pulled = await shell.run("pull", "orders", "--json")
    found = {each["body"] for each in pulled.objects}
    assert found == {f"line {number}" for number in range(1000)} | {"last"}


async def test_lines_in_batches_to_one_queue_stay_in_order(
    processes: Shell, shell: CommandLine
) -> None:
    await shell.run("topic", "create", "orders", "--queues", "2")
    lines = b"".join(b"%d\n" % number for number in range(500))
    sent = await processes.run("send", "orders", "-", "-b", "32", "-q", "1", "--json", stdin=lines)
    assert [each["offset"] for each in sent.objects] == list(range(500))
    pulled = await shell.run("pull", "orders", "--json")
    assert [each["body"] for each in pulled.objects] == [str(number) for number in range(500)]
    assert {each["queue"] for each in pulled.objects} == {1}


async def test_a_line_is_sent_as_soon_as_it_is_written(processes: Shell) -> None:
    process = await processes.start("send", "orders", "-", "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        process.stdin.write(b"%d\n" % number)
        await process.stdin.drain()
        async with asyncio.timeout(HANG_S):
            assert json.loads(await process.stdout.readline())["topic"] == "orders"
    process.stdin.close()
    assert await process.wait() == 0


async def test_the_lines_of_a_file_are_messages_where_that_is_asked_for(
    shell: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "orders.txt"
    file.write_bytes(b"one\n\ntwo\r\nthree")
    whole = await shell.run("send", "orders", "--file", str(file))
    assert "is one message of 4 lines; --lines sends each line as a message" in whole.err
    sent = await shell.run("send", "orders", "--file", str(file), "--lines")
    assert sent.out.startswith("stored 3 messages in orders")
    pulled = await shell.run("pull", "orders", "--json")
    bodies = sorted(each["body"] for each in pulled.objects)
    assert bodies == ["one", "one\n\ntwo\r\nthree", "three", "two"]
    for wrong in (["x", "--lines"], ["--file", str(file), "--lines", "--count", "2"]):
        assert (await shell.run("send", "orders", *wrong)).code == 2


async def test_a_file_is_sent_byte_for_byte(
    processes: Shell, shell: CommandLine, tmp_path: Path
) -> None:
    content = os.urandom(5000) + b"\n\xff"
    (tmp_path / "body").write_bytes(content)
    sent = await shell.run("send", "orders", "--file", str(tmp_path / "body"), "--json")
    (message,) = (await shell.run("pull", "orders", "--json")).objects
    assert base64.b64decode(message["bodyBase64"]) == content
    shown = await shell.run("pull", "orders")
    assert "<5,002 bytes: " in shown.out
    process = await processes.start("message", sent.objects[0]["messageId"], "--raw")
    out, _ = await process.communicate()
    assert out == content


async def test_a_count_and_oneway(shell: CommandLine) -> None:
    assert (await shell.run("send", "orders", "x", "--count", "300")).out.startswith("stored 300 ")
    rated = await shell.run("send", "other", "x", "--count", "2")
    assert rated.out.endswith(" per second\n")
    oneway = await shell.run("send", "orders", "x", "--count", "50", "--oneway")
    assert oneway.out == "sent 50 messages to orders, unconfirmed (--oneway)\n"
    assert len((await shell.run("pull", "orders", "--json")).objects) == 350


async def test_a_send_that_waits_for_lines_ends_on_ctrl_c(processes: Shell) -> None:
    await processes.run("topic", "create", "orders")
    process = await processes.start("send", "orders", "-", "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b"one\n")
    async with asyncio.timeout(HANG_S):
        assert json.loads(await process.stdout.readline())["offset"] == 0
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert await process.stderr.read() == b"rockhopper: 1 message was sent before Ctrl-C\n"


async def test_a_failure_in_the_middle_says_how_much_was_sent(
    broker: Broker, processes: Shell, shell: CommandLine
) -> None:
    await processes.run("topic", "create", "orders")
    process = await processes.start("send", "orders", "-", "--queue", "0", "--timeout", "600")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"one\n")
    await process.stdin.drain()
    async with asyncio.timeout(HANG_S):
        await until(lambda: broker.store.reading.queue_range("orders", 0)[1] == 1)
        assert (await shell.run("topic", "create", "orders", "--perm", "r")).code == 0
        process.stdin.write(b"two\n")
        process.stdin.close()
        first, second = (await process.stderr.read()).decode().splitlines()
        assert await process.wait() == 1
    assert broker.address in first
    assert second == "rockhopper: 1 message was sent before the error"


async def test_a_message_is_delivered_when_it_is_told_to(shell: CommandLine) -> None:
    await shell.run("topic", "create", "orders")
    sent = await shell.run("send", "orders", "soon", "--delay", "200ms", "--json")
    assert (sent.code, sent.objects[0]["topic"]) == (0, "orders")
    assert sent.objects[0]["recallHandle"]
    async with asyncio.timeout(HANG_S):
        while not (pulled := await shell.run("pull", "orders", "--json")).out:
            pass
    (message,) = pulled.objects
    assert message["storeTime"] - message["bornTime"] >= 200
    said = await shell.run("send", "orders", "later", "--delay", "1h30m")
    assert "to be delivered at" in said.out


@pytest.mark.parametrize(
    "options",
    [("--at", "@1700000000000"), ("--delay", "5m", "--at", "@4102444800000"), ("--delay", "5")],
)
async def test_times_that_cannot_be_are_refused(
    shell: CommandLine, options: tuple[str, ...]
) -> None:
    assert (await shell.run("send", "orders", "x", *options)).code == 2


async def test_a_topic_that_is_made_by_a_send_is_told(shell: CommandLine) -> None:
    first = await shell.run("send", "ordrs", "x")
    assert first.code == 0
    assert first.err == "rockhopper: there was no topic 'ordrs': it has been created\n"
    assert (await shell.run("send", "ordrs", "x")).err == ""
    oneway = await shell.run("send", "ordrs2", "x", "--oneway")
    assert oneway.err == "rockhopper: there was no topic 'ordrs2': it has been created\n"


async def test_who_is_away_may_have_the_topic_that_is_made(
    broker: Broker, shell: CommandLine
) -> None:
    settings = {"role": "broker", "brokerName": "broker-z", "namesrvAddr": broker.nameserver}
    async with Broker.temporary(settings) as other:
        await other.announce()
    told = "rockhopper: there was no topic 'pay' on the reachable brokers: it has been created; "
    sent = await shell.run("request", "pay", "x", "--timeout", "0.1")
    assert sent.err.startswith(f"{told}not reachable: broker-z (last seen "), sent
    assert ", which may have it\n" in sent.err
