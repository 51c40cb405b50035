"""The job ``replay``: choose messages, write the plan down, send it batch by batch."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import OWN_DIRECTORY
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.options import job
from rockhopper.pipeline.jobs.progress import Progress
from rockhopper.pipeline.jobs.replaying.options import ReplayOptions
from rockhopper.pipeline.jobs.replaying.parquet_files import (
    Source,
    SourceFile,
    find_source,
    mean_row_bytes,
)
from rockhopper.pipeline.jobs.replaying.plan import (
    LOCK_FILE,
    PLAN_FILE,
    PROGRESS_FILE,
    SELECTION_DIRECTORY,
    Plan,
    PlannedFile,
    Request,
    batch_rows_for,
    shares,
)
from rockhopper.pipeline.jobs.replaying.result import ReplayResult
from rockhopper.pipeline.jobs.replaying.selecting import chosen_rows, planned, prune
from rockhopper.pipeline.jobs.replaying.targets import (
    check_targets,
    choose_target,
    last_batch,
    queue_counts,
    sink_rules,
    target_ids,
)
from rockhopper.pipeline.jobs.replaying.work import ReplayTask, replay_slices
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.spark import job_session, run_tasks, spark_problem
from rockhopper.pipeline.options import nearest
from rockhopper.pipeline.sink.staging import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELIVERIES = ("auto", "exactly-once", "at-least-once")
_SMALL_MESSAGES = 20_000
_ROWS_WORTH_A_TASK = 2_000
_ID = re.compile(r"[\w.-]{1,120}")


@dataclass(frozen=True)
class _Way:
    """How to get a replay done."""

    nameserver: str
    state: LocalFiles
    rate: float | None
    spark: "SparkSession | None"
    master: str | None
    progress: Progress
    now: Callable[[], float]
    sleep: Callable[[float], None]


@job(ReplayOptions)
def replay(asked: ReplayOptions) -> ReplayResult:
    """Put messages of an archive, or of any Parquet with the sink's columns, back into topics.

    *to* is a topic for all of them, or old names with new ones; then only those are replayed.
    Times are by storeTimestamp, from the first up to but not including the second; *where* is a
    condition in Spark's SQL. *rate* limits messages per second. A replay has an id, made of what
    is asked for unless it is given; one that was interrupted goes on when the same is called again.
    See docs/jobs.md.

    Raises:
        PipelineError: says what is wrong and what to do.
    """
    started = time.monotonic()
    request = _request(
        str(asked.source),
        asked.to,
        asked.topics,
        asked.start_ms,
        asked.end_ms,
        asked.key,
        asked.where,
    )
    if asked.delivery not in DELIVERIES:
        raise UsageProblem(f"delivery is {asked.delivery!r}: choose one of {', '.join(DELIVERIES)}")
    if asked.rate is not None and asked.rate <= 0:
        raise UsageProblem(f"the rate is {asked.rate:g} messages per second: give more than 0")
    if asked.job_id is not None and not _ID.fullmatch(asked.job_id):
        raise UsageProblem(
            f"the id {asked.job_id!r} cannot be used: give letters, digits, '.', '_' and '-', "
            "at most 120"
        )
    found = find_source(request.source)
    _check_topics(found, request)
    name = asked.job_id or request.job_id
    directory = LocalFiles(Path(asked.state or found.root / OWN_DIRECTORY / "replays") / name)
    way = _Way(
        asked.nameserver,
        directory,
        asked.rate,
        asked.spark,
        asked.master,
        asked.progress,
        asked.now,
        asked.sleep,
    )
    if asked.dry_run:
        directory.check_writable("")
        result = _foretell(found, request, name, asked.delivery, asked.broker, way)
    else:
        with directory.lock(LOCK_FILE):
            result = _run(found, request, name, asked.delivery, asked.broker, way)
    result.away = list(found.away)
    result.seconds = round(time.monotonic() - started, 3)
    return result


def _request(
    source: str,
    to: str | Mapping[str, str] | None,
    topics: Sequence[str],
    start_ms: int | None,
    end_ms: int | None,
    key: str | None,
    where: str | None,
) -> Request:
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise UsageProblem("the replay ends before it starts: swap the times or leave one out")
    names = {"*": to} if isinstance(to, str) else dict(to or {})
    chosen = tuple(dict.fromkeys(topics))
    if not chosen and "*" not in names:
        chosen = tuple(names)
    unused = [old for old in names if old != "*" and chosen and old not in chosen]
    if unused:
        raise UsageProblem(
            f"{unused[0]!r} is given a new name and is not among the topics to replay: add it to "
            "them, or leave it out"
        )
    return Request(
        source=str(Path(source).expanduser().absolute()) if "://" not in source else source,
        topics=chosen,
        start_ms=start_ms,
        end_ms=end_ms,
        key=key or "",
        where=where or "",
        to=names,
    )


def _check_topics(source: Source, request: Request) -> None:
    has_topic = "topic" in source.columns or all(each.topic is not None for each in source.files)
    if has_topic:
        known = {each.topic for each in source.files if each.topic is not None}
        missing = [topic for topic in request.topics if topic not in known]
        if missing and all(each.topic is not None for each in source.files):
            listed = ", ".join(sorted(known)[:10]) or "none"
            raise UsageProblem(
                f"{request.source} has no messages of the topic {missing[0]!r}"
                f"{nearest(missing[0], known)}: name one of those it has ({listed})"
            )
        return
    if "*" not in request.to:
        raise UsageProblem(
            "the files do not say which topic their messages are for: name it with --to TOPIC"
        )
    if request.topics:
        raise UsageProblem("the files do not say topics: leave --topic out")


def _foretell(
    source: Source, request: Request, name: str, delivery: str, broker: str, way: _Way
) -> ReplayResult:
    data = way.state.read(PLAN_FILE)
    if data is not None:
        plan = _resumable(data, request, name, way)
        check_targets(way.nameserver, plan)
    else:
        chosen = choose_target(way.nameserver, name, delivery, broker)
        whole, partly = prune(source, request)
        counts: dict[str, int] = {}
        if partly:
            session = job_session("replay", way.spark, way.master)
            rows = chosen_rows(session, source, partly, request).groupBy("path").count().collect()
            counts = dict(rows)
        plan = _new_plan(
            source, request, name, planned(source, whole, counts), bool(chosen), broker, way
        )
    done = _done(plan, way) if data is not None else 0
    result = _result(plan, way)
    result.dry_run = True
    result.resumed_at_batch = done if done < plan.batch_count else 0
    result.sent = max(plan.rows - done * plan.batch_rows, 0)
    return result


def _plan(
    source: Source, request: Request, name: str, delivery: str, broker: str, way: _Way
) -> Plan:
    """The plan as it was written down, or a new one, which is written down."""
    data = way.state.read(PLAN_FILE)
    if data is not None:
        return _resumable(data, request, name, way)
    chosen = choose_target(way.nameserver, name, delivery, broker)
    whole, partly = prune(source, request)
    counts: dict[str, int] = {}
    if partly:
        way.progress.step("choosing messages")
        counts = _select(source, request, partly, way)
    plan = _new_plan(
        source, request, name, planned(source, whole, counts), bool(chosen), broker, way
    )
    way.state.write(PLAN_FILE, plan.to_json())
    return plan


def _new_plan(
    source: Source,
    request: Request,
    name: str,
    files: tuple[PlannedFile, ...],
    is_exact: bool,
    broker: str,
    way: _Way,
) -> Plan:
    topics = _targets(files, request)
    counts = queue_counts(way.nameserver, topics, broker)
    chosen = ""
    if is_exact:
        chosen = choose_target(way.nameserver, name, "exactly-once", broker, topics)
        counts = queue_counts(way.nameserver, topics, chosen)
    rows = batch_rows_for(mean_row_bytes(source.files), way.rate)
    ids = target_ids(way.nameserver, topics, chosen)
    return Plan(name, request, files, rows, chosen, counts, ids)


def _resumable(data: bytes, request: Request, name: str, way: _Way) -> Plan:
    plan = Plan.from_json(data, f"{way.state.location}/{PLAN_FILE}")
    if plan.request != request:
        raise UsageProblem(
            f"the replay {name!r} was begun with other files, filters or topics: give those again, "
            "or another --id"
        )
    return plan


def _select(
    source: Source, request: Request, partly: Sequence[SourceFile], way: _Way
) -> dict[str, int]:
    """Write down which rows pass, and count them by file."""
    session = job_session("replay", way.spark, way.master)
    way.state.remove_tree(SELECTION_DIRECTORY)
    place = str(way.state.path(SELECTION_DIRECTORY))
    rows = chosen_rows(session, source, partly, request)
    try:
        rows.write.parquet(place)
    except Exception as error:
        raise spark_problem(error) from error
    table = pq.read_table(place, columns=["path"])
    return {each["values"]: each["counts"] for each in pc.value_counts(table["path"]).to_pylist()}


def _targets(files: Sequence[PlannedFile], request: Request) -> list[str]:
    """The topics that messages go to."""
    found: set[str] = set()
    for each in files:
        if each.topic is not None:
            found.add(request.target(each.topic))
        elif "*" in request.to and len(request.to) == 1:
            found.add(request.to["*"])
        elif request.topics:
            found.update(map(request.target, request.topics))
        else:
            names = pc.unique(pq.read_table(each.path, columns=["topic"])["topic"])
            found.update(request.target(name) for name in names.to_pylist() if name)
    return sorted(found)


def _run(
    source: Source, request: Request, name: str, delivery: str, broker: str, way: _Way
) -> ReplayResult:
    plan = _plan(source, request, name, delivery, broker, way)
    check_targets(way.nameserver, plan)
    result = _result(plan, way)
    done = _done(plan, way)
    if done >= plan.batch_count:
        return result
    rules = sink_rules(way.nameserver, plan)
    # A few messages are sent before Spark would have started.
    is_small = plan.rows <= _SMALL_MESSAGES and way.spark is None and way.master is None
    session = None if is_small else job_session("replay", way.spark, way.master)
    result.resumed_at_batch = done
    way.progress.step(f"replaying into {', '.join(result.topics)}", plan.rows)
    way.progress.reach(done * plan.batch_rows)
    began = way.now()
    for number in range(done, plan.batch_count):
        if not plan.broker:
            check_targets(way.nameserver, plan)
        slices = plan.batch(number)
        rows = sum(each.end - each.first for each in slices)
        tasks = [
            ReplayTask(
                partition,
                number,
                tuple(share),
                str(way.state.path(SELECTION_DIRECTORY)),
                plan.request,
                plan.queue_counts,
                rules,
                plan.owner,
            )
            for partition, share in enumerate(shares(slices, _task_count(session, rows)))
        ]
        written = (
            [replay_slices(task) for task in tasks]
            if session is None
            else run_tasks(session, tasks, replay_slices)
        )
        if plan.broker:
            # What is staged goes with its topic: that one is there now means that it was then.
            check_targets(way.nameserver, plan)
            publish(rules, [part for part in written if not isinstance(part, int)])
        else:
            way.state.write(PROGRESS_FILE, json.dumps({"batches": number + 1}).encode())
        result.sent += rows
        way.progress.advance(rows)
        _keep_to_rate(way, began, result.sent)
    return result


def _done(plan: Plan, way: _Way) -> int:
    """How many batches are sent."""
    if plan.broker:
        return last_batch(way.nameserver, plan) + 1
    data = way.state.read(PROGRESS_FILE)
    if data is None:
        return 0
    try:
        return int(json.loads(data)["batches"])
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{way.state.location}/{PROGRESS_FILE} is damaged ({error!r}): write "
            '{"batches": N} with the number of batches that were sent'
        ) from error


def _task_count(session: "SparkSession | None", rows: int) -> int:
    cores = 1 if session is None else session.sparkContext.defaultParallelism
    return max(1, min(cores, rows // _ROWS_WORTH_A_TASK))


def _keep_to_rate(way: _Way, began: float, sent: int) -> None:
    if way.rate is not None:
        left = began + sent / way.rate - way.now()
        if left > 0:
            way.sleep(left)


def _result(plan: Plan, way: _Way) -> ReplayResult:
    return ReplayResult(
        id=plan.job_id,
        source=plan.request.source,
        rows=plan.rows,
        batches=plan.batch_count,
        files=len(plan.files),
        delivery="exactly-once" if plan.broker else "at-least-once",
        broker=plan.broker,
        topics=sorted(plan.queue_counts),
    )
