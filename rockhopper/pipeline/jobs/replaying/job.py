"""The job ``replay``: choose messages, store the plan, send it batch by batch."""

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from rockhopper.paths import expand_home
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import OWN_DIRECTORY
from rockhopper.pipeline.jobs.archiving.files import LocalFiles, name_damage
from rockhopper.pipeline.jobs.options import is_empty_span, job
from rockhopper.pipeline.jobs.replaying.options import ReplayOptions
from rockhopper.pipeline.jobs.replaying.parquet_files import (
    MessageFiles,
    SourceFile,
    check_unaltered,
    find_source,
    mean_row_bytes,
)
from rockhopper.pipeline.jobs.replaying.plan import (
    LOCK_FILE,
    PLAN_FILE,
    PROGRESS_FILE,
    SELECTION_DIRECTORY,
    PlannedFile,
    ReplayPlan,
    ReplayRequest,
    batch_rows_for,
    share_slices,
)
from rockhopper.pipeline.jobs.replaying.result import ReplayResult
from rockhopper.pipeline.jobs.replaying.selecting import choose_rows, plan_files, prune
from rockhopper.pipeline.jobs.replaying.targets import (
    check_targets,
    choose_target,
    last_batch,
    queue_counts,
    sink_rules,
    target_ids,
)
from rockhopper.pipeline.jobs.replaying.work import ReplayWork
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.spark import (
    cores,
    describe_jobs,
    job_session,
    run_tasks,
    spark_problem,
)
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from rockhopper.pipeline.options import suggest_nearest
from rockhopper.pipeline.sink.publishing import publish
from rockhopper.pipeline.sink.rules import SinkRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELIVERIES = ("auto", "exactly-once", "at-least-once")
_SMALL_MESSAGES = 20_000
_ROWS_WORTH_A_TASK = 2_000
_ID = re.compile(r"[\w.-]{1,120}")


@dataclass(frozen=True)
class _Way:
    """The context of a replay: options, name, source files, and the location of its state."""

    asked: ReplayOptions
    request: ReplayRequest
    name: str
    source: MessageFiles
    state: LocalFiles

    def session(self) -> "SparkSession":
        """Return a Spark session."""
        return job_session("replay", self.asked.spark, self.asked.master)

    def select_rows(self, files: Sequence[SourceFile]) -> "DataFrame":
        """Return the matching rows of files that are replayed partly."""
        return choose_rows(self.session(), self.source, files, self.request)


@job(ReplayOptions)
def replay(asked: ReplayOptions) -> ReplayResult:
    """Send messages of an archive, or of any Parquet with the sink's columns, to topics.

    *to* is a topic for all messages, or maps old names to new ones; then only those topics are
    replayed. Times refer to storeTimestamp and exclude *end_ms*; *where* is a condition in Spark's
    SQL. *rate* limits the messages per second. A replay has an id, which is derived from the
    request unless given. The same call continues an interrupted replay. See docs/jobs.md.

    Raises:
        PipelineError: states the problem and the remedy.
    """
    started = time.monotonic()
    request = _request(asked)
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
    own = f"{OWN_DIRECTORY}/replays/{name}"
    state = Path(asked.state) / name if asked.state else LocalFiles(found.root).path(own)
    directory = LocalFiles(state)
    way = _Way(asked, request, name, found, directory)
    if asked.dry_run:
        directory.check_writable("")
        result = _foretell(way)
    else:
        with directory.lock(LOCK_FILE):
            result = _run(way)
    result.away = list(found.away)
    result.seconds = round(time.monotonic() - started, 3)
    return result


def _request(asked: ReplayOptions) -> ReplayRequest:
    source = str(asked.source)
    if is_empty_span(asked.start_ms, asked.end_ms):
        raise UsageProblem("the replay ends before it starts: swap the times or leave one out")
    names = {"*": asked.to} if isinstance(asked.to, str) else dict(asked.to or {})
    return ReplayRequest(
        source=str(expand_home(source).absolute()) if "://" not in source else source,
        topics=_choose_topics(asked, names),
        start_ms=asked.start_ms,
        end_ms=asked.end_ms,
        key=asked.key or "",
        where=asked.where or "",
        to=names,
    )


