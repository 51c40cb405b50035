"""The other names of commands."""

import click
import pytest
from click.testing import CliRunner

from rockhopper.client.cli import main


@pytest.mark.parametrize(
    ("name", "other"),
    [("list", "ls"), ("show", "describe"), ("delete", "rm"), ("create", "update")],
)
def test_usual_names_work_and_help_shows_them(name: str, other: str) -> None:
    run = CliRunner().invoke
    for family in ("topic", "group"):
        assert f"{name}, {other}" in run(main, [family, "--help"]).output
        own, same = (run(main, [family, each, "--help"]).output for each in (name, other))
        assert own.replace(f" {family} {name} ", "", 1) == same.replace(
            f" {family} {other} ", "", 1
        )


def test_a_name_that_nobody_has_is_refused() -> None:
    ended = CliRunner().invoke(main, ["bench", "ls"])
    assert ended.exit_code == click.UsageError.exit_code
