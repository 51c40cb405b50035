"""``rockhopper-broker store …``: the commands, and their common code.

Exit codes: 0 when all is well, 1 when damage was found or something failed, 2 for wrong usage.
"""

import contextlib
import difflib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import click

from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.broker.store.files.disk import DISK_FULL_ERRNOS
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.tools.checking import check
from rockhopper.broker.tools.dumping import DumpSelection, dump
from rockhopper.broker.tools.findings import NAMED_MAX, Findings
from rockhopper.broker.tools.output import (
    flush,
    format_count,
    size_text,
    time_text,
    write_json,
    write_line,
    write_table,
)
from rockhopper.broker.tools.progress import Bar
from rockhopper.broker.tools.showing import StoreSummary, show
from rockhopper.broker.tools.store_view import NoStoreError, StoreView
from rockhopper.protocol.times import parse_time_ms

P = ParamSpec("P")

_ROWS_MAX = 20


class TimeOrMs(click.ParamType[int]):
    """Milliseconds since 1970, or a date and time; local time if it has no zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_time_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """Inspect a store directory, repair it, back it up.

    The store may be stopped or in use. Nothing is written without --write.
    """


directory = click.argument("root", metavar="DIR", type=click.Path(path_type=Path, readable=False))
config_option = click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The store's broker.conf, for the log directory, index file sizes and delay levels.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def fail(line: str, exit_code: int = 1) -> NoReturn:
    """Print one line on standard error and exit."""
    click.echo(f"rockhopper-broker: {line}", err=True)
    sys.exit(exit_code)


@contextlib.contextmanager
def errors_in_words() -> Iterator[None]:
    """Turn errors into one line on standard error and the matching exit code."""
    try:
        yield
        flush()
    except (NoStoreError, SettingError) as error:
        fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except StoreError as error:
        fail(str(error))
    except OSError as error:
        _fail_of_disk(error)
    except KeyboardInterrupt:
        fail("interrupted", 130)


def _fail_of_disk(error: OSError) -> NoReturn:
    if error.errno in DISK_FULL_ERRNOS:
        fail(f"no space is left to write {_output()}: free some, then run this again")
    if isinstance(error, PermissionError):
        fail(
            f"{error.filename}: {(error.strerror or str(error)).lower()}: run this as the "
            "broker's user, or as a member of the group that its storeGroup names"
        )
    fail(f"{error.filename or 'the disk'}: {(error.strerror or str(error)).lower()}")


def _output() -> str:
    try:
        return os.readlink("/proc/self/fd/1")
    except OSError:
        return "standard output"


def in_words(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command with ``errors_in_words``."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with errors_in_words():
            command(*args, **kwargs)

    return run


def say_state(view: StoreView) -> None:
    """Print which store it is, and its state."""
    write_line(f"Store {view.layout.root}, {view.state()}")


@store.command("check")
@directory
@config_option
@json_option
@in_words
def check_command(root: Path, config_path: Path | None, *, as_json: bool) -> None:
    """Compare log, queues, index and tables with each other.

    Reads the whole log. Prints one line for each damage: file, place, problem, remedy. Exits with 1
    if there is any damage.
    """
    view = StoreView(root, config_path)
    findings = Findings(root, is_printed=not as_json)
    if not as_json:
        say_state(view)
    with Bar("Checking", view.log.min_offset, view.log_end()) as bar:
        checked = check(view, findings, bar.set_position)
    if as_json:
        write_json(
            {
                "store": str(root),
                "live": view.is_live,
                "clean": view.is_clean,
                "logStart": checked.log_start,
                "logEnd": checked.log_end,
                "records": checked.record_count,
                "units": checked.unit_count,
                "entries": checked.entry_count,
                "tables": checked.table_count,
                "seconds": round(checked.took_s, 3),
                "megabytesPerSecond": round(checked.megabytes_per_s, 1),
                "notes": dict(findings.notes),
                "counts": dict(findings.counts),
                "damages": [damage.json() for damage in findings.damages],
            }
        )
    else:
        found = ", ".join(f"{count:,} of kind {kind}" for kind, count in findings.counts.items())
        if sum(findings.counts.values()) > NAMED_MAX:
            write_line(f"… and more: at most {NAMED_MAX:,} are listed")
        for what, count in findings.notes.items():
            write_line(f"Not counted as damage: {count:,} {what}")
        write_line(
            f"{format_count(checked.record_count, 'record')} in "
            f"{size_text(checked.log_end - checked.log_start)} of log, "
            f"{format_count(checked.unit_count, 'queue unit')}, "
            f"{format_count(checked.entry_count, 'index entry')}, "
            f"{format_count(checked.table_count, 'table')}"
        )
        write_line(f"{checked.took_s:.1f} s, {checked.megabytes_per_s:,.0f} MB/s of log")
        write_line(f"Damage: {found}" if found else "Sound")
    flush()
    if not findings.is_sound:
        sys.exit(1)


@store.command("show")
@directory
@config_option
@click.option("-a", "--all", "show_all", is_flag=True, help="Every topic and group.")
@json_option
@in_words
def show_command(root: Path, config_path: Path | None, *, show_all: bool, as_json: bool) -> None:
    """Show the content of a store: files, topics, queues, groups, waiting messages."""
    view = StoreView(root, config_path)
    shown = show(view)
    if as_json:
        write_json({"store": str(root), "live": view.is_live, **shown.json()})
    else:
        say_state(view)
        _write_shown(shown, None if show_all else _ROWS_MAX)


def _write_shown(shown: StoreSummary, rows_max: int | None) -> None:
    log = shown.log
    write_line(f"Format    {shown.version}")
    write_line(f"Log       {', '.join(log['directories'])}")
    write_line(f"Offsets   {log['start']} to {log['end']}")
    write_line(f"Messages  {time_text(log['firstTime'])} to {time_text(log['lastTime'])}")
    waiting = shown.waiting
    write_line(
        f"Waiting   {waiting['delayed']:,} at delay levels; the log has "
        f"{format_count(waiting['timersStored'], 'timer message')}, delivered ones included"
    )
    write_line()
    write_table(
        ("FILES", "COUNT", "SIZE", "ON DISK"),
        [
            (name, f"{each['count']:,}", size_text(each["bytes"]), size_text(each["onDisk"]))
            for name, each in shown.files.items()
        ],
    )
    write_line()
    _write_rows(
        ("QUEUE", "FIRST", "NEXT", "MESSAGES", "TOPIC"),
        [
            (row.queue_id, row.first, row.next, f"{row.next - row.first:,}", row.topic)
            for row in shown.queues
        ],
        rows_max,
    )
    write_line()
    _write_rows(
        ("QUEUE", "OFFSET", "LAG", "GROUP", "TOPIC"),
        [
            (each["queue"], each["offset"], f"{each['lag']:,}", each["group"], each["topic"])
            for each in shown.groups
        ],
        rows_max,
    )


def _write_rows(
    heads: tuple[str, ...], rows: list[tuple[object, ...]], rows_max: int | None
) -> None:
    write_table(heads, rows[:rows_max])
    if rows_max is not None and len(rows) > rows_max:
        write_line(f"… and {len(rows) - rows_max:,} more: --all shows them")


@store.command("dump")
@directory
@config_option
@click.option("--topic", "topics", multiple=True, help="Only messages of this topic; repeatable.")
@click.option(
    "--from", "from_ms", type=TimeOrMs(), help="Only messages stored at this time or later."
)
@click.option("--to", "before_ms", type=TimeOrMs(), help="Only messages stored before this time.")
@click.option(
    "--from-offset",
    type=click.IntRange(0),
    default=0,
    help="Only messages at or after this log offset.",
)
@click.option("--to-offset", type=click.IntRange(0), help="Only messages before this log offset.")
@click.option("--max", "count_max", type=click.IntRange(1), help="Stop after this many messages.")
@click.option(
    "--body/--no-body", "with_body", default=True, help="Include the bodies, or leave them out."
)
@click.option(
    "--json", is_flag=True, expose_value=False, help="No effect: dump always writes JSON."
)
@in_words
def dump_command(
    root: Path,
    config_path: Path | None,
    *,
    topics: tuple[str, ...],
    from_ms: int | None,
    count_max: int | None,
    **filters: Any,
) -> None:
    """Write messages as JSON, one a line, in the order in which they were stored.

    A UTF-8 body is printed as "body", any other as "bodyBase64"; both are decompressed. A damaged
    body also has an "error". Unreadable records are skipped; 'check' reports them.
    """
    view = StoreView(root, config_path)
    wanted = DumpSelection(frozenset(topics), from_ms=from_ms or 0, **filters)
    unseen = set(topics)
    for number, message in enumerate(dump(view, wanted), 1):
        write_json(message)
        unseen.discard(message["topic"])
        if number == count_max:
            return
    known = {queue.topic for queue in view.queues}
    if slips := sorted(unseen - known):
        flush()
        fail("; ".join(_unknown(topic, known) for topic in slips))


def _unknown(topic: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(topic, known, 1)
    meant = f": did you mean {near[0]!r}?" if near else ""
    return f"the store has no message and no queue of topic {topic!r}{meant}"
