"""Options of jobs: said once, typed or given, parsed where they are typed."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rockhopper.client.network.credentials import CredentialsFile
from rockhopper.client.network.tls import TlsOptions
from rockhopper.pipeline.access import Access, get_access
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs import JOBS
from rockhopper.pipeline.jobs.command_line import main
from rockhopper.pipeline.jobs.options import (
    BrokersOptions,
    JobOptions,
    argument,
    job,
    option,
    size,
    time_ms,
    topics_option,
)
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.running import options_of


@dataclass(frozen=True)
class CountOptions(JobOptions):
    place: str = argument()
    _: KW_ONLY
    topics: Sequence[str] = topics_option()
    split_size: int | None = option("--split-size", parse=size, metavar="SIZE")
    kind: str = option("--kind", default="all", choices=["all", "some"])


@click.command()
@options_of(CountOptions)
def count(**asked: Any) -> None:
    click.echo(sorted(asked.items()))


def test_the_command_line_gets_all_fields_by_their_names() -> None:
    result = CliRunner().invoke(count, ["here", "-t", "a", "-t", "b", "--split-size", "4k"])
    assert result.output == (
        "[('as_json', False), ('dry_run', False), ('kind', 'all'), ('master', None), "
        "('place', 'here'), ('quiet', False), ('split_size', '4k'), ('topics', ('a', 'b'))]\n"
    )


def test_own_options_come_first_in_help_and_those_of_all_jobs_last() -> None:
    text = CliRunner().invoke(count, ["--help"]).output
    flags = ["--topic", "--split-size", "--kind", "--dry-run", "--json", "--master", "--quiet"]
    assert sorted(flags, key=text.index) == flags


def test_a_choice_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(count, ["here", "--kind", "most"])
    assert result.exit_code == 2
    assert "'most' is not one of 'all', 'some'" in result.output


def test_a_job_is_called_with_the_fields_of_its_options() -> None:
    @job(CountOptions)
    def run(asked: CountOptions) -> tuple[str, Sequence[str], bool]:
        return asked.place, asked.topics, asked.dry_run

    assert run("here", topics=["a"], dry_run=True) == ("here", ["a"], True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'topic'"):
        run("here", topic="a")  # type: ignore[call-arg]


def test_a_disk_that_refuses_is_named() -> None:
    @job(JobOptions)
    def run(_asked: JobOptions) -> None:
        raise PermissionError(13, "Permission denied", "/x")

    with pytest.raises(PipelineError, match="/x cannot be used"):
        run()


@pytest.mark.parametrize(("text", "expected"), [(None, None), ("", None), ("128m", 128 << 20)])
def test_a_size_is_bytes(text: str | None, expected: int | None) -> None:
    assert size("--split-size", text) == expected


def test_a_size_that_is_none_names_its_flag() -> None:
    with pytest.raises(UsageProblem, match="--split-size"):
        size("--split-size", "many")
    with pytest.raises(UsageProblem, match="at least 4096 bytes"):
        size("--split-size", "1k", 4096)


def test_a_time_is_milliseconds_or_iso() -> None:
    assert time_ms("--from", "1970-01-01T00:00:01Z") == time_ms("--from", "1000") == 1000
    with pytest.raises(UsageProblem, match="--from"):
        time_ms("--from", "yesterday-ish")


@pytest.mark.parametrize("name", [name for name in JOBS if name != "package"])
def test_every_job_says_each_of_its_options_once(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    flags = [flag for each in command.params for flag in each.opts]
    assert len(flags) == len(set(flags))
    assert {"--dry-run", "--json", "--master", "--quiet"} <= set(flags)


def test_fields_without_flags_are_for_callers_alone() -> None:
    alone = [each.name for each in fields(CountOptions) if not each.metadata]
    assert alone == ["spark", "progress"]
    assert not {each.name for each in count.params} & set(alone)


@dataclass(frozen=True)
class AskOptions(BrokersOptions):
    place: str = argument()


@job(AskOptions)
def ask(asked: AskOptions) -> tuple[str, Access]:
    return asked.place, get_access()


def test_a_job_that_asks_brokers_does_so_as_it_is_told() -> None:
    place, access = ask("here", tls=True, credentials="/al")
    assert (place, access) == ("here", Access(TlsOptions(), CredentialsFile("/al")))
