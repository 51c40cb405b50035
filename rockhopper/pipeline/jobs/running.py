"""The common code of all job commands: options, start, progress and end of a run.

Exit codes: 0 done, 1 it failed or found something wrong, 2 the command line is wrong, 130 Ctrl-C.
Standard output has the result; progress and errors go to standard error.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from typing import Any, TypeVar

import click

from rockhopper.client.commands.output import flush, write_json, write_line
from rockhopper.client.commands.running import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_USAGE,
    NoTerminal,
    choose_nameserver,
)
from rockhopper.client.printable import make_printable
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.disk import name_disk_problems
from rockhopper.pipeline.jobs.options import JobOptions
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.results import JobResult, UsageProblem, as_document

_Command = TypeVar("_Command", bound=Callable[..., Any])


def options_of(
    options: type[JobOptions], *, is_copy: bool = False
) -> Callable[[_Command], _Command]:
    """Add the options in *options*, and --json and --quiet.

    The command receives them under the names of the fields, plus ``as_json`` and ``quiet``. With
    *is_copy*, for jobs that may copy from or to the default brokers, it also receives
    ``is_agreed``.
    """
    of_class = {each.name: each for each in fields(options)}
    decorators = []
    for part in options.__mro__[:-1]:
        if part is JobOptions and is_copy:
            decorators.append(_AGREED)
        for each in (of_class[name] for name in part.__annotations__ if name in of_class):
            decorators += _parameter(each)
            if each.name == "dry_run":
                decorators.append(_AS_JSON)
    decorators.append(_QUIET)

    def decorate(command: _Command) -> _Command:
        for add in reversed(decorators):
            command = add(command)
        return command

    return decorate


def _parameter(each: Field[Any]) -> Iterator[Callable[[_Command], _Command]]:
    if "argument" in each.metadata:
        metavar = each.metadata["argument"] or each.name.upper()
        yield click.argument(each.name, metavar=metavar, **_click(each))
    elif "flags" in each.metadata:
        yield _click_option(each)


_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one object.")
_QUIET = click.option("--quiet", is_flag=True, help="Show no progress.")
_AGREED = click.option(
    "--yes",
    "is_agreed",
    is_flag=True,
    help="Take the brokers at the default address without asking.",
)


def _click_option(each: "Field[Any]") -> Any:
    given = _click(each)
    default = given.pop("typed_default", None if "multiple" in given else each.default)
    name = given.pop("typed_name", each.name)
    return click.option(*each.metadata["flags"], name, default=default, **given)


def _click(each: "Field[Any]") -> dict[str, Any]:
    """Return click's arguments for a field, with click's types."""
    given = dict(each.metadata["click"])
    if "choices" in given:
        given["type"] = click.Choice(given.pop("choices"))
    if "least" in given:
        given["type"] = click.IntRange(given.pop("least"))
    if given.pop("is_directory", False):
        given["type"] = click.Path(file_okay=False)
    return given


def nameserver_text(*, or_default: bool = False) -> str | None:
    """Return the value of --nameserver; else None, or with *or_default* the client's default."""
    from rockhopper.client.network.addresses import parse_nameservers

    text = choose_nameserver()
    return None if text is None and not or_default else ";".join(parse_nameservers(text))


def name_brokers(question: str, *, is_agreed: bool, remedy: str) -> str:
    """Return the name servers that a job copies from or to.

    If neither --nameserver nor $NAMESRV_ADDR is set, the user must confirm the default address. The
    prompt is *question*, with the address in place of {}.

    Raises:
        NoTerminal: there is no terminal; the message suggests a name server, *remedy*, or
            --yes.
    """
    from rockhopper.client.network.addresses import NAMESERVER_VARIABLE, parse_nameservers

    given = choose_nameserver() or os.environ.get(NAMESERVER_VARIABLE)
    found = ";".join(parse_nameservers(given))
    if given or is_agreed:
        return found
    asked = question.format(found)
    if not sys.stdin.isatty():
        raise NoTerminal(
            f"{asked} No name server was given, so it is unclear which brokers are meant: add "
            f"--nameserver HOST:PORT, {remedy}or --yes for those at {found}"
        )
    click.confirm(asked, abort=True, err=True)
    return found


def run_asked(
    work: Callable[..., JobResult], options: type[JobOptions], given: dict[str, Any]
) -> None:
    """Run a job with the options that the command was *given*."""
    as_json, quiet = given.pop("as_json"), given.pop("quiet")

    def do(progress: JobProgress) -> JobResult:
        for each in fields(options):
            parse = each.metadata.get("parse")
            if parse is not None:
                given[each.name] = parse(each.metadata["flags"][0], given[each.name])
        return work(**given, progress=progress)

    run_job(do, as_json=as_json, quiet=quiet)


def run_job(
    work: Callable[[JobProgress], JobResult], *, as_json: bool = False, quiet: bool = False
) -> None:
    """Run a job and print its result; exit the program if it is not a success."""
    from rockhopper.pipeline.jobs.spark import hush, stop_own_session

    hush()
    try:
        with name_disk_problems():
            # A descriptor of its own, because standard error is redirected for Java for a while.
            with open(os.dup(2), "w") as stream:
                with JobProgress(stream, is_wanted=not quiet) as progress:
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
    """Print an error on standard error."""
    text = f"pipeline: {error}"
    print("\n".join(map(make_printable, text.split("\n"))), file=sys.stderr)
