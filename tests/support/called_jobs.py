"""Jobs for the command line that only record how they are called."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rockhopper.pipeline.jobs import JOBS
from rockhopper.pipeline.jobs.command_line import main
from rockhopper.pipeline.jobs.results import JobResult


@dataclass
class Noted(JobResult):
    """The result of a called job."""

    def lines(self) -> Iterable[str]:
        """Yield one line."""
        yield "noted"


def call(
    monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str
) -> tuple[Result, dict[str, Any]]:
    """Call the job *name*; return the output, and the job's arguments if it was called."""
    asked: dict[str, Any] = {}

    def note(**given: Any) -> Noted:
        asked.update(given)
        return Noted()

    monkeypatch.setattr(f"rockhopper.pipeline.jobs.{JOBS[name].package}.job.{name}", note)
    return CliRunner().invoke(main, [name, *arguments]), asked
