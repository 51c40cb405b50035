"""The command ``audit``: what it prints, and how it ends."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from rockhopper.pipeline.jobs.command_line import main
from tests.support.derived_stores import write_store
from tests.support.rot import overwrite


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments, "--quiet"])


def test_audit_says_what_is_wrong_and_exits_with_1(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 50)
    options = ("--index-slots", "16", "--index-entries", "400")
    sound = run(str(store), *options)
    overwrite(store / "consumequeue" / "Topic1" / "1" / f"{0:020d}", 0, bytes(20))
    damaged = run(str(store), *options, "--json")
    dry = run(str(store), *options, "--dry-run")

    assert sound.exit_code == 0
    assert "Nothing is wrong." in sound.output
    assert damaged.exit_code == 1
    assert json.loads(damaged.output)["findings"][0]["topic"] == "Topic1"
    assert dry.output.startswith("Would audit")
    assert run(str(tmp_path / "nowhere")).exit_code == 1
    assert run(str(store), "--check", "everything").exit_code == 2
