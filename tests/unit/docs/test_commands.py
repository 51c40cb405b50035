"""Every command line that a page or an alert shows is one: its command and options are there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from rockhopper.broker.cli import main as broker_main
from rockhopper.client.cli import main as client_main

ROOT = Path(__file__).parents[3]
PROGRAMS = {"rockhopper": client_main, "rockhopper-broker": broker_main}
_LINE = re.compile(r"^(?:[ \w/.]*/)?(rockhopper(?:-broker)?) ")
_END = re.compile(r"^(?:[|<>&;]|\d?>)")


class Shown(NamedTuple):
    """A command line of a page."""

    page: str
    program: str
    arguments: tuple[str, ...]


def code_lines(text: str) -> Iterator[str]:
    """Lines of code blocks, fenced and indented ones, with continued ones joined."""
    is_fenced, pending = False, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        elif is_fenced or line.startswith("    "):
            pending += line.strip().removesuffix("\\")
            if not line.endswith("\\"):
                yield pending
                pending = ""


def shown_in(page: Path) -> Iterator[Shown]:
    """The command lines of a page that name no value by dots."""
    for line in code_lines(page.read_text(encoding="utf-8")):
        found = _LINE.match(line)
        if found is None or "…" in line or "[" in line:
            continue
        arguments = []
        # What stands apart behind a command says what it is for.
        command = re.split(r" {3,}", line[found.end() :])[0]
        for word in shlex.split(command, comments=True):
            if _END.match(word):
                break
            arguments.append(re.sub(r"\$\{?\w+(?:[%#:][^}]*)?\}?", "10.0.0.1:10911", word))
        yield Shown(str(page.relative_to(ROOT)), found[1], tuple(arguments))


def told_in(alerts: Path) -> Iterator[Shown]:
    """The command lines that alerts end with."""
    for command in re.findall(r"rockhopper ([^\n\"]+)\"\n", alerts.read_text(encoding="utf-8")):
        filled_in = re.sub(r"\{\{.+?\}\}", "billing", command)
        yield Shown(alerts.name, "rockhopper", tuple(shlex.split(filled_in)))


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOLD = list(told_in(ROOT / "docker" / "monitoring" / "alerts.yml"))
SHOWN = [*(shown for page in PAGES for shown in shown_in(page)), *TOLD]


@pytest.fixture(autouse=True)
def nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands read their options, and do nothing."""

    def disarm(command: click.Command) -> None:
        monkeypatch.setattr(command, "callback", None)
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                disarm(inner)

    for program in PROGRAMS.values():
        disarm(program)


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 60
    assert TOLD
    assert {shown.program for shown in SHOWN} == set(PROGRAMS)


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: " ".join(shown.arguments[:4]))
def test_the_command_is_there(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        PROGRAMS[shown.program].main(list(shown.arguments), standalone_mode=False)
    except click.UsageError as error:
        said = error.format_message()
        if "does not exist" not in said and "No such file" not in said:
            pytest.fail(f"{shown.page}: {said}")
