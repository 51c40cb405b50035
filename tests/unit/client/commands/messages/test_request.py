"""`rockhopper request` and `rockhopper reply`."""

import asyncio

import pytest

from rockhopper import Admin, MessageQueue
from rockhopper.broker import Broker
from tests.support.command_line import CommandLine
from tests.support.features import needs
from tests.support.hang import HANG_S
from tests.support.shell import Shell
from tests.support.turns import until


@needs("request_reply")
async def test_a_request_is_replied_to_by_what_a_command_prints(
    broker: Broker, shell: CommandLine
) -> None:
    await shell.run("topic", "create", "words", "--queues", "1")
    # A group that has read nothing begins with what is sent after it has asked for the end.
    async with Admin(nameserver=broker.nameserver) as admin:
        await admin.groups.create("words")
        await admin.offsets.commit("words", MessageQueue("words", broker.config.broker_name, 0), 0)
    arguments = ("reply", "words", "--group", "words", "--command", "wc -c", "--max", "1")
    process = await Shell(broker.nameserver).start(*arguments)
    async with asyncio.timeout(HANG_S):
        await until(lambda: bool(broker.kernel.consumers.groups_of_topic("words")))
    asked = await shell.run("request", "words", "four", "--timeout", str(HANG_S))
    assert (asked.code, asked.out, asked.err) == (0, "4\n", "")
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert out.decode().endswith("with 2 bytes\n")


async def test_nobody_who_replies_is_one_sentence(broker: Broker, shell: CommandLine) -> None:
    await shell.run("topic", "create", "words", "--queues", "1")
    asked = await shell.run("request", "words", "four", "--timeout", "0.3")
    assert (asked.code, asked.out) == (1, "")
    assert asked.err.startswith(
        "rockhopper: the request was stored in 'words', but no consumer replied"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["request", "words"],
        ["request", "words", "x", "--raw", "--json"],
        ["reply", "words", "--group", "g"],
        ["reply", "words", "x", "--group", "g", "--command", "wc"],
        ["reply", "words", "--group", "g", "--command", "'"],
    ],
)
async def test_what_makes_no_sense_is_refused(shell: CommandLine, arguments: list[str]) -> None:
    assert (await shell.run(*arguments)).code == 2
