"""The job ``archive``: plan, write in tasks, commit."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving import from_files, from_network
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import table_name
from rockhopper.pipeline.jobs.archiving.manifest import LogPosition, Manifest, merge_summaries
from rockhopper.pipeline.jobs.archiving.options import ArchiveOptions
from rockhopper.pipeline.jobs.archiving.planning import ArchivePlan, plan_run, spell_options
from rockhopper.pipeline.jobs.archiving.result import ArchiveResult, TopicCount
from rockhopper.pipeline.jobs.archiving.values import ValueFormat
from rockhopper.pipeline.jobs.archiving.writing import FILE_COLUMNS, WriteTarget, WrittenSplit
from rockhopper.pipeline.jobs.options import job
from rockhopper.pipeline.jobs.results import UsageProblem, format_count
from rockhopper.pipeline.jobs.spark import job_session, run_tasks
from rockhopper.pipeline.store_source.directory import open_store
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.splits import data_bytes


@job(ArchiveOptions)
def archive(asked: ArchiveOptions) -> ArchiveResult:
    """Copy new messages of topics into the Parquet files of *directory*, or an Iceberg table.

    It reads the files of the store at *path*, or the brokers behind *nameserver*. *decode* ("json"
    or "avro") turns bodies into the column ``value``; *schema* is the text of the schema. If a
    broker is offline, a later run archives its messages, and the result names it; brokers in
    *without* are expected to be missing and are not named. See docs/jobs.md.

    Raises:
        PipelineError: states the problem and the remedy; this run then archives nothing.
    """
    started = time.monotonic()
    _check(asked)
    table = table_name(str(asked.directory))
    if table is not None:
        from rockhopper.pipeline.jobs.archiving.iceberg.job import archive_table

        result = archive_table(asked, table)
        result.seconds = round(time.monotonic() - started, 3)
        return result
    catalog = Catalog(files_at(str(asked.directory)))
    if asked.dry_run:
        result = _foretell(catalog, asked)
    else:
        if asked.path is not None:
            open_store(str(asked.path))  # a mistyped path must not create a directory
        with catalog.lock():
            result = _run(catalog, asked)
    result.seconds = round(time.monotonic() - started, 3)
    return result


def _check(asked: ArchiveOptions) -> None:
    if (asked.path is None) == (asked.nameserver is None):
        raise UsageProblem(
            "archive reads either the files of a store (--path) or brokers (--nameserver): give one"
        )
    if asked.corrupt not in ("fail", "skip"):
        raise UsageProblem(f"corrupt is {asked.corrupt!r}: choose fail or skip")
    _check_decoding(asked)
    of_files = {"broker_name": asked.broker_name, "split_size_bytes": asked.split_size_bytes}
    of_files["corrupt"] = asked.corrupt if asked.corrupt != "fail" else None
    unused = [name for name, value in of_files.items() if value]
    if asked.path is None and unused:
        option = unused[0].removesuffix("_bytes").replace("_", "-")
        raise UsageProblem(
            f"--{option} ({unused[0]}) is for reading a store's files: add --path, or leave it out"
        )
    of_tables = {"warehouse": asked.warehouse, "iceberg-version": asked.iceberg_version}
    unused = [name for name, value in of_tables.items() if value]
    if unused and table_name(str(asked.directory)) is None:
        raise UsageProblem(
            f"--{unused[0]} is for archiving into a table: name it as iceberg:lake.db.orders, or "
            "leave the option out"
        )
    # These properties validate the options.
    _ = asked.selection, asked.value


def _check_decoding(asked: ArchiveOptions) -> None:
    if asked.decode is not None and asked.schema is None and not asked.registry:
        raise UsageProblem("decoding bodies needs a schema: give it with --schema FILE")
    if asked.schema is not None and asked.decode is None:
        raise UsageProblem("a schema is for decoding bodies: add --decode json or --decode avro")


def _foretell(catalog: Catalog, asked: ArchiveOptions) -> ArchiveResult:
    current = catalog.current()
    plan = plan_run(asked, current)
    _value(asked, current)
    catalog.check_writable()
    return ArchiveResult(
        directory=catalog.files.location,
        run=(current.run if current else 0) + 1,
        source=asked.source,
        dry_run=True,
        unfinished_run=catalog.killed_run(),
        tasks=len(plan.pieces) or len(plan.shares),
        log_bytes=sum(data_bytes(each) for pieces in plan.pieces for each in pieces),
        rows=sum(plan.waiting.values()),
        topics=[TopicCount(topic, count) for topic, count in plan.waiting.items()],
        away=list(plan.away),
        from_files=plan.store is not None,
    )


def _run(catalog: Catalog, asked: ArchiveOptions) -> ArchiveResult:
    finished = catalog.recover()
    if finished is not None:
        asked.progress.say(f"finished run {finished.run}, which had been killed")
    catalog.check_whole()
    catalog.delete_replaced(time.time_ns() // 1_000_000)
    catalog.fold()
    current = catalog.current()
    value = _value(asked, current)
    plan = plan_run(asked, current)
    run = (current.run if current else 0) + 1
    refuses = asked.bad_values == "fail"
    target = WriteTarget(catalog.files.location, catalog.create_staging(run), run, value, refuses)
    written = _work(plan, asked, target)
    manifest = _manifest(plan, asked, current, target, written)
    staged = [name for each in written for name in each.staged]
    if manifest.files or _has_moved(manifest, current):
        asked.progress.step(f"committing {format_count(len(staged), 'file')}")
        catalog.commit(manifest, staged)
    else:
        catalog.recover()
    result = _result(catalog, plan, asked, manifest, written)
    result.unfinished_run = None if finished is None else finished.run
    return result


def _value(asked: ArchiveOptions, current: Manifest | None) -> ValueFormat | None:
    """Return the body format, which never changes within an archive. Raises PipelineError."""
    known = None if current is None else current.value
    if asked.bad_values != "null" and asked.value is None and known is None:
        raise UsageProblem(
            "--bad-values (bad_values) is for decoding bodies: add --decode, or leave it out"
        )
    return asked.value if current is None else _continue_value(asked, known)


def _continue_value(asked: ArchiveOptions, known: Mapping[str, Any] | None) -> ValueFormat | None:
    goes_on = known is not None and asked.schema is None and asked.decode in (None, known["format"])
    if known is not None and goes_on:
        return ValueFormat(known["format"], known["schema"], asked.registry)
    if asked.value is None:
        return None
    if known != asked.value.to_document():
        was = "not decoded" if known is None else f"decoded as {known['format']}"
        raise PipelineError(
            f"the bodies in this archive were {was} by another schema or none until now, and all "
            "its files have the same columns: leave --decode out, or archive into another directory"
        )
    return asked.value


def _work(plan: ArchivePlan, asked: ArchiveOptions, target: WriteTarget) -> list[WrittenSplit]:
    tasks: list[Any] = list(enumerate(plan.pieces or plan.shares))
    if plan.store is not None:
        gone, chosen = plan.store.gone, asked.selection
        work: Any = from_files.StoreWork(plan.rules, gone, chosen, plan.archived, target)
        label = f"archiving {asked.path}"
    else:
        work = from_network.NetworkWork(plan.rules, target)
        label = f"archiving {format_count(len(plan.waiting), 'topic')} of {asked.source}"
    if not tasks:
        return []
    if asked.spark is None and asked.master is None and plan.is_small:
        asked.progress.step(label, len(tasks))
        written: list[WrittenSplit] = spell_options(lambda: [work(task) for task in tasks])
    else:
        asked.progress.step("starting Spark")
        session = job_session("archive", asked.spark, asked.master)
        written = spell_options(
            lambda: run_tasks(session, tasks, work, label=label, progress=asked.progress)
        )
    return written if plan.store is None else _skip_holes(plan.pieces, written)


def _skip_holes(
    pieces: Sequence[tuple[FilePiece, ...]], written: list[WrittenSplit]
) -> list[WrittenSplit]:
    """Return the splits up to the first gap in the log of a live broker; see from_files."""
    end = -1
    for number, (group, each) in enumerate(zip(pieces, written, strict=True)):
        if each.first_offset < 0:
            continue
        if not any(from_files.follows(each.first_offset, end, piece) for piece in group):
            return written[:number]
        end = each.log_end
    return written


def _positions_in_logs(
    plan: ArchivePlan, asked: ArchiveOptions, current: Manifest | None, written: list[WrittenSplit]
) -> tuple[dict[str, Any], dict[str, LogPosition]]:
    """Return the manifest's description of the source, and how far each log is archived."""
    logs = dict(current.log_positions) if current else {}
    source = dict(plan.source)
    if plan.store is not None:
        name = asked.broker_name
        source["end"] = end = max([plan.start, *(each.log_end for each in written)])
        logs[name] = _log_position(asked, end, logs.get(name, LogPosition({})), written)
    return source, logs


