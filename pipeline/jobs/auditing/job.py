"""The job ``audit``: the log's CRCs, queues and index against the log, the archive against it."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rockhopper.pipeline.derived.dispatch_rules import read_dispatch_rules
from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.pipeline.derived.geometry import Geometry, find_geometry
from rockhopper.pipeline.derived.index_files import IndexFileInfo, index_paths, read_index_info
from rockhopper.pipeline.derived.queue_files import find_queues
from rockhopper.pipeline.derived.tag_keys import has_tag_keys
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.auditing.findings import KEPT_MAX, Finding, Findings, Kind
from rockhopper.pipeline.jobs.auditing.index import IndexFileTask, check_index_file, no_index
from rockhopper.pipeline.jobs.auditing.options import AuditOptions
from rockhopper.pipeline.jobs.auditing.queues import (
    LogBounds,
    RestTask,
    Span,
    check_rest,
    claimed_twice,
    impossible_spans,
    missing_units,
)
from rockhopper.pipeline.jobs.auditing.result import AuditResult
from rockhopper.pipeline.jobs.auditing.work import AuditPart, AuditTask, audit_pieces
from rockhopper.pipeline.jobs.options import RunTasks, job
from rockhopper.pipeline.jobs.results import UsageProblem, count_text
from rockhopper.pipeline.jobs.tasks import runner, size_of
from rockhopper.pipeline.options import nearest
from rockhopper.pipeline.store_source.directory import StoreDirectory, find_commit_log, open_store
from rockhopper.pipeline.store_source.rules import Rules
from rockhopper.pipeline.store_source.splits import plan
from rockhopper.pipeline.store_source.topics import may_have_multi_tags
from rockhopper.protocol.store.store_paths import INDEX_DIRECTORY

if TYPE_CHECKING:
    from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
    from rockhopper.pipeline.jobs.auditing.archive import ArchivedRanges

CHECKS = ("crc", "queues", "index", "archive")


@job(AuditOptions)
def audit(asked: AuditOptions) -> AuditResult:
    """Look for everything that is wrong with the store at *path*, and with an *archive* of it.

    *checks* are some of CHECKS; otherwise all that can be made. *broker_name* says which of the
    archive's brokers the store belongs to. Nothing is changed; a broker may run on the store,
    which then is looked at up to where it is on disk. *run* does the tasks otherwise than on
    Spark.

    Raises:
        UsageProblem: arguments that make no sense.
        PipelineError: no store or no archive there, or only the index is to be checked and its
            geometry is not known.
    """
    started = time.monotonic()
    root, _ = find_commit_log(asked.path)
    chosen = _chosen_checks(asked.checks or None, root, asked.archive)
    files = archived = None
    if asked.archive is not None and "archive" in chosen:
        files, archived = _archived(asked.archive, asked.broker_name)
    store = open_store(asked.path)
    if asked.archive is not None and files is not None and not asked.dry_run:
        from rockhopper.pipeline.jobs.auditing.flushed import open_with_archived

        store = open_with_archived(asked.path, asked.archive, files, asked.broker_name)
    geometry = _geometry(root, asked.index_slots, asked.index_entries, chosen)
    unchecked = {}
    if geometry.index_problem:
        unchecked = {"index": geometry.index_problem}
        chosen = _without_index(chosen, geometry.index_problem)
    rules = read_dispatch_rules(
        root,
        store,
        delay_levels=asked.delay_levels,
        batch_topics=frozenset(asked.batch_topics),
        has_tag_keys=has_tag_keys(root, store, geometry)
        if asked.index_tags is None
        else asked.index_tags,
    )
    scan_rules = Rules(asked.path, (), split_size_bytes=asked.split_size, corrupt_records="skip")
    groups = plan(store, scan_rules, os.cpu_count() or 1)
    bounds_end = store.end_offset
    if store.flushed.offset is not None:
        bounds_end = min(bounds_end, store.flushed.offset)
    result = AuditResult(
        str(store.commit_log),
        asked.dry_run,
        chosen,
        store.start_offset,
        bounds_end,
        store.is_live,
        len(groups),
        unchecked=unchecked,
    )
    findings = Findings()
    if asked.dry_run:
        return result
    _check_directory(store, findings)
    index_files = None
    if "index" in chosen:
        assert root is not None
        index_files = _index_files(root, geometry, findings, result)
    tasks = [
        AuditTask(
            number,
            pieces,
            root,
            rules,
            index_files,
            "crc" in chosen,
            "queues" in chosen,
            archived,
            bounds_end,
            may_have_multi_tags(root),
            dict(store.purged_topics),
            store.gone,
        )
        for number, pieces in enumerate(groups)
    ]
    archive_bytes = sum(file.bytes for file in files or ())
    run = asked.run or runner("audit", asked, size_bytes=size_of(groups) + archive_bytes)
    parts: list[AuditPart] = run(tasks, audit_pieces, "reading the commit log")
    for part in parts:
        findings.extend(part.findings)
        result.record_count += part.record_count
        result.size_bytes += part.size_bytes
        result.index_entry_count += part.index_entry_count
    unindexed = sum(part.unindexed_key_count for part in parts)
    if unindexed:
        assert root is not None
        findings.add(no_index(root / INDEX_DIRECTORY, unindexed))
    if root is not None and "queues" in chosen:
        _check_rests(root, store, bounds_end, parts, run, findings, result)
    if index_files:
        file_tasks = [IndexFileTask(file, bounds_end, store.is_live) for file in index_files]
        for found in run(file_tasks, check_index_file, "checking index files"):
            findings.extend(found)
    if archived is not None and files is not None and asked.archive is not None:
        _check_archive(asked.archive, files, archived, parts, run, findings, result)
    _finish(result, store, asked.path, parts, findings)
    result.seconds = time.monotonic() - started
    return result


def _geometry(
    root: Path | None, slots: int | None, entries: int | None, chosen: Sequence[str]
) -> Geometry:
    """The geometry of a store, of which only that of the index has to be right."""
    if "index" not in chosen:
        root = None
    return find_geometry(root, index_slot_count=slots, index_entry_count_max=entries)


def _without_index(chosen: tuple[str, ...], problem: str) -> tuple[str, ...]:
    """The checks that can be made. Raises PipelineError if that of the index is the only one."""
    if chosen == ("index",):
        raise PipelineError(problem)
    return tuple(check for check in chosen if check != "index")


def _chosen_checks(
    checks: Iterable[str] | None, root: Path | None, archive: str | None
) -> tuple[str, ...]:
    named = None if checks is None else [check.strip().lower() for check in checks]
    for check in named or ():
        if check not in CHECKS:
            raise UsageProblem(
                f"there is no check {check!r}{nearest(check, CHECKS)}: choose among "
                f"{', '.join(CHECKS)}"
            )
    if named is None:
        named = list(CHECKS if root is not None else ("crc", "archive"))
        if archive is None:
            named.remove("archive")
    if "archive" in named and archive is None:
        raise UsageProblem("the check 'archive' needs an archive: say where it is")
    if root is None and {"queues", "index"} & set(named):
        raise UsageProblem(
            "a commit log without its store has neither queues nor an index: give the store's "
            "root, or leave these checks out"
        )
    if not named:
        raise UsageProblem(f"nothing is to be checked: choose among {', '.join(CHECKS)}")
    return tuple(check for check in CHECKS if check in named)


def _archived(
    location: str, broker_name: str | None
) -> "tuple[list[ArchivedFile], ArchivedRanges]":
    from rockhopper.pipeline.jobs.auditing.archive import archived_ranges, read_archive

    files = read_archive(location)
    if files is None:
        raise PipelineError(
            f"there is no archive in {location}: give the directory that the job archive wrote to"
        )
    brokers = sorted({queue.broker for file in files for queue in file.queues})
    if broker_name is None and len(brokers) > 1:
        raise PipelineError(
            f"the archive has messages of the brokers {', '.join(brokers)}: name the one that the "
            "store belongs to (broker_name)"
        )
    if broker_name is not None and brokers and broker_name not in brokers:
        raise PipelineError(
            f"the archive has no messages of the broker {broker_name!r}"
            f"{nearest(broker_name, brokers)}, only of {', '.join(map(repr, brokers))}"
        )
    return files, archived_ranges(files, broker_name)


def _check_directory(store: StoreDirectory, findings: Findings) -> None:
    for name in store.foreign_files:
        reason = "it is no file of a commit log"
        findings.add(Finding(Kind.FOREIGN_FILE, reason, str(store.commit_log / name)))


def _index_files(
    root: Path, geometry: Geometry, findings: Findings, result: AuditResult
) -> tuple[IndexFileInfo, ...]:
    found = []
    paths = index_paths(root / INDEX_DIRECTORY)
    for path in paths:
        try:
            info = read_index_info(
                path, geometry.index_slot_count, geometry.index_entry_count_max, look_behind=True
            )
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            findings.add(Finding(Kind.INDEX_FILE, f"it is no index file: {error}", str(path)))
            continue
        if info.next_number > 1:
            found.append(info)
    result.index_file_count = len(paths)
    return tuple(found)


def _check_rests(
    root: Path,
    store: StoreDirectory,
    end: int,
    parts: list[AuditPart],
    run: RunTasks,
    findings: Findings,
    result: AuditResult,
) -> None:
    spans: dict[QueueKey, list[Span]] = {}
    batch_units: Counter[QueueKey] = Counter()
    for part in parts:
        batch_units += part.batch_units
        for key, found in part.spans.items():
            spans.setdefault(key, []).extend(found)
    on_disk = set(find_queues(root))
    queues = sorted(on_disk | set(spans))
    for key, found in spans.items():
        _check_claims(key, found, findings)
    damages = tuple(damage for part in parts for damage in part.damages)
    bounds = LogBounds(store.start_offset, end, store.is_live, damages)
    chunks = [queues[at :: min(len(queues), 64)] for at in range(min(len(queues), 64))]
    tasks = [
        RestTask(
            root,
            tuple((key, tuple(spans.get(key, ())), batch_units[key]) for key in chunk),
            bounds,
        )
        for chunk in _few(chunks, os.cpu_count() or 1)
    ]
    for rest in run(tasks, check_rest, "looking for units without messages"):
        findings.extend(rest.findings)
        result.unit_count += rest.unit_count
        result.expired_unit_count += rest.expired_count
    result.queue_count = len(on_disk)


def _check_claims(key: QueueKey, spans: list[Span], findings: Findings) -> None:
    """Report what records of different pieces claim; *spans* keeps what they can have."""
    for span in impossible_spans(tuple(spans)):
        spans[:] = [one for one in spans if not span.first <= one.first < span.behind]
        findings.forget_units(key.topic, key.queue_id, span.first, span.behind)
        reason = "the head of the record claims a queue offset that it cannot have"
        findings.add(
            Finding(
                Kind.LOG_DAMAGE,
                reason,
                commit_log_offset=span.start,
                topic=key.topic,
                queue_id=key.queue_id,
                queue_offset=span.first,
                count=span.count,
            )
        )
    for span in claimed_twice(tuple(spans)):
        findings.add(
            Finding(
                Kind.CONFLICT,
                f"several records claim {span.count} offsets from here on",
                topic=key.topic,
                queue_id=key.queue_id,
                queue_offset=span.first,
                count=span.count,
            )
        )


def _few(chunks: list[list[QueueKey]], cores: int) -> list[list[QueueKey]]:
    """As many lists as are worth a task each."""
    count = min(len(chunks), 2 * cores)
    return [[key for chunk in chunks[at::count] for key in chunk] for at in range(count)]


def _check_archive(
    location: str,
    files: "list[ArchivedFile]",
    archived: "ArchivedRanges",
    parts: list[AuditPart],
    run: RunTasks,
    findings: Findings,
    result: AuditResult,
) -> None:
    from rockhopper.pipeline.jobs.auditing.archive import (
        ArchiveFileTask,
        FileColumns,
        LogSums,
        check_archived_file,
        check_foreign_files,
        compare_sums,
        unknown_columns,
    )

    sums = LogSums()
    for part in parts:
        sums.extend(part.archive_sums)
    columns: FileColumns = {}
    tasks = [ArchiveFileTask(location, file) for file in files]
    for checked in run(tasks, check_archived_file, "reading the archive"):
        findings.extend(checked.findings)
        columns |= checked.columns
    both, only_archived, waiting = compare_sums(archived, sums, columns, findings)
    result.archived_file_count = len(files)
    result.archived_and_in_log_count = both
    result.only_archived_count, result.not_archived_count = only_archived, waiting
    findings.extend(check_foreign_files(location, files))
    if unknown := unknown_columns(files, columns):
        result.unchecked["columns"] = unknown


def _finish(
    result: AuditResult,
    store: StoreDirectory,
    path: str,
    parts: list[AuditPart],
    findings: Findings,
) -> None:
    orphans: Counter[str] = Counter()
    for part in parts:
        orphans += part.orphans
    for topic, count in sorted(orphans.items()):
        result.notes.append(
            f"the topic {topic} has {count_text(count, 'record')} in the log, and neither queues "
            "nor a configuration: taken for deleted"
        )
    expired = [name for part in parts for name in part.expired]
    kept = findings.kept
    if expired:
        start = open_store(path).start_offset
        kept = [one for one in kept if _counts_from(one, start)]
        for one in set(findings.kept) - set(kept):
            findings.counts[one.kind] -= 1
        result.notes.append(f"{count_text(len(expired), 'file')} expired while the log was read")
    kept = _joined(kept, findings)
    kept.sort(key=lambda one: (list(Kind).index(one.kind), one.commit_log_offset or 0))
    result._findings = kept
    result.findings = [one.document() for one in kept]
    result.counts = {str(kind): count for kind, count in findings.counts.items() if count > 0}
    if store.is_live:
        result.notes.append("a broker runs on the store: it was looked at up to what is on disk")
    if any(count > KEPT_MAX for count in findings.counts.values()):
        result.notes.append(f"at most {KEPT_MAX} findings of a kind are kept from each task")


def _joined(kept: list[Finding], findings: Findings) -> list[Finding]:
    """Messages without units that follow each other as one finding, whichever tasks saw them."""
    joined: list[Finding] = []
    for one in sorted(
        kept, key=lambda one: (one.topic or "", one.queue_id or 0, one.queue_offset or 0)
    ):
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.kind is one.kind is Kind.UNIT_MISSING
            and None not in (before.queue_offset, one.queue_offset)
            and (before.topic, before.queue_id) == (one.topic, one.queue_id)
            and (before.queue_offset or 0) + before.count == one.queue_offset
        ):
            count = before.count + one.count
            joined[-1] = replace(before, count=count, reason=missing_units(count))
            findings.counts[one.kind] -= 1
        else:
            joined.append(one)
    return joined


def _counts_from(finding: Finding, start: int) -> bool:
    return finding.commit_log_offset is None or finding.commit_log_offset >= start
