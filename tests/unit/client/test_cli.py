"""Command lines that are wrong, and commands that reach nobody."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from rockhopper.client.cli import main

# Nothing listens there: a command that asked anybody would end with 1.
NOWHERE = {"NAMESRV_ADDR": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["send", "orders"], 'give one of BODY, "-" or --file'),
        (["send", "orders", "x", "--file", __file__], 'give one of BODY, "-" or --file'),
        (["send", "orders", "-", "--count", "2"], "every line is sent once"),
        (["send", "orders", "x", "--oneway", "--batch", "2"], "--oneway and --batch exclude"),
        (["send", "orders", "x", "--property", "novalue"], "NAME=VALUE"),
        (["send", "orders", "x", "--property", "KEYS=forged"], "belongs to RocketMQ"),
        (["send", "orders", "x", "--key", "two words"], "cannot be a key"),
        (["send", "orders", "x", "--key", ""], "a key is empty"),
        (["send", "orders", "x", "--tag", "a||b"], "a message has one tag"),
        (["send", "orders", "x", "--count", "0"], "--count"),
        (["topic", "delete", "orders"], "add --yes"),
        (["topic", "purge", "orders"], "add --yes"),
        (["user", "remove", "billing"], "add --yes"),
        (["pull", "orders", "--from", "yesterday"], "is not a position"),
        (["pull", "orders", "--tag", "||"], "names no tag"),
        (["pull", "orders", "--max", "0"], "--max"),
        (["pull", "orders", "--group", "two words"], "characters other than"),
        (["query", "orders"], "--key"),
        (["query", "orders", "--key", "k", "--from", "17"], "takes a time"),
        (["message", "XYZ"], "'XYZ' is not a message id"),
        (["message", "A" * 32, "--raw", "--json"], "--raw and --json exclude"),
        (["send", "a b", "x"], "the topic 'a b' contains characters other than"),
        (["pull", "a b"], "the topic 'a b' contains characters other than"),
        (["consume", "a b", "--group", "g"], "the topic 'a b' contains characters other than"),
        (["consume", "", "--group", "g"], "the topic is blank"),
        (["consume", "orders", "--group", "a b"], "the group 'a b' contains characters other than"),
        (["query", "a b", "--key", "k"], "the topic 'a b' contains characters other than"),
        (["message", "ID", "--topic", "a b"], "the topic 'a b' contains characters other than"),
        (["topic", "create", "a/b"], "characters other than"),
        (["topic", "show", "a/b"], "characters other than"),
        (["topic", "purge", "a/b", "--yes"], "characters other than"),
        (["topic", "delete", "a/b", "--yes"], "characters other than"),
        (["group", "show", "a b"], "the group 'a b' contains characters other than"),
        (["group", "lag", "a b"], "the group 'a b' contains characters other than"),
        (["group", "reset", "g", "--topic", "a b", "--to", "latest"], "the topic 'a b' contains"),
        (["group", "delete", "a b", "--yes"], "the group 'a b' contains characters other than"),
        (["dlq", "show", "a b"], "the group 'a b' contains characters other than"),
        (["dlq", "requeue", "g", "--to", "a b"], "the topic 'a b' contains characters other than"),
        (["bench", "--topic", "a b"], "the topic 'a b' contains characters other than"),
        (["topic", "create", "orders", "--attribute", "x"], "NAME=VALUE"),
        (["broker", "config", "a", "b=1"], "either show settings"),
        (["--nameserver", "host:port", "topic", "list"], "is not a port"),
        (["frobnicate"], "No such command"),
    ],
)
def test_the_mistake_is_named(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments, env=NOWHERE)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["send"],
        ["pull"],
        ["query"],
        ["message"],
        ["topic"],
        ["topic", "create"],
        ["broker", "config"],
        ["cluster"],
        ["bench"],
    ],
)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "orders", "x"],
        ["pull", "orders"],
        ["query", "orders", "--key", "k"],
        ["message", "0" * 32],
        ["topic", "list"],
        ["topic", "create", "orders"],
        ["topic", "delete", "orders", "--yes"],
        ["topic", "show", "orders"],
        ["broker", "status"],
        ["broker", "config"],
        ["cluster"],
        ["bench"],
    ],
)
def test_without_a_name_service_there_is_one_sentence_and_exit_code_1(
    arguments: list[str],
) -> None:
    result = CliRunner().invoke(main, arguments, env=NOWHERE)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "127.0.0.1:1 refused the connection" in line
    assert "check that a name server runs there" in line


def test_no_command_is_described_by_half_a_sentence() -> None:
    result = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"})
    assert "..." not in result.output.partition("Commands:")[2]


def test_help_and_sends_load_neither_rich_nor_the_broker_nor_uvloop() -> None:
    program = (
        "import sys, rockhopper.client.cli, rockhopper.client.producer; "
        "print(*({'rich', 'rockhopper.broker', 'uvloop', 'structlog'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert result.stdout.strip() == ""
