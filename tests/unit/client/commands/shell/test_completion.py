"""What a shell is told to complete."""

import asyncio

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from rockhopper.broker import Broker
from rockhopper.client.cli import main
from rockhopper.client.commands.shell.completion import PROGRAMS
from tests.support.command_line import CommandLine
from tests.support.shell import consume, send


async def words(*arguments: str) -> list[str]:
    """Complete the last of *arguments*."""
    complete = ShellComplete(main, {}, "rockhopper", "_ROCKHOPPER_COMPLETE")
    found = await asyncio.to_thread(complete.get_completions, list(arguments[:-1]), arguments[-1])
    return [each.value for each in found]


async def test_topics_groups_and_brokers_are_those_that_there_are(
    broker: Broker, shell: CommandLine
) -> None:
    await shell.run("topic", "create", "orders")
    await shell.run("topic", "create", "audit")
    await send(broker, b"x")
    await consume(broker, 1)
    place = ("-n", broker.nameserver)
    assert await words("topic", "show", *place, "o") == ["orders"]
    assert await words(*place, "pull", "a") == ["audit"]
    assert await words("group", "reset", *place, "b") == ["billing"]
    assert await words("consume", "orders", *place, "--group", "b") == ["billing"]
    assert await words("topic", "purge", *place, "%RETRY%") == ["%RETRY%billing"]
    assert await words("user", "add", *place, "--broker", "b") == ["broker-a"]


async def test_what_a_command_cannot_take_is_not_offered(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, b"x")
    await consume(broker, 1)
    place = ("-n", broker.nameserver)
    assert await words("pull", *place, "") == ["orders"]
    assert await words("dlq", "requeue", *place, "") == []
    assert await words("broker", "config", *place, "flushDiskT") == ["flushDiskType"]


async def test_values_are_those_that_an_option_takes(broker: Broker, shell: CommandLine) -> None:
    await shell.run("topic", "create", "orders", "--queues", "3")
    place = ("-n", broker.nameserver)
    in_reset = ("group", "reset", "billing", *place, "--topic", "orders")
    assert await words(*in_reset, "--queue", "") == ["0", "1", "2"]
    assert await words("pull", *place, "orders", "--queue=") == ["0", "1", "2"]
    assert await words("pull", *place, "--queue", "broker-a:") == []
    named = await words("pull", *place, "orders", "--queue", "broker-a:")
    assert named == ["broker-a:0", "broker-a:1", "broker-a:2"]
    assert await words("pull", *place, "nowhere", "--queue", "") == []
    assert await words(*in_reset, "--to", "") == ["earliest", "latest", "-30m", "-1h", "-1d"]
    assert await words("query", "orders", "k", "--from", "") == ["-30m", "-1h", "-1d"]
    assert await words("pull", "orders", "--from=l") == ["latest"]


async def test_nobody_to_ask_is_silence(capfd: pytest.CaptureFixture[str]) -> None:
    assert await words("topic", "show", "-n", "127.0.0.1:1", "o") == []
    assert await words("group", "show", "-n", "no place", "o") == []
    assert capfd.readouterr().err == ""


async def test_commands_and_their_options_are_completed() -> None:
    assert await words("to") == ["top", "topic"] or set(await words("to")) == {"top", "topic"}
    assert "--last" in await words("pull", "orders", "--l")


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_shell_gets_its_script(shell_name: str, program: str) -> None:
    ended = CliRunner().invoke(main, ["completion", shell_name, program])
    assert ended.exit_code == 0
    assert f"_{program.replace('-', '_').upper()}_COMPLETE" in ended.output
    assert "%(" not in ended.output
