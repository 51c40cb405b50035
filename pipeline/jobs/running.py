"""What every job's command shares: its options, and how a run begins, shows itself and ends.

Exit codes: 0 done, 1 it failed or found something wrong, 2 the command line is wrong, 130 Ctrl-C.
Standard output has the result; progress and errors go to standard error.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rockhopper.client.commands.output import flush, write_json, write_line
from rockhopper.client.commands.running import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_USAGE,
    nameserver,
    nameserver_option,
)
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.disk import naming_disk_problems
from rockhopper.pipeline.jobs.progress import Progress
from rockhopper.pipeline.jobs.results import JobResult, UsageProblem, as_document

__all__ = [
    "copies_option",
    "job_options",
    "named_brokers",
    "nameserver_option",
    "nameserver_text",
    "report",
    "run_job",
    "without_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def job_options(command: _Command) -> _Command:
    """Add --dry-run, --json, --master and --quiet.

    The command gets ``dry_run``, ``as_json``, ``master`` and ``quiet``.
    """
    for add in (
        click.option("--quiet", is_flag=True, help="Show no progress."),
        click.option(
            "--master",
            metavar="URL",
            help="Spark's master; else that of spark-submit, else local[*].",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the result as one object."),
        click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing."),
    ):
        command = add(command)
    return command


def nameserver_text(default: str | None = None) -> str | None:
    """What --nameserver says, else *default*."""
    return nameserver() or default


def copies_option(command: _Command) -> _Command:
    """Add --yes, for a job that copies and would take brokers that nobody named: ``is_agreed``."""
    add = click.option(
        "--yes",
        "is_agreed",
        is_flag=True,
        help="Take the brokers at the default address without asking.",
    )
    return add(command)


def without_option(command: _Command) -> _Command:
    """Add --without, for a job that asks all brokers: ``without``."""
    add = click.option(
        "--without",
        multiple=True,
        metavar="BROKER",
        help="This broker is gone for good: do not miss it; repeatable.",
    )
    return add(command)


def named_brokers(question: str, *, is_agreed: bool, remedy: str) -> str:
    """The name services that a job copies from or to.

    Where neither --nameserver nor $NAMESRV_ADDR names any, whoever listens at the default address
    would be taken: that is asked first with *question*, in which {} is the address.

    Raises:
        click.UsageError: nobody can be asked; says to name them, to do as *remedy* says, or --yes.
    """
    from rockhopper.client.network.addresses import NAMESERVER_VARIABLE, parse_nameservers

    given = nameserver() or os.environ.get(NAMESERVER_VARIABLE)
    found = ";".join(parse_nameservers(given))
    if given or is_agreed:
        return found
    asked = question.format(found)
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{asked} No name service was given, so nobody says which brokers are meant: add "
            f"--nameserver HOST:PORT, {remedy}or --yes for those at {found}"
        )
    click.confirm(asked, abort=True, err=True)
    return found


def run_job(
    work: Callable[[Progress], JobResult], *, as_json: bool = False, quiet: bool = False
) -> None:
    """Do a job's work and print its result; ends the program where that is not a success."""
    from rockhopper.pipeline.jobs.spark import hush, stop_own_session

    hush()
    try:
        with naming_disk_problems():
            # A descriptor of its own: that of standard error is taken from Java for a while.
            with open(os.dup(2), "w") as stream:
                with Progress(stream, is_wanted=not quiet) as progress:
                    result = work(progress)
            if as_json:
                write_json(as_document(result))
            else:
                for line in result.lines():
                    write_line(line)
            flush()
            if result.warning:
                report(result.warning)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)
    except UsageProblem as error:
        report(error)
        sys.exit(EXIT_USAGE)
    except PipelineError as error:
        report(error)
        sys.exit(EXIT_REFUSED)
    finally:
        stop_own_session()
    if not result.is_good:
        sys.exit(EXIT_REFUSED)


def report(error: PipelineError | str) -> None:
    """Say on standard error what is wrong."""
    print(f"pipeline: {error}", file=sys.stderr)