def _choose_topics(asked: ReplayOptions, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topics to replay, by default those with a new name; empty for all."""
    chosen = tuple(dict.fromkeys(asked.topics))
    if not chosen and "*" not in names:
        return tuple(names)
    unused = [old for old in names if old != "*" and chosen and old not in chosen]
    if unused:
        raise UsageProblem(
            f"{unused[0]!r} is given a new name and is not among the topics to replay: add it to "
            "them, or leave it out"
        )
    return chosen


def _check_topics(source: MessageFiles, request: ReplayRequest) -> None:
    has_topic = "topic" in source.columns or all(each.topic is not None for each in source.files)
    if has_topic:
        _check_known(source, request)
        return
    if "*" not in request.to:
        raise UsageProblem(
            "the files do not say which topic their messages are for: name it with --to TOPIC"
        )
    if request.topics:
        raise UsageProblem("the files do not say topics: leave --topic out")


def _check_known(source: MessageFiles, request: ReplayRequest) -> None:
    known = {each.topic for each in source.files if each.topic is not None}
    missing = [topic for topic in request.topics if topic not in known]
    if missing and all(each.topic is not None for each in source.files):
        listed = ", ".join(sorted(known)[:10]) or "none"
        raise UsageProblem(
            f"{request.source} has no messages of the topic {missing[0]!r}"
            f"{suggest_nearest(missing[0], known)}: name one of those it has ({listed})"
        )


def _foretell(way: _Way) -> ReplayResult:
    plan = _find_resumable(way)
    if plan is None:
        plan, done = _new_plan(way, _count), 0
    else:
        check_targets(way.asked.nameserver, plan)
        done = _find_done(plan, way)
    result = _result(plan)
    result.dry_run = True
    result.resumed_at_batch = done if done < plan.batch_count else 0
    result.sent = max(plan.rows - done * plan.batch_rows, 0)
    return result


def _new_plan(
    way: _Way, count: Callable[[_Way, Sequence[SourceFile]], dict[str, int]]
) -> ReplayPlan:
    """Make a plan; *count* returns the row counts of files that are replayed partly."""
    nameserver, broker = way.asked.nameserver, way.asked.broker
    chosen = choose_target(nameserver, way.name, way.asked.delivery, broker)
    whole, partly = prune(way.source, way.request)
    way.asked.progress.step("comparing files with the archive's manifests")
    check_unaltered([*whole, *partly])
    files = plan_files(way.source, whole, count(way, partly) if partly else {})
    topics = _targets(files, way.request)
    counts = queue_counts(nameserver, topics, broker)
    if chosen:
        chosen = choose_target(nameserver, way.name, "exactly-once", broker, topics)
        counts = queue_counts(nameserver, topics, chosen)
    batch_rows = batch_rows_for(mean_row_bytes(way.source.files), way.asked.rate)
    ids = target_ids(nameserver, topics, chosen)
    return ReplayPlan(way.name, way.request, files, batch_rows, chosen, counts, ids)


def _find_resumable(way: _Way) -> ReplayPlan | None:
    """Return the stored plan; None if there is none."""
    data = way.state.read(PLAN_FILE)
    if data is None:
        return None
    plan = ReplayPlan.from_json(data, f"{way.state.location}/{PLAN_FILE}")
    if plan.request != way.request:
        raise UsageProblem(
            f"the replay {way.name!r} was begun with other files, filters or topics: give those "
            "again, or another --id"
        )
    for each in plan.files:
        if not Path(os.path.normpath(each.path)).is_relative_to(way.source.root):
            raise PipelineError(
                f"{way.state.location}/{PLAN_FILE} names {each.path}, which is not in "
                f"{way.source.root}: start over with another --id, and an archive that you "
                "trust"
            )
    return plan


def _count(way: _Way, partly: Sequence[SourceFile]) -> dict[str, int]:
    with describe_jobs(way.session(), f"replay {way.name}: counting messages"):
        return dict(way.select_rows(partly).groupBy("path").count().collect())


def _select(way: _Way, partly: Sequence[SourceFile]) -> dict[str, int]:
    """Store the matching rows, and count them by file."""
    way.asked.progress.step("choosing messages")
    way.state.remove_tree(SELECTION_DIRECTORY)
    place = str(way.state.path(SELECTION_DIRECTORY))
    rows = way.select_rows(partly)
    try:
        with describe_jobs(way.session(), f"replay {way.name}: choosing messages"):
            rows.write.parquet(place)
    except Exception as error:
        raise spark_problem(error) from error
    hide_rows(Path(place))
    table = pq.read_table(place, columns=["path"])
    return {each["values"]: each["counts"] for each in pc.value_counts(table["path"]).to_pylist()}


def hide_rows(selection: Path) -> None:
    """Rename the files of a selection to hide them from ``**/*.parquet`` over the archive."""
    for path in selection.glob("*.parquet"):
        path.rename(path.with_suffix(".rows"))


def _targets(files: Sequence[PlannedFile], request: ReplayRequest) -> list[str]:
    """Return the target topics."""
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


def _run(way: _Way) -> ReplayResult:
    asked = way.asked
    plan = _find_resumable(way)
    if plan is None:
        plan = _new_plan(way, _select)
        way.state.write(PLAN_FILE, plan.to_json())
    check_targets(asked.nameserver, plan)
    result = _result(plan)
    done = _find_done(plan, way)
    if done >= plan.batch_count:
        return result
    rules = sink_rules(asked.nameserver, plan)
    # Sending a few messages takes less time than starting Spark.
    is_small = plan.rows <= _SMALL_MESSAGES and asked.spark is None and asked.master is None
    session = None if is_small else way.session()
    result.resumed_at_batch = done
    asked.progress.step(f"replaying into {', '.join(result.topics)}", plan.rows)
    asked.progress.reach(done * plan.batch_rows)
    began = asked.now()
    for number in range(done, plan.batch_count):
        rows = _send_batch(way, plan, number, rules, session)
        result.sent += rows
        asked.progress.advance(rows)
        _keep_to_rate(asked, began, result.sent)
    return result


def _send_batch(
    way: _Way, plan: ReplayPlan, number: int, rules: SinkRules, session: "SparkSession | None"
) -> int:
    """Send one batch and note that it is sent; return the number of its messages."""
    nameserver = way.asked.nameserver
    if not plan.broker:
        check_targets(nameserver, plan)
    selection = str(way.state.path(SELECTION_DIRECTORY))
    at_a_time = 1 if session is None else cores(session)
    slices = plan.batch(number)
    rows = sum(each.end - each.first for each in slices)
    work = ReplayWork(number, selection, plan.request, plan.queue_counts, rules, plan.owner)
    tasks = list(
        enumerate(share_slices(slices, max(1, min(at_a_time, rows // _ROWS_WORTH_A_TASK))))
    )
    what = f"replay {way.name} into {', '.join(_result(plan).topics)}: batch {number + 1}"
    what += f" of {plan.batch_count}"
    written = (
        run_in_this_process(tasks, work)
        if session is None
        else run_tasks(session, tasks, work, description=what)
    )
    if plan.broker:
        # A deleted topic loses its staged messages: if the topic exists now, it existed then.
        check_targets(nameserver, plan)
        publish(rules, [part for part in written if not isinstance(part, int)])
    else:
        way.state.write(PROGRESS_FILE, json.dumps({"batches": number + 1}).encode())
    return rows


def _find_done(plan: ReplayPlan, way: _Way) -> int:
    """Return the number of batches that were sent."""
    if plan.broker:
        return last_batch(way.asked.nameserver, plan) + 1
    data = way.state.read(PROGRESS_FILE)
    if data is None:
        return 0
    remedy = 'write {"batches": N} with the number of batches that were sent'
    with name_damage(f"{way.state.location}/{PROGRESS_FILE}", remedy):
        return int(json.loads(data)["batches"])


def _keep_to_rate(asked: ReplayOptions, began: float, sent: int) -> None:
    if asked.rate is not None:
        left = began + sent / asked.rate - asked.now()
        if left > 0:
            asked.sleep(left)


def _result(plan: ReplayPlan) -> ReplayResult:
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
