"""The command of all jobs: what it lists, imports, and ends with."""

from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs import JOBS, command_line
from rockhopper.pipeline.jobs.command_line import main


def test_help_names_every_job_and_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "import_module", lambda name: pytest.fail(name))
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    lines = [line.split()[0] for line in result.output.partition("Jobs:")[2].splitlines() if line]
    assert [name for name in lines if name in JOBS] == list(JOBS)


def test_every_job_has_a_command_of_its_name() -> None:
    context = click.Context(main)
    for name in JOBS:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
    assert main.get_command(context, "fly") is None


def test_an_unknown_job_is_a_wrong_command_line() -> None:
    result = CliRunner().invoke(main, ["fly"])
    assert result.exit_code == 2
    assert "No such command 'fly'" in result.output


def test_a_failure_is_a_sentence_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("audit")
    def audit() -> None:
        raise PipelineError("the disk is full")

    monkeypatch.setattr(command_line, "import_module", lambda _: SimpleNamespace(audit=audit))
    result = CliRunner().invoke(main, ["audit"])
    assert (result.exit_code, result.output.count("the disk is full")) == (1, 1)
    assert "Traceback" not in result.output
