"""The command ``package``."""

import json
from pathlib import Path

from click.testing import CliRunner

from rockhopper.pipeline.jobs.command_line import main


def test_it_says_what_it_wrote(tmp_path: Path) -> None:
    file = tmp_path / "it.zip"
    done = CliRunner().invoke(main, ["package", "-o", str(file), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["path"], said["bytes"]) == (str(file), file.stat().st_size)


def test_it_may_only_say_what_it_would_do(tmp_path: Path) -> None:
    file = tmp_path / "it.zip"
    done = CliRunner().invoke(main, ["package", "-o", str(file), "--dry-run"])
    assert (done.exit_code, done.stdout) == (0, f"would write {file}\n")
    assert not file.exists()


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["package", "-o", str(tmp_path)])
    assert done.exit_code == 2
    assert "is a directory" in done.stderr
