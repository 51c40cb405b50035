"""`rockhopper` against our broker: in a process of its own where streams and signals matter."""

import asyncio
import base64
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer
from tests.support.command_line import CommandLine, Ended
from tests.support.hang import HANG_S
from tests.support.turns import until


@dataclass(frozen=True)
class Shell:
    """Starts commands against one broker."""

    nameserver: str

    async def start(self, *arguments: str, **streams: Any) -> asyncio.subprocess.Process:
        environment = {**os.environ, "NAMESRV_ADDR": self.nameserver}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rockhopper.client", *arguments),
            env=environment,
            **{"stdin": pipe, "stdout": pipe, "stderr": pipe, **streams},
        )

    async def run(self, *arguments: str, stdin: bytes = b"") -> Ended:
        process = await self.start(*arguments)
        async with asyncio.timeout(HANG_S):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        assert "Traceback" not in err.decode()
        return Ended(process.returncode, out.decode(), err.decode())


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.nameserver)


@pytest.fixture
def commands(broker: Broker) -> CommandLine:
    """The same without processes, for what was tried with one already."""
    return CommandLine(broker.nameserver)


async def send(broker: Broker, *bodies: bytes, queue: int = 0, topic: str = "orders") -> None:
    async with Producer(broker.nameserver) as producer:
        for body in bodies:
            await producer.send(topic, body, queue=queue)


async def test_a_message_goes_in_and_comes_out_with_everything_on_it(shell: Shell) -> None:
    sent = await shell.run(
        *("send", "orders", "hello", "--tag", "new", "--key", "o-1", "--key", "o-2"),
        *("--property", "region=eu=west", "--json"),
    )
    assert sent.code == 0
    (receipt,) = sent.objects
    assert receipt["status"] == "OK"
    pulled = await shell.run("pull", "orders", "--from", "earliest", "--max", "1", "--json")
    (message,) = pulled.objects
    wanted = {"topic": "orders", "key": "o-1 o-2", "tags": "new", "body": "hello"}
    assert {name: message[name] for name in wanted} == wanted
    assert message["properties"]["region"] == "eu=west"
    for name in ("queue", "offset", "messageId", "offsetMessageId"):
        assert message[name] == receipt[name]


async def test_people_get_a_sentence_and_a_table(commands: CommandLine) -> None:
    sent = await commands.run("send", "orders", "hello")
    assert sent.out.startswith("stored in orders: broker-a queue ")
    pulled = await commands.run("pull", "orders")
    header, row = pulled.out.splitlines()
    assert header.split() == ["QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BODY"]
    assert row.endswith("hello")


async def test_every_line_of_standard_input_is_a_message(
    shell: Shell, commands: CommandLine
) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1000)) + b"\n\nlast"
    sent = await shell.run("send", "orders", "-", stdin=lines)
    assert sent.out.startswith("stored 1,001 messages in orders")
    pulled = await commands.run("pull", "orders", "--json")
    found = {each["body"] for each in pulled.objects}
    assert found == {f"line {number}" for number in range(1000)} | {"last"}


async def test_lines_in_batches_to_one_queue_stay_in_order(
    shell: Shell, commands: CommandLine
) -> None:
    await commands.run("topic", "create", "orders", "--queues", "2")
    lines = b"".join(b"%d\n" % number for number in range(500))
    sent = await shell.run("send", "orders", "-", "-b", "32", "-q", "1", "--json", stdin=lines)
    assert [each["offset"] for each in sent.objects] == list(range(500))
    pulled = await commands.run("pull", "orders", "--json")
    assert [each["body"] for each in pulled.objects] == [str(number) for number in range(500)]
    assert {each["queue"] for each in pulled.objects} == {1}


