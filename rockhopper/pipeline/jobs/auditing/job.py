"""The job ``audit``: check the log's CRCs, and compare queues, index and archive with the log."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.pipeline.derived.geometry import Geometry, find_geometry
from rockhopper.pipeline.derived.index_files import IndexFileInfo, index_paths, read_index_info
from rockhopper.pipeline.derived.queue_files import find_queues
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
from rockhopper.pipeline.jobs.auditing.archive import (
    ArchivedRanges,
    ComparedCounts,
    FileColumns,
    LogSums,
    check_archived_file,
    check_foreign_files,
    compare_sums,
    describe_unknown_columns,
    find_archived_ranges,
    list_expired_files,
    read_archive,
)
from rockhopper.pipeline.jobs.auditing.findings import KEPT_MAX, AuditFindings, FaultKind, Finding
from rockhopper.pipeline.jobs.auditing.index import check_index_file, make_no_index_finding
from rockhopper.pipeline.jobs.auditing.options import AuditOptions
from rockhopper.pipeline.jobs.auditing.queues import (
    ComparedSpan,
    LogBounds,
    RestResult,
    check_rest,
    describe_missing_units,
    find_claimed_twice,
    find_impossible_spans,
)
from rockhopper.pipeline.jobs.auditing.result import AuditResult
from rockhopper.pipeline.jobs.auditing.work import AuditPart, AuditWork
from rockhopper.pipeline.jobs.dispatching import plan_dispatch
from rockhopper.pipeline.jobs.options import RunTasks, job
from rockhopper.pipeline.jobs.results import UsageProblem, format_count
from rockhopper.pipeline.jobs.tasks import runner, size_of
from rockhopper.pipeline.options import suggest_nearest
from rockhopper.pipeline.store_source.directory import StoreDirectory, find_commit_log, open_store
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.scan import DamagedRange
from rockhopper.pipeline.store_source.topics import may_have_multi_tags
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from rockhopper.protocol.store.store_paths import INDEX_DIRECTORY

CHECKS = ("crc", "queues", "index", "archive")
_REST_TASKS_MAX = 64


@job(AuditOptions)
def audit(asked: AuditOptions) -> AuditResult:
    """Find all faults of the store at *path*, and of an *archive* of it.

    *checks* are some of CHECKS; the default is all that apply. *broker_name* names the archive's
    broker that the store belongs to. The audit changes nothing. A broker may run on the store; then
    the audit reads the store up to its flushed end. *run* replaces Spark as the runner of the
    tasks.

    Raises:
        UsageProblem: the arguments are invalid.
        PipelineError: there is no store or no archive, or only the index is to be checked and its
            geometry is unknown.
    """
    started = time.monotonic()
    root, _ = find_commit_log(asked.path)
    chosen = _choose_checks(asked, root)
    archive = _archive(asked) if "archive" in chosen else None
    store = _store(asked, archive)
    geometry, chosen, unchecked = _find_geometry(asked, chosen, root)
    rules, groups = plan_dispatch(asked, root, store, geometry)
    planned = AuditResult(
        str(store.commit_log),
        asked.dry_run,
        chosen,
        store.start_offset,
        store.readable_end,
        store.is_live,
        len(groups),
        unchecked=unchecked,
    )
    if asked.dry_run:
        return planned
    archive_bytes = 0 if archive is None else archive.size_bytes
    run = asked.run or runner("audit", asked, size_bytes=size_of(groups) + archive_bytes)
    under_way = _Audit(root, store, run)
    under_way.check_directory()
    index_files = under_way.index_files(geometry) if "index" in chosen else None
    work = AuditWork(
        root,
        rules,
        index_files,
        "crc" in chosen,
        "queues" in chosen,
        None if archive is None else archive.ranges,
        store.readable_end,
        may_have_multi_tags(root),
        dict(store.purged_topics),
        store.gone,
    )
    under_way.read_log(groups, work)
    under_way.check_end()
    if "queues" in chosen:
        under_way.check_rests()
    under_way.check_index_files(index_files or ())
    if archive is not None:
        under_way.check_archive(archive)
    result = under_way.finish(planned, asked.path)
    return replace(result, seconds=time.monotonic() - started)


def _find_geometry(
    asked: AuditOptions, chosen: tuple[str, ...], root: Path | None
) -> tuple[Geometry, tuple[str, ...], dict[str, str]]:
    """Return the geometry, the checks that it allows, and why another is left out."""
    geometry = find_geometry(
        root if "index" in chosen else None,
        index_slot_count=asked.index_slots,
        index_entry_count_max=asked.index_entries,
    )
    if not geometry.index_problem:
        return geometry, chosen, {}
    if chosen == ("index",):
        raise PipelineError(geometry.index_problem)
    others = tuple(check for check in chosen if check != "index")
    return geometry, others, {"index": geometry.index_problem}


def _list_named_checks(asked: AuditOptions, root: Path | None) -> list[str]:
    """Return the checks that were named, else all that apply."""
    if not asked.checks:
        named = list(CHECKS if root is not None else ("crc", "archive"))
        if asked.archive is None:
            named.remove("archive")
        return named
    named = [check.strip().lower() for check in asked.checks]
    for check in named:
        if check not in CHECKS:
            raise UsageProblem(
                f"there is no check {check!r}{suggest_nearest(check, CHECKS)}: choose among "
                f"{', '.join(CHECKS)}"
            )
    return named


def _choose_checks(asked: AuditOptions, root: Path | None) -> tuple[str, ...]:
    named = _list_named_checks(asked, root)
    if "archive" in named and asked.archive is None:
        raise UsageProblem("the check 'archive' needs an archive: say where it is")
    if root is None and {"queues", "index"} & set(named):
        raise UsageProblem(
            "a commit log without its store has neither queues nor an index: give the store's "
            "root, or leave these checks out"
        )
    if not named:
        raise UsageProblem(f"nothing is to be checked: choose among {', '.join(CHECKS)}")
    return tuple(check for check in CHECKS if check in named)


@dataclass(frozen=True)
class _Archive:
    """The part of an archive that belongs to the store."""

    location: str
    files: list[ArchivedFile]
    ranges: ArchivedRanges

    @property
    def size_bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def _archive(asked: AuditOptions) -> _Archive:
    location, broker_name = asked.archive, asked.broker_name
    assert location is not None
    files = read_archive(location)
    if files is None:
        raise PipelineError(
            f"there is no archive in {location}: give the directory that the job archive wrote to"
        )
    expired = list_expired_files(location)
    brokers = sorted({queue.broker for file in (*files, *expired) for queue in file.queues})
    if broker_name is None and len(brokers) > 1:
        raise PipelineError(
            f"the archive has messages of the brokers {', '.join(brokers)}: name the one that the "
            "store belongs to (broker_name)"
        )
    if broker_name is not None and brokers and broker_name not in brokers:
        raise PipelineError(
            f"the archive has no messages of the broker {broker_name!r}"
            f"{suggest_nearest(broker_name, brokers)}, only of {', '.join(map(repr, brokers))}"
        )
    return _Archive(location, files, find_archived_ranges(files, broker_name, expired))


def _store(asked: AuditOptions, archive: _Archive | None) -> StoreDirectory:
    if archive is None or asked.dry_run:
        return open_store(asked.path)
    from rockhopper.pipeline.jobs.auditing.flushed import open_with_archived

    return open_with_archived(asked.path, archive.location, archive.files, asked.broker_name)


@dataclass
class _Audit:
    """A running audit, step by step."""

    root: Path | None
    store: StoreDirectory
    run: RunTasks
    findings: AuditFindings = field(default_factory=AuditFindings)
    parts: list[AuditPart] = field(default_factory=list)
    lost: list[DamagedRange] = field(default_factory=list)
    rests: list[RestResult] = field(default_factory=list)
    queue_count: int = 0
    index_file_count: int = 0
    archived_file_count: int = 0
    archived: ComparedCounts = field(default_factory=ComparedCounts)
    unknown_columns: str = ""

    def check_directory(self) -> None:
        """Report foreign files among the files of the log, and a newest file of another size."""
        for name in self.store.foreign_files:
            reason = "it is no file of a commit log"
            path = str(self.store.commit_log / name)
            self.findings.record(Finding(FaultKind.FOREIGN_FILE, reason, path))
        for former, file in pairwise(self.store.segments):
            if file is self.store.segments[-1] and file.size_bytes != former.size_bytes:
                reason = f"the file has {file.size_bytes} bytes, the one before {former.size_bytes}"
                self.findings.record(
                    Finding(FaultKind.LOG_DAMAGE, reason, file.path, None, file.base_offset)
                )

    def index_files(self, geometry: Geometry) -> tuple[IndexFileInfo, ...]:
        """Return the index files that have entries."""
        assert self.root is not None
        found = []
        paths = index_paths(self.root / INDEX_DIRECTORY)
        slots, entries = geometry.index_slot_count, geometry.index_entry_count_max
        for path in paths:
            try:
                found.append(read_index_info(path, slots, entries, look_behind=True))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                reason = f"it is no index file: {error}"
                self.findings.record(Finding(FaultKind.INDEX_FILE, reason, str(path)))
        self.index_file_count = len(paths)
        found = [info for info in found if info.next_number > 1]
        return tuple(self._settled(number, info, found) for number, info in enumerate(found))

    def _settled(
        self, number: int, info: IndexFileInfo, files: Sequence[IndexFileInfo]
    ) -> IndexFileInfo:
        """Complete *info* from its neighbours and the state of the store."""
        former_end_ms = files[number - 1].end_ms if number else None
        if not number and not self.store.start_offset:
            former_end_ms = 0  # Nothing has expired.
        is_settled = self.store.is_clean or number < len(files) - 1
        return replace(info, is_settled=is_settled, former_end_ms=former_end_ms)

    def read_log(self, groups: Sequence[tuple[FilePiece, ...]], work: AuditWork) -> None:
        """Compare the records with the files that are derived from them."""
        self.parts = self.run(groups, work, "reading the commit log")
        for part in self.parts:
            self.findings.extend(part.findings)
        unindexed = sum(part.unindexed_key_count for part in self.parts)
        if unindexed:
            assert self.root is not None
            self.findings.record(make_no_index_finding(self.root / INDEX_DIRECTORY, unindexed))

    def check_end(self) -> None:
        """Check that the log reaches as far as it was flushed."""
        store, end = self.store, self.store.noted_end
        if store.flushed.offset is not None:
            end = min(end, store.flushed.offset)  # The broker has flushed more since.
        reached = max((part.reached for part in self.parts), default=0)
        reached = max(reached, _find_end_of_blank(store, reached))
        if max(reached, store.start_offset) >= end:
            return
        if store.end_offset < end:
            reason = "the newest commit log files are missing"
        else:
            reason = "no record is left of the newest part of the log"
        path = store.segments[-1].path if store.segments else str(store.commit_log)
        lost = DamagedRange(reached, end, reason, path)
        self.lost.append(lost)
        reason = f"{reason}: it was on disk up to commit log offset {lost.end}"
        count = lost.end - lost.start
        self.findings.record(
            Finding(FaultKind.LOG_DAMAGE, reason, path, None, reached, count=count)
        )

    def _merged_spans(self) -> dict[QueueKey, list[ComparedSpan]]:
        spans: dict[QueueKey, list[ComparedSpan]] = {}
        for part in self.parts:
            for key, found in part.spans.items():
                spans.setdefault(key, []).extend(found)
        return spans

    def check_rests(self) -> None:
        """Check the units that belong to no record."""
        assert self.root is not None
        spans = self._merged_spans()
        batch_units = sum((part.batch_units for part in self.parts), Counter[QueueKey]())
        on_disk = set(find_queues(self.root))
        queues = sorted(on_disk | set(spans))
        for key, found in spans.items():
            _check_claims(key, found, self.findings)
        damages = (*(damage for part in self.parts for damage in part.damages), *self.lost)
        store = self.store
        bounds = LogBounds(store.start_offset, store.readable_end, store.is_live, damages)
        asked = [(key, tuple(spans.get(key, ())), batch_units[key]) for key in queues]
        count = min(len(queues), 2 * (os.cpu_count() or 1), _REST_TASKS_MAX)
        tasks = [asked[at::count] for at in range(count)]
        work = partial(check_rest, self.root, bounds)
        self.rests = self.run(tasks, work, "looking for units without messages")
        for rest in self.rests:
            self.findings.extend(rest.findings)
        self.queue_count = len(on_disk)

    def check_index_files(self, files: tuple[IndexFileInfo, ...]) -> None:
        """Check that each index file is consistent."""
        work = partial(check_index_file, self.store.readable_end, self.store.is_live)
        for found in self.run(files, work, "checking index files"):
            self.findings.extend(found)

    def check_archive(self, archive: _Archive) -> None:
        """Compare the archive with the log, and with its own manifests."""
        sums = LogSums()
        for part in self.parts:
            sums.extend(part.archive_sums)
        columns: FileColumns = {}
        work = partial(check_archived_file, archive.location)
        for checked in self.run(archive.files, work, "reading the archive"):
            self.findings.extend(checked.findings)
            columns |= checked.columns
        self.archived = compare_sums(archive.ranges, sums, columns, self.findings)
        self.archived_file_count = len(archive.files)
        self.findings.extend(check_foreign_files(archive.location, archive.files))
        self.unknown_columns = describe_unknown_columns(archive.files, columns)

    def _without_expired(self, path: str) -> list[Finding]:
        """Return the findings in files that still exist, and stop counting the others."""
        findings = self.findings
        if not self._expired:
            return findings.kept
        start = open_store(path).start_offset
        kept = [
            one
            for one in findings.kept
            if one.commit_log_offset is None or one.commit_log_offset >= start
        ]
        for one in set(findings.kept) - set(kept):
            findings.counts[one.kind] -= 1
        return kept

    @property
    def _expired(self) -> list[str]:
        return [name for part in self.parts for name in part.expired]

    def finish(self, planned: AuditResult, path: str) -> AuditResult:
        """Add what was counted and found to the planned result; *path* is the store."""
        findings = self.findings
        kept = _join_findings(self._without_expired(path), findings)
        kept.sort(key=lambda one: (list(FaultKind).index(one.kind), one.commit_log_offset or 0))
        columns = {"columns": self.unknown_columns} if self.unknown_columns else {}
        return replace(
            planned,
            record_count=sum(part.record_count for part in self.parts),
            size_bytes=sum(part.size_bytes for part in self.parts),
            queue_count=self.queue_count,
            unit_count=sum(rest.unit_count for rest in self.rests),
            expired_unit_count=sum(rest.expired_count for rest in self.rests),
            index_file_count=self.index_file_count,
            index_entry_count=sum(part.index_entry_count for part in self.parts),
            archived_file_count=self.archived_file_count,
            archived_and_in_log_count=self.archived.in_both,
            only_archived_count=self.archived.only_archived,
            not_archived_count=self.archived.not_archived,
            counts={str(kind): count for kind, count in findings.counts.items() if count > 0},
            findings=[one.document() for one in kept],
            unchecked=planned.unchecked | columns,
            notes=list(self._list_notes()),
            _findings=kept,
        )

    def _list_notes(self) -> Iterator[str]:
        orphans = sum((part.orphans for part in self.parts), Counter[str]())
        for topic, count in sorted(orphans.items()):
            yield (
                f"the topic {topic} has {format_count(count, 'record')} in the log, and neither "
                "queues nor a configuration: taken for deleted"
            )
        if self._expired:
            yield f"{format_count(len(self._expired), 'file')} expired while the log was read"
        if self.store.is_live:
            yield "a broker runs on the store: it was looked at up to what is on disk"
        if any(count > KEPT_MAX for count in self.findings.counts.values()):
            yield f"at most {KEPT_MAX} findings of a kind are kept from each task"


def _find_end_of_blank(store: StoreDirectory, offset: int) -> int:
    """Return the end of the file if it is blank from *offset* on; 0 otherwise."""
    for file in store.segments:
        if file.base_offset <= offset < file.end_offset:
            with suppress(OSError), open(file.path, "rb") as opened:
                opened.seek(offset - file.base_offset)
                size, magic = BLANK_RECORD.unpack(opened.read(BLANK_RECORD.size))
                if magic == MAGIC_BLANK and offset + size == file.end_offset:
                    return file.end_offset
    return 0


def _check_claims(key: QueueKey, spans: list[ComparedSpan], findings: AuditFindings) -> None:
    """Report conflicting claims of records in different pieces; drop impossible *spans*."""
    for span in find_impossible_spans(tuple(spans)):
        spans[:] = [one for one in spans if not span.first <= one.first < span.behind]
        findings.forget_units(key.topic, key.queue_id, span.first, span.behind)
        reason = "the head of the record claims a queue offset that it cannot have"
        where = span.start, key.topic, key.queue_id, span.first, span.count
        findings.record(Finding(FaultKind.LOG_DAMAGE, reason, None, None, *where))
    for span in find_claimed_twice(tuple(spans)):
        reason = f"several records claim {span.count} offsets from here on"
        about = key.topic, key.queue_id, span.first, span.count
        findings.record(Finding(FaultKind.CONFLICT, reason, None, None, None, *about))


def _join_findings(kept: list[Finding], findings: AuditFindings) -> list[Finding]:
    """Merge findings about consecutive messages without units, even from several tasks."""
    joined: list[Finding] = []
    for one in sorted(
        kept, key=lambda one: (one.topic or "", one.queue_id or 0, one.queue_offset or 0)
    ):
        before = joined[-1] if joined else one
        behind = before.topic, before.queue_id, (before.queue_offset or 0) + before.count
        start = one.topic, one.queue_id, one.queue_offset
        if before.kind is one.kind is FaultKind.UNIT_MISSING and start == behind:
            count = before.count + one.count
            joined[-1] = replace(before, count=count, reason=describe_missing_units(count))
            findings.counts[one.kind] -= 1
        else:
            joined.append(one)
    return joined
