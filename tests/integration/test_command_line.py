"""`rockhopper` against our broker: in a process of its own where streams and signals matter."""

import os
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from tests.support.command_line import CommandLine
from tests.support.shell import Shell


@pytest.fixture
def processes(broker: Broker) -> Shell:
    return Shell(broker.nameserver)


async def test_a_message_goes_in_and_comes_out_with_everything_on_it(processes: Shell) -> None:
    sent = await processes.run(
        *("send", "orders", "hello", "--tag", "new", "--key", "o-1", "--key", "o-2"),
        *("--property", "region=eu=west", "--json"),
    )
    assert sent.code == 0
    (receipt,) = sent.objects
    assert receipt["status"] == "OK"
    pulled = await processes.run("pull", "orders", "--from", "earliest", "--max", "1", "--json")
    (message,) = pulled.objects
    wanted = {"topic": "orders", "key": "o-1 o-2", "tags": "new", "body": "hello"}
    assert {name: message[name] for name in wanted} == wanted
    assert message["properties"]["region"] == "eu=west"
    for name in ("queue", "offset", "messageId", "offsetMessageId"):
        assert message[name] == receipt[name]


async def test_output_that_nobody_reads_is_no_error(processes: Shell, shell: CommandLine) -> None:
    await shell.run("topic", "create", "orders")
    reader, writer = os.pipe()
    os.close(reader)
    process = await processes.start("topic", "list", stdout=writer)
    os.close(writer)
    _, error = await process.communicate()
    assert (process.returncode, error) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
async def test_output_that_cannot_be_written_is_one_sentence(
    processes: Shell, shell: CommandLine
) -> None:
    await shell.run("topic", "create", "orders")
    with open("/dev/full", "wb") as full:
        process = await processes.start("topic", "list", stdout=full)
    _, error = await process.communicate()
    assert process.returncode == 1
    assert error == b"rockhopper: reading or writing failed: No space left on device\n"


async def test_an_unknown_topic_is_one_sentence_and_exit_code_1(shell: CommandLine) -> None:
    for arguments in (["pull", "missing"], ["topic", "show", "missing"]):
        ended = await shell.run(*arguments)
        assert (ended.code, ended.out) == (1, "")
        (line,) = ended.err.splitlines()
        assert "rockhopper topic create missing" in line
