"""What every subcommand shares: errors become one sentence and an exit code."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rockhopper.client.cli import main
from rockhopper.client.commands import running
from rockhopper.client.commands.running import (
    Failure,
    NoTerminal,
    choose_nameserver,
    confirm,
    nameserver_option,
    run,
)
from rockhopper.client.errors import BrokerUnreachableError, MessageRejectedError


def failing(error: BaseException) -> Coroutine[Any, Any, None]:
    async def action() -> None:
        raise error

    return action()


@pytest.fixture(autouse=True)
def _output_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "abandon_output", lambda: None)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BrokerUnreachableError("nobody there"), 1, "rockhopper: nobody there"),
        (MessageRejectedError("too large"), 2, "rockhopper: too large"),
        (ValueError("odd"), 1, "rockhopper: odd"),
        (Failure("said so"), 1, "rockhopper: said so"),
        (Failure(), 1, ""),
        (OSError(28, "no space"), 1, "rockhopper: reading or writing failed: no space"),
        (BrokenPipeError(), 0, ""),
        (KeyboardInterrupt(), 128 + signal.SIGINT, ""),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(failing(error))
    assert ended.value.code == code
    assert capsys.readouterr().err.strip() == said


def test_notes_of_an_error_are_said_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    error = BrokerUnreachableError("nobody there")
    error.add_note("2 of 3 were sent")
    with pytest.raises(SystemExit):
        run(failing(error))
    assert capsys.readouterr().err.splitlines() == [
        "rockhopper: nobody there",
        "rockhopper: 2 of 3 were sent",
    ]


@pytest.mark.parametrize("fast", [True, False])
def test_what_works_ends_without_a_word(capsys: pytest.CaptureFixture[str], fast: bool) -> None:
    run(asyncio.sleep(0), fast=fast)
    assert capsys.readouterr().err == ""


@click.group()
@nameserver_option
def group() -> None: ...


@group.command()
@nameserver_option
def ask() -> None:
    click.echo(choose_nameserver() or "none")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask"], "none"),
        (["-n", "a:1", "ask"], "a:1"),
        (["ask", "-n", "b:2"], "b:2"),
        (["-n", "a:1", "ask", "--nameserver", "b:2"], "b:2"),
    ],
)
def test_the_name_service_is_told_before_or_behind_the_subcommand(
    arguments: list[str], said: str
) -> None:
    assert CliRunner().invoke(group, arguments).output.strip() == said


def test_a_name_service_that_is_none_is_a_wrong_command_line() -> None:
    outcome = CliRunner().invoke(group, ["-n", "a:x", "ask"])
    assert outcome.exit_code == 2


@pytest.mark.parametrize(
    ("yes", "may_ask", "asks"), [(False, True, 1), (True, True, 0), (True, False, 0)]
)
def test_only_who_is_there_is_asked(
    monkeypatch: pytest.MonkeyPatch, yes: bool, may_ask: bool, asks: int
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(running, "may_ask", lambda: may_ask)
    monkeypatch.setattr(click, "confirm", lambda question, **_: asked.append(question))
    confirm("really?", yes)
    assert len(asked) == asks


def test_nothing_is_destroyed_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "may_ask", lambda: False)
    with pytest.raises(NoTerminal, match=r"^Delete all\? .* add --yes$"):
        confirm("Delete all?", False)


def test_where_nobody_can_be_asked_there_is_no_usage_banner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "may_ask", lambda: False)
    with pytest.raises(SystemExit) as ended:
        main(["topic", "purge", "orders"], prog_name="rockhopper")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("rockhopper: ")
    assert "Usage:" not in said


def test_a_refusal_names_the_context_as_the_question_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "may_ask", lambda: False)
    monkeypatch.setattr(running, "get_context_in_use", lambda: "prod")
    with pytest.raises(NoTerminal, match=r"^\[prod\] Delete all\? .* add --yes$"):
        confirm("Delete all?", False)


def answered(how: type[BaseException] | None) -> None:
    """As click does when a question is answered by Ctrl-C, or by a no."""
    try:
        if how is not None:
            raise how
    except KeyboardInterrupt:
        raise click.Abort from None
    raise click.Abort


@pytest.mark.parametrize(
    ("how", "code", "said"), [(KeyboardInterrupt, 130, "\n"), (None, 1, "Aborted!\n")]
)
def test_ctrl_c_at_a_question_is_no_no(
    monkeypatch: pytest.MonkeyPatch, how: type[BaseException] | None, code: int, said: str
) -> None:
    monkeypatch.setattr(running, "may_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: answered(how))
    ended = CliRunner().invoke(main, ["user", "remove", "ann", "-n", "127.0.0.1:1"])
    assert (ended.exit_code, ended.stderr) == (code, said)


def test_ctrl_c_ends_a_question_within_the_loop_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = []
    monkeypatch.setattr(running, "may_ask", lambda: True)
    monkeypatch.setattr(
        click, "confirm", lambda *_, **__: handlers.append(signal.getsignal(signal.SIGINT))
    )

    async def action() -> None:
        before = signal.getsignal(signal.SIGINT)
        confirm("Really?", False)
        assert signal.getsignal(signal.SIGINT) is before is not signal.default_int_handler

    run(action())
    assert handlers == [signal.default_int_handler]
