"""`rockhopper pull` against our broker: where it begins, in which order, and how it ends."""

import asyncio
import json
import signal
import time

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer
from tests.support.command_line import CommandLine
from tests.support.hang import HANG_S
from tests.support.shell import Shell, send
from tests.support.turns import until


@pytest.fixture
def processes(broker: Broker) -> Shell:
    return Shell(broker.nameserver)


async def test_a_pull_begins_where_it_is_told_to(broker: Broker, shell: CommandLine) -> None:
    await send(broker, *(b"%d" % number for number in range(10)))

    async def bodies(*options: str) -> list[str]:
        pulled = await shell.run("pull", "orders", "--json", *options)
        return [each["body"] for each in pulled.objects]

    assert await bodies("--from", "7") == ["7", "8", "9"]
    assert await bodies("--from", "latest") == []
    assert await bodies("--from", "-1h", "--max", "2") == ["0", "1"]
    assert await bodies("--from", "@4102444800000") == []
    assert await bodies("--queue", "1") == []
    assert await bodies("--queue", "broker-a:0", "--max", "1") == ["0"]


async def test_messages_of_all_queues_come_in_the_order_of_their_storing(
    broker: Broker, shell: CommandLine
) -> None:
    async with Producer(broker.nameserver) as producer:
        for number in range(100):
            await producer.send("orders", b"%d" % number)
    found = (await shell.run("pull", "orders", "--json")).objects
    times = [each["storeTime"] for each in found]
    assert times == sorted(times)
    assert len({each["queue"] for each in found}) > 1


async def test_a_group_continues_where_its_last_pull_ended(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, *(b"%d" % number for number in range(5)))
    first = await shell.run("pull", "orders", "--group", "g", "--max", "2", "--json")
    second = await shell.run("pull", "orders", "--group", "g", "--json")
    third = await shell.run("pull", "orders", "--group", "g")
    assert [each["body"] for each in first.objects + second.objects] == list("01234")
    assert (third.code, third.out) == (0, "")
    assert third.err == "no messages in orders from there on\n"


async def some_milliseconds() -> None:
    """Two messages of one millisecond have no order."""
    end_s = time.time() + 0.002
    await until(lambda: time.time() > end_s)


async def test_a_following_pull_shows_messages_as_they_come_and_ends_on_ctrl_c(
    broker: Broker, processes: Shell
) -> None:
    there = [(b"1", 1), (b"2", 0), (b"3", 1), (b"4", 2), (b"5", 1)]
    for body, queue in there:
        await send(broker, body, queue=queue)
        await some_milliseconds()
    process = await processes.start("pull", "orders", "--from", "earliest", "--follow", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(HANG_S):
        shown = [json.loads(await process.stdout.readline())["body"] for _ in there]
        assert shown == list("12345")
        await send(broker, b"new", queue=1)
        assert json.loads(await process.stdout.readline())["body"] == "new"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert await process.stderr.read() == b""


async def test_a_following_pull_begins_with_new_messages(broker: Broker, processes: Shell) -> None:
    await send(broker, b"old")
    process = await processes.start("pull", "orders", "--follow", "--json")
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        reading = asyncio.ensure_future(process.stdout.readline())
        while not reading.done():
            await send(broker, b"new")
            await some_milliseconds()
        assert json.loads(await reading)["body"] == "new"
        process.send_signal(signal.SIGINT)
        await process.wait()


async def test_a_reader_that_goes_away_ends_a_pull_quietly(
    broker: Broker, processes: Shell
) -> None:
    async with Producer(broker.nameserver) as producer:
        for _ in range(20):
            await producer.send_batch([Message("orders", b"x" * 1000) for _ in range(100)])
    process = await processes.start("pull", "orders", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    async with asyncio.timeout(HANG_S):
        assert await process.stderr.read() == b""
        assert await process.wait() == 0


async def test_people_get_a_sentence_and_a_table(shell: CommandLine) -> None:
    sent = await shell.run("send", "orders", "hello")
    assert sent.out.startswith("stored in orders: broker-a queue ")
    pulled = await shell.run("pull", "orders")
    header, row = pulled.out.splitlines()
    assert header.split() == ["QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BODY"]
    assert row.endswith("hello")


async def test_the_last_messages_of_a_topic_and_those_that_match(
    broker: Broker, shell: CommandLine
) -> None:
    async with Producer(broker.nameserver) as producer:
        for number in range(40):
            region = "eu" if number % 10 == 0 else "us"
            body = b"%d %s" % (number, b"paid" if number % 2 else b"new")
            await producer.send("orders", body, queue=0, properties={"region": region})

    async def bodies(*options: str) -> list[str]:
        pulled = await shell.run("pull", "orders", "--json", *options)
        assert (pulled.code, pulled.err) == (0, "")
        return [each["body"] for each in pulled.objects]

    assert await bodies("--last", "2") == ["38 new", "39 paid"]
    assert await bodies("--last", "2", "--where", "region=eu") == ["20 new", "30 new"]
    assert await bodies("--last", "1", "--to", "10") == ["9 paid"]
    assert await bodies("--grep", "^1.* paid", "--max", "2") == ["1 paid", "11 paid"]
    assert await bodies("--from", "5", "--to", "7") == ["5 paid", "6 new"]
    assert await bodies("--to", "-1h") == []
    nothing = await shell.run("pull", "orders", "--to", "-1h", "--last", "3")
    assert nothing.err == "no messages in orders before that\n"


@pytest.mark.parametrize(
    "options", [("--last", "1", "--from", "0"), ("--last", "1", "--max", "1"), ("--to", "9", "-f")]
)
async def test_options_that_contradict_each_other_are_refused(
    shell: CommandLine, options: tuple[str, ...]
) -> None:
    assert (await shell.run("pull", "orders", *options)).code == 2


async def test_a_topic_that_may_not_be_read_says_so(broker: Broker, shell: CommandLine) -> None:
    await shell.run("topic", "create", "audit", "--perm", "w")
    ended = await shell.run("pull", "audit")
    assert (ended.code, ended.out) == (1, "")
    assert "no queue of topic 'audit' is readable" in ended.err
    assert "`rockhopper topic create audit --perm rw`" in ended.err