def _manifest(
    plan: ArchivePlan,
    asked: ArchiveOptions,
    current: Manifest | None,
    target: WriteTarget,
    written: list[WrittenSplit],
) -> Manifest:
    source, logs = _positions_in_logs(plan, asked, current, written)
    files = tuple(file for each in written for file in each.files)
    return Manifest(
        run=target.run,
        created_ms=time.time_ns() // 1_000_000,
        source=source,
        columns=FILE_COLUMNS if target.value is None else (*FILE_COLUMNS, "value"),
        value=None if target.value is None else target.value.to_document(),
        files=files,
        queues=merge_summaries([queue for file in files for queue in file.queues]),
        undecoded=sum(each.undecoded for each in written),
        log_positions=logs,
        reached=plan.reached,
    )


def _log_position(
    asked: ArchiveOptions, end: int, before: LogPosition, written: list[WrittenSplit]
) -> LogPosition:
    offsets = asked.selection.advanced(before.offsets, end)
    seen: list[LogPosition | WrittenSplit] = [before, *written]
    last = max(seen, key=lambda each: each.last_offset)
    return LogPosition(offsets, last.last_offset, last.last_head)


def _has_moved(manifest: Manifest, current: Manifest | None) -> bool:
    if current is None:
        return True
    was, now = ((each.log_positions, each.reached, each.away) for each in (current, manifest))
    return was != now


def _result(
    catalog: Catalog,
    plan: ArchivePlan,
    asked: ArchiveOptions,
    manifest: Manifest,
    written: list[WrittenSplit],
) -> ArchiveResult:
    rows: Counter[str] = Counter()
    for file in manifest.files:
        rows[file.topic] += file.rows
    left_out = sum((each.left_out for each in written), Counter[str]())
    deletable = []
    if plan.store is not None and asked.selection.is_all:
        end = manifest.log_positions[asked.broker_name].offsets.get("*", 0)
        # Without the newest one, because a broker writes to it.
        deletable = [each.path for each in plan.store.segments[:-1] if each.end_offset <= end]
    return ArchiveResult(
        directory=catalog.files.location,
        run=manifest.run,
        source=asked.source,
        rows=manifest.rows,
        files=len(manifest.files),
        bytes=sum(each.bytes for each in manifest.files),
        topics=[TopicCount(topic, count) for topic, count in sorted(rows.items())],
        undecoded=manifest.undecoded,
        damaged=sum(each.damaged for each in written),
        tasks=len(written),
        away=list(plan.away),
        from_files=plan.store is not None,
        deletable_segments=deletable,
        left_out=[TopicCount(topic, count) for topic, count in sorted(left_out.items())],
    )
