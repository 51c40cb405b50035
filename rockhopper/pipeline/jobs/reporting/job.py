"""The job ``report``: count in tasks, query the lag, write tables and the page."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from rockhopper.pipeline.jobs.disk import check_writable
from rockhopper.pipeline.jobs.options import is_empty_span, job
from rockhopper.pipeline.jobs.reporting.inputs import (
    Chosen,
    ReportTasks,
    archive_work,
    network_work,
    store_work,
)
from rockhopper.pipeline.jobs.reporting.options import ReportOptions
from rockhopper.pipeline.jobs.reporting.tables import (
    CSV,
    PARQUET,
    prepare_for_files,
    replace,
    write_tables,
)
from rockhopper.pipeline.jobs.reporting.tallies import Tables, combine_tallies, tally
from rockhopper.pipeline.jobs.results import JobResult, UsageProblem, format_count, format_size
from rockhopper.pipeline.jobs.tasks import runner

PAGE_FILE = "report.html"
LAG_TABLE = "lag"


@dataclass
class TopicTraffic:
    """The traffic of one topic."""

    topic: str
    messages: int
    bytes: int


@dataclass
class ReportResult(JobResult):
    """A summary of the report, and its location."""

    page: str
    dry_run: bool = False
    tasks: int = 0
    messages: int = 0
    bytes: int = 0
    topics: list[TopicTraffic] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    lag: int | None = None
    """The total lag of all groups in messages; null if no broker was queried."""
    lag_samples: int = 0
    away: list[str] = field(default_factory=list)
    """Brokers that were offline; their messages or lag are missing."""
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """See JobResult."""
        if self.dry_run:
            tasks = format_count(self.tasks, "task")
            return [f"would count in {tasks} and write {self.page} and the tables beside it"]
        told = [
            f"{format_count(self.messages, 'message')}, {format_size(self.bytes)} of bodies, in "
            f"{format_count(len(self.topics), 'topic')}, counted in {self.seconds:.1f} s"
        ]
        width = max((len(each.topic) for each in self.topics[:10]), default=0)
        told += [
            f"  {each.topic:{width}}  {each.messages:>13,}  {format_size(each.bytes):>12}"
            for each in self.topics[:10]
        ]
        if len(self.topics) > 10:
            told.append(f"  and {format_count(len(self.topics) - 10, 'more topic')}")
        if self.lag is not None:
            samples = format_count(self.lag_samples, "sample")
            told.append(f"groups are {format_count(self.lag, 'message')} behind ({samples} so far)")
        return [*told, f"open {self.page}"]


@job(ReportOptions)
def report(asked: ReportOptions) -> ReportResult:
    """Write ``report.html`` and its tables into the directory *output*.

    Messages come from the store at *path*, from *archive*, or else from the brokers behind
    *nameserver*. If *nameserver* is set, its brokers are always queried for consumer lag. Each call
    adds a sample to the lag table in *output*. *watch_s* adds further samples at that interval, up
    to *watch_count* or until Ctrl-C. The result names offline brokers, except those in *without*,
    which are expected to be missing. See docs/jobs.md.

    Raises:
        PipelineError: states the problem and the remedy.
    """
    started = time.monotonic()
    chosen = Chosen(tuple(dict.fromkeys(asked.topics)), asked.start_ms, asked.end_ms)
    _check(asked)
    page_file = Path(asked.output) / PAGE_FILE
    work = _work(asked, chosen)
    if asked.dry_run:
        check_writable(page_file.parent)
        return ReportResult(str(page_file), dry_run=True, tasks=len(work.tasks))
    run = runner("report", asked, size_bytes=work.size_bytes)
    counted = combine_tallies(run(work.tasks, tally, "counting messages"))
    lag = _lag(asked, chosen)
    _write(asked, counted, lag)
    result = _result(asked, counted, lag)
    result.tasks = len(work.tasks)
    if asked.nameserver is not None:
        from rockhopper.pipeline.jobs.reporting.lag import list_away

        result.away = sorted(set(list_away(asked.nameserver, lag)) - set(asked.without))
    result.seconds = round(time.monotonic() - started, 3)
    if asked.watch_s is not None:
        asked.progress.say(f"open {page_file}")
        asked.progress.step("sampling lag", asked.watch_count)
        asked.progress.advance()
        try:
            taken = 1
            while asked.watch_count is None or taken < asked.watch_count:
                asked.wait(asked.watch_s)
                taken += 1
                lag = _lag(asked, chosen)
                _write(asked, counted, lag)
                _tell_lag(result, lag)
                asked.progress.advance()
        except KeyboardInterrupt:
            asked.progress.say("stopped watching")
    return result


def _check(asked: ReportOptions) -> None:
    if asked.path is not None and asked.archive is not None:
        raise UsageProblem("a report is of a store (--path) or of an archive (--archive): give one")
    if asked.path is None and asked.archive is None and asked.nameserver is None:
        raise UsageProblem(
            "a report needs messages: give a store (--path), an archive (--archive) or a name "
            "server (--nameserver)"
        )
    _check_watch(asked)
    if unknown := set(asked.formats) - {PARQUET, CSV}:
        raise UsageProblem(f"tables are written as parquet and csv, not as {', '.join(unknown)}")
    if is_empty_span(asked.start_ms, asked.end_ms):
        raise UsageProblem("--from is not before --until, so there is nothing in between")


def _check_watch(asked: ReportOptions) -> None:
    if asked.watch_s is not None and asked.nameserver is None:
        raise UsageProblem("only brokers can tell of lag: add --nameserver to --watch")
    if asked.watch_s is not None and asked.watch_s <= 0:
        raise UsageProblem(f"--watch is {asked.watch_s:g}: give seconds, such as 60")
    if asked.watch_count is not None and asked.watch_s is None:
        raise UsageProblem("--samples says how many to take with --watch: add that as well")


def _work(asked: ReportOptions, chosen: Chosen) -> ReportTasks:
    if asked.path is not None:
        return store_work(str(asked.path), chosen)
    if asked.archive is not None:
        return archive_work(str(asked.archive), chosen, os.cpu_count() or 1)
    return network_work(str(asked.nameserver), chosen, os.cpu_count() or 1)


def _lag(asked: ReportOptions, chosen: Chosen) -> pa.Table:
    """Return the samples so far, with a new one if there are brokers to query."""
    from rockhopper.pipeline.jobs.reporting.lag import read_earlier_samples, sample

    samples = read_earlier_samples(Path(asked.output) / f"{LAG_TABLE}.{PARQUET}")
    if asked.nameserver is None:
        return samples
    return pa.concat_tables([samples, sample(asked.nameserver, asked.now_ms(), chosen.topics)])


def _write(asked: ReportOptions, counted: Tables, lag: pa.Table) -> None:
    from rockhopper.pipeline.jobs.reporting.page import Facts, page

    directory = Path(asked.output)
    write_tables(directory, prepare_for_files(counted), asked.formats)
    # The samples are always stored as Parquet, because the next run adds to them.
    write_tables(directory, {LAG_TABLE: lag}, tuple({PARQUET, *asked.formats}))
    source = str(asked.path or asked.archive or asked.nameserver)
    text = page(Facts(source, asked.now_ms(), counted, lag))
    replace(directory / PAGE_FILE, lambda file: file.write(text.encode()))


def _result(asked: ReportOptions, counted: Tables, lag: pa.Table) -> ReportResult:
    page_file = Path(asked.output) / PAGE_FILE
    topics = prepare_for_files(counted)["topics"].to_pylist()
    result = ReportResult(
        page=str(page_file),
        messages=sum(each["messages"] for each in topics),
        bytes=sum(each["bytes"] for each in topics),
        topics=[TopicTraffic(each["topic"], each["messages"], each["bytes"]) for each in topics],
        tables=sorted(
            str(page_file.with_name(f"{name}.{kind}"))
            for name in (*prepare_for_files(counted), LAG_TABLE)
            for kind in asked.formats
        ),
    )
    if asked.nameserver is not None:
        _tell_lag(result, lag)
    return result


def _tell_lag(result: ReportResult, lag: pa.Table) -> None:
    import pyarrow.compute as pc

    moments = pc.unique(lag["sampledAt"]).sort()
    result.lag_samples, result.lag = len(moments), 0
    if len(moments):
        newest = lag.filter(pc.equal(lag["sampledAt"], moments[-1]))
        result.lag = pc.sum(newest["lag"]).as_py() or 0
