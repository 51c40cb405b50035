"""Jobs that are called by the command line and only note how."""

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
    """What such a job returns."""

    def lines(self) -> Iterable[str]:
        """One."""
        yield "noted"


def call(
    monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str
) -> tuple[Result, dict[str, Any]]:
    """Call the job *name*; what was printed, and what the job was asked for, if it was called."""
    asked: dict[str, Any] = {}

    def note(**given: Any) -> Noted:
        asked.update(given)
        return Noted()

    monkeypatch.setattr(f"rockhopper.pipeline.jobs.{JOBS[name].package}.job.{name}", note)
    return CliRunner().invoke(main, [name, *arguments]), asked
