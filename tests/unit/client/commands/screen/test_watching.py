"""Showing a list again and again."""

import asyncio
import os
import shutil
import sys

import pytest
from click.testing import CliRunner

from rockhopper.broker import Broker
from rockhopper.client.cli import main
from rockhopper.client.commands.output import write_line
from rockhopper.client.commands.running import Failure
from rockhopper.client.commands.screen import watching
from rockhopper.client.errors import BrokerUnreachableError
from tests.support.hang import HANG_S
from tests.support.shell import Shell


async def test_it_goes_on_after_an_error_unless_that_is_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages: list[list[str]] = []
    # A Failure without a text has said by itself what it is about.
    tries = iter([Failure(""), BrokerUnreachableError("away"), None, KeyboardInterrupt()])

    async def show() -> None:
        write_line("one topic")
        if (error := next(tries)) is not None:
            raise error

    def draw(lines: list[str], _title: str, _interval_s: float, *, is_first: bool) -> None:
        pages.append(lines)

    monkeypatch.setattr(watching, "draw", draw)
    with pytest.raises(KeyboardInterrupt):
        await watching.show_repeatedly(show, 0.0)
    assert pages == [["one topic"], ["one topic", "rockhopper: away"], ["one topic"]]

    async def never() -> None:
        raise BrokerUnreachableError("away")

    with pytest.raises(BrokerUnreachableError):
        await watching.show_repeatedly(never, 0.0)


def test_the_title_says_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    titles = []
    monkeypatch.setattr(watching, "show_repeatedly", lambda _show, _s, title: titles.append(title))
    monkeypatch.setattr(watching, "run", lambda _action: None)
    CliRunner().invoke(main, ["group", "lag", "billing", "--watch"], "", prog_name="rockhopper")
    assert titles == ["rockhopper group lag billing"]


def test_on_a_terminal_it_is_drawn_in_place_and_says_what_has_no_room(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(
        shutil, "get_terminal_size", lambda fallback=(80, 24): os.terminal_size((40, 6))
    )
    watching.draw([f"topic-{number}" for number in range(100)], "topic list", 2.0, is_first=False)
    drawn = capfdbinary.readouterr().out.decode()
    assert drawn.startswith("\x1b[Hevery 2 s   topic list")
    assert drawn.count("\n") == 5
    assert "topic-2" in drawn
    assert "… 97 more lines" in drawn


@pytest.mark.costly
async def test_without_a_terminal_it_writes_one_list_after_the_other(broker: Broker) -> None:
    shell = Shell(broker.nameserver)
    await shell.run("topic", "create", "orders")
    process = await shell.start("topic", "ls", "--watch", "--interval", "0.2")
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        assert [await process.stdout.readline() for _ in range(3)] == [b"orders\n"] * 3
    process.terminate()
    await process.communicate()
