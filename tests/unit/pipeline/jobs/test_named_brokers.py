"""Jobs that copy take no brokers that nobody named, unless somebody agrees."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rockhopper.client.network.addresses import NAMESERVER_VARIABLE
from rockhopper.pipeline.jobs.archiving import command as archiving
from rockhopper.pipeline.jobs.command_line import main
from rockhopper.pipeline.jobs.replaying import command as replaying


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name servers of the jobs that were begun."""
    monkeypatch.delenv(NAMESERVER_VARIABLE, raising=False)
    begun: list[str] = []

    def note(*, nameserver: str, **_options: Any) -> None:
        begun.append(nameserver)

    monkeypatch.setattr("rockhopper.pipeline.jobs.archiving.job.archive", note)
    monkeypatch.setattr("rockhopper.pipeline.jobs.replaying.job.replay", note)
    for command in (archiving, replaying):
        monkeypatch.setattr(command, "run_asked", lambda work, _options, asked: work(**asked))
    return begun


@pytest.mark.parametrize("job", ["archive", "replay"])
def test_without_a_source_nothing_is_copied(job: str, started: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [job, str(tmp_path)])
    assert result.exit_code == 2
    assert "127.0.0.1:9876" in result.stderr
    assert "--nameserver" in result.stderr
    assert "--yes" in result.stderr
    assert started == []


@pytest.mark.parametrize("job", ["archive", "replay"])
@pytest.mark.parametrize(
    ("options", "environment", "taken"),
    [
        (["--yes"], {}, "127.0.0.1:9876"),
        (["--dry-run"], {}, "127.0.0.1:9876"),
        (["--nameserver", "rocket:1"], {}, "rocket:1"),
        ([], {NAMESERVER_VARIABLE: "rocket:2"}, "rocket:2"),
    ],
)
def test_brokers_that_somebody_named_are_taken(
    job: str,
    options: list[str],
    environment: dict[str, str],
    taken: str,
    started: list[str],
    tmp_path: Path,
) -> None:
    result = CliRunner().invoke(main, [job, str(tmp_path), *options], env=environment)
    assert result.exit_code == 0, result.output
    assert started == [taken]


@pytest.mark.parametrize(("answer", "exit_code"), [("y\n", 0), ("n\n", 1)])
def test_whoever_sits_there_is_asked(
    answer: str,
    exit_code: int,
    started: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    result = CliRunner().invoke(main, ["archive", str(tmp_path)], input=answer)
    assert "every topic of the brokers behind 127.0.0.1:9876" in result.output
    assert result.exit_code == exit_code
    assert len(started) == (exit_code == 0)