async def test_a_line_is_sent_as_soon_as_it_is_written(shell: Shell) -> None:
    process = await shell.start("send", "orders", "-", "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        process.stdin.write(b"%d\n" % number)
        await process.stdin.drain()
        async with asyncio.timeout(HANG_S):
            assert json.loads(await process.stdout.readline())["topic"] == "orders"
    process.stdin.close()
    assert await process.wait() == 0


async def test_a_file_is_sent_byte_for_byte(
    shell: Shell, commands: CommandLine, tmp_path: Path
) -> None:
    content = os.urandom(5000) + b"\n\xff"
    (tmp_path / "body").write_bytes(content)
    sent = await commands.run("send", "orders", "--file", str(tmp_path / "body"), "--json")
    (message,) = (await commands.run("pull", "orders", "--json")).objects
    assert base64.b64decode(message["bodyBase64"]) == content
    shown = await commands.run("pull", "orders")
    assert "<5,002 bytes: " in shown.out
    process = await shell.start("message", sent.objects[0]["messageId"], "--raw")
    out, _ = await process.communicate()
    assert out == content


async def test_a_count_and_oneway(commands: CommandLine) -> None:
    assert (await commands.run("send", "orders", "x", "--count", "300")).out.startswith(
        "stored 300 "
    )
    oneway = await commands.run("send", "orders", "x", "--count", "50", "--oneway")
    assert oneway.out == "sent 50 messages to orders, unconfirmed (--oneway)\n"
    assert len((await commands.run("pull", "orders", "--json")).objects) == 350


async def test_a_pull_begins_where_it_is_told_to(broker: Broker, commands: CommandLine) -> None:
    await send(broker, *(b"%d" % number for number in range(10)))

    async def bodies(*options: str) -> list[str]:
        pulled = await commands.run("pull", "orders", "--json", *options)
        return [each["body"] for each in pulled.objects]

    assert await bodies("--from", "7") == ["7", "8", "9"]
    assert await bodies("--from", "latest") == []
    assert await bodies("--from", "-1h", "--max", "2") == ["0", "1"]
    assert await bodies("--from", "@4102444800000") == []
    assert await bodies("--queue", "1") == []
    assert await bodies("--queue", "broker-a:0", "--max", "1") == ["0"]


async def test_messages_of_all_queues_come_in_the_order_of_their_storing(
    broker: Broker, commands: CommandLine
) -> None:
    async with Producer(broker.nameserver) as producer:
        for number in range(100):
            await producer.send("orders", b"%d" % number)
    found = (await commands.run("pull", "orders", "--json")).objects
    times = [each["storeTime"] for each in found]
    assert times == sorted(times)
    assert len({each["queue"] for each in found}) > 1


async def test_a_group_continues_where_its_last_pull_ended(
    broker: Broker, commands: CommandLine
) -> None:
    await send(broker, *(b"%d" % number for number in range(5)))
    first = await commands.run("pull", "orders", "--group", "g", "--max", "2", "--json")
    second = await commands.run("pull", "orders", "--group", "g", "--json")
    third = await commands.run("pull", "orders", "--group", "g")
    assert [each["body"] for each in first.objects + second.objects] == list("01234")
    assert (third.code, third.out) == (0, "")
    assert third.err == "no messages in orders from there on\n"


async def test_a_following_pull_shows_messages_as_they_come_and_ends_on_ctrl_c(
    broker: Broker, shell: Shell
) -> None:
    await send(broker, b"old")
    process = await shell.start("pull", "orders", "--follow", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(HANG_S):
        assert json.loads(await process.stdout.readline())["body"] == "old"
        await send(broker, b"new", queue=1)
        assert json.loads(await process.stdout.readline())["body"] == "new"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert await process.stderr.read() == b""


async def test_a_send_that_waits_for_lines_ends_on_ctrl_c(shell: Shell) -> None:
    process = await shell.start("send", "orders", "-", "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b"one\n")
    async with asyncio.timeout(HANG_S):
        assert json.loads(await process.stdout.readline())["offset"] == 0
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert await process.stderr.read() == b"rockhopper: 1 message was sent before Ctrl-C\n"


async def test_a_reader_that_goes_away_ends_a_pull_quietly(broker: Broker, shell: Shell) -> None:
    async with Producer(broker.nameserver) as producer:
        for _ in range(20):
            await producer.send_batch([Message("orders", b"x" * 1000) for _ in range(100)])
    process = await shell.start("pull", "orders", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    async with asyncio.timeout(HANG_S):
        assert await process.stderr.read() == b""
        assert await process.wait() == 0


async def test_output_that_nobody_reads_is_no_error(shell: Shell, commands: CommandLine) -> None:
    await commands.run("topic", "create", "orders")
    reader, writer = os.pipe()
    os.close(reader)
    process = await shell.start("topic", "list", stdout=writer)
    os.close(writer)
    _, error = await process.communicate()
    assert (process.returncode, error) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
async def test_output_that_cannot_be_written_is_one_sentence(
    shell: Shell, commands: CommandLine
) -> None:
    await commands.run("topic", "create", "orders")
    with open("/dev/full", "wb") as full:
        process = await shell.start("topic", "list", stdout=full)
    _, error = await process.communicate()
    assert process.returncode == 1
    assert error == b"rockhopper: reading or writing failed: No space left on device\n"


async def test_messages_are_found_by_key_and_id(commands: CommandLine) -> None:
    await commands.run("send", "orders", "first", "--key", "k")
    sent = await commands.run("send", "orders", "second\nline", "--key", "k", "--json")
    found = await commands.run("query", "orders", "--key", "k", "--json")
    assert [each["body"] for each in found.objects] == ["second\nline", "first"]
    assert len((await commands.run("query", "orders", "--key", "k")).out.splitlines()) == 3
    nothing = await commands.run("query", "orders", "--key", "none")
    assert (nothing.code, nothing.out) == (0, "")
    for name in ("messageId", "offsetMessageId"):
        shown = await commands.run("message", sent.objects[0][name])
        assert shown.out.endswith("\nsecond\nline\n")
    assert (await commands.run("message", "0" * 32)).code == 1


async def test_topics_are_made_shown_and_deleted(broker: Broker, commands: CommandLine) -> None:
    created = await commands.run("topic", "create", "orders", "--queues", "3")
    assert created.out == f"orders has 3 queues on broker-a ({broker.address})\n"
    await send(broker, b"x", queue=2)
    assert (await commands.run("topic", "list")).out == "orders\n"
    assert "TBW102" in (await commands.run("topic", "list", "--all")).out
    shown = (await commands.run("topic", "show", "orders", "--json")).objects
    assert [(each["queue"], each["maxOffset"]) for each in shown] == [(0, 0), (1, 0), (2, 1)]
    assert "1 message in 3 queues" in (await commands.run("topic", "show", "orders")).out
    assert (await commands.run("topic", "delete", "orders")).code == 0
    again = await commands.run("topic", "delete", "orders")
    assert (again.code, again.err) == (1, "rockhopper: there is no topic 'orders' to delete\n")


async def test_a_broker_tells_its_state_and_settings(broker: Broker, commands: CommandLine) -> None:
    (status,) = (await commands.run("broker", "status", "--json")).objects
    assert (status["broker"], status["brokerVersionDesc"]) == ("broker-a", "V5_3_3")
    assert "V5_3_3" in (await commands.run("broker", "status")).out
    changed = await commands.run("broker", "config", "defaultTopicQueueNums=3")
    assert (changed.code, changed.out) == (0, "defaultTopicQueueNums=3\n")
    unknown = await commands.run("broker", "config", "noSuchSetting")
    assert (unknown.code, unknown.err) == (1, "rockhopper: broker-a has no setting noSuchSetting\n")
    (listed,) = (await commands.run("cluster", "--json")).objects
    assert (listed["address"], listed["error"]) == (broker.address, None)
    assert broker.address in (await commands.run("cluster")).out


async def test_a_benchmark_measures_and_leaves_nothing_behind(commands: CommandLine) -> None:
    measured = (await commands.run("bench", "--count", "500", "--json")).objects
    assert [each["messages"] for each in measured] == [500, 512, 1012]
    assert all(each["messagesPerSecond"] > 0 for each in measured)
    assert (await commands.run("topic", "list")).out == ""


async def test_an_unknown_topic_is_one_sentence_and_exit_code_1(commands: CommandLine) -> None:
    for arguments in (["pull", "missing"], ["topic", "show", "missing"]):
        ended = await commands.run(*arguments)
        assert (ended.code, ended.out) == (1, "")
        (line,) = ended.err.splitlines()
        assert "rockhopper topic create missing" in line


async def test_a_failure_in_the_middle_says_how_much_was_sent(broker: Broker, shell: Shell) -> None:
    process = await shell.start("send", "orders", "-", "--queue", "0", "--timeout", "1")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"one\n")
    await process.stdin.drain()
    async with asyncio.timeout(HANG_S):
        await until(lambda: broker.store.queue_range("orders", 0)[1] == 1)
        await broker.stop()
        process.stdin.write(b"two\n")
        process.stdin.close()
        first, second = (await process.stderr.read()).decode().splitlines()
        assert await process.wait() == 1
    assert broker.address in first
    assert second == "rockhopper: 1 message was sent before that"
