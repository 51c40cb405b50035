"""The work of a task on its pieces of the log: all comparisons that need no other pieces."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rockhopper.pipeline.decoder import Records
from rockhopper.pipeline.decoder.bodies import damaged_bodies, damaged_records
from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.pipeline.derived.entries import Entries, QueueKey, impossible_rows
from rockhopper.pipeline.derived.index_files import IndexFileInfo
from rockhopper.pipeline.derived.queue_files import queue_directory
from rockhopper.pipeline.jobs.auditing.archive import ArchivedRanges, LogSums, add_log_sums
from rockhopper.pipeline.jobs.auditing.findings import AuditFindings, FaultKind, Finding
from rockhopper.pipeline.jobs.auditing.index import check_index_entries, find_required_keys
from rockhopper.pipeline.jobs.auditing.queues import ComparedSpan, check_batch, check_plain
from rockhopper.pipeline.jobs.auditing.sys_flags import find_contradictions
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.scan import DamagedRange, scan
from rockhopper.protocol.names import LMQ_PREFIX


@dataclass(frozen=True, slots=True)
class AuditWork:
    """The data to compare pieces of the log with; Spark sends it to the workers."""

    root: Path | None
    rules: DispatchRules
    index_files: tuple[IndexFileInfo, ...] | None
    """None: ignore the index; empty: count the keys that it should have."""
    checks_bodies: bool
    checks_queues: bool
    archived: ArchivedRanges | None
    log_end: int
    has_multi_tags: bool = True
    """Whether there may be topics whose messages have several tags."""
    purged_topics: Mapping[str, int] = field(default_factory=dict)
    """Topic -> log offset; its messages before this offset were purged, but their units remain."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """Topic -> log offset; archives no longer have the topic's messages before this offset."""

    def __call__(self, pieces: Iterable[FilePiece]) -> "AuditPart":
        """Read the pieces once."""
        part = AuditPart()
        for piece in pieces:
            try:
                _audit_piece(self, piece, part)
            except FileNotFoundError:
                part.expired.append(piece.path)
        return part


@dataclass(slots=True)
class AuditPart:
    """The result of a task."""

    findings: AuditFindings = field(default_factory=AuditFindings)
    record_count: int = 0
    size_bytes: int = 0
    reached: int = 0
    """The end of the last record, or of damage that records follow."""
    damages: list[DamagedRange] = field(default_factory=list)
    spans: dict[QueueKey, list[ComparedSpan]] = field(default_factory=dict)
    batch_units: Counter[QueueKey] = field(default_factory=Counter)
    index_entry_count: int = 0
    unindexed_key_count: int = 0
    """Keys of messages in a store without an index."""
    orphans: Counter[str] = field(default_factory=Counter)
    """Records of topics without configuration and queues."""
    archive_sums: LogSums = field(default_factory=LogSums)
    expired: list[str] = field(default_factory=list)
    """Files that were deleted during the audit."""


def _audit_piece(work: AuditWork, piece: FilePiece, part: AuditPart) -> None:
    has_entries = work.root is not None and (work.checks_queues or work.index_files is not None)
    entries = Entries(work.rules, with_keys=work.index_files is not None)
    for found in scan(piece):
        if isinstance(found, DamagedRange):
            _note_damage(found, piece, part)
            if not found.is_torn_tail:
                part.reached = max(part.reached, found.end)
            continue
        part.record_count += len(found)
        part.size_bytes += int(found.ends[-1] - found.offsets[0])
        last = int(found.heads["physOffset"][-1]) + int(found.heads["size"][-1])
        part.reached = max(part.reached, last)
        if work.checks_bodies or has_entries:
            damaged = np.flatnonzero(damaged_bodies(found)).tolist()
            if work.checks_bodies:
                _check_records(found, damaged, piece, work.has_multi_tags, part.findings)
            if has_entries:
                entries.append_records(found, frozenset(damaged))
        if work.archived is not None:
            add_log_sums(work.archived, found, work.gone, part.archive_sums)
    if has_entries:
        _compare(work, piece, entries, part)


def _note_damage(damage: DamagedRange, piece: FilePiece, part: AuditPart) -> None:
    part.damages.append(damage)
    kind = FaultKind.TORN_TAIL if damage.is_torn_tail else FaultKind.LOG_DAMAGE
    reason = f"{damage.reason}; no record up to commit log offset {damage.end}"
    at = None if piece.is_missing else damage.start - piece.base_offset
    count = damage.end - damage.start
    part.findings.record(Finding(kind, reason, damage.path, at, damage.start, count=count))


def _check_records(
    records: Records,
    rows: list[int],
    piece: FilePiece,
    has_multi_tags: bool,
    findings: AuditFindings,
) -> None:
    """Report the damaged bodies in *rows*, and flags that contradict the rest of their records."""
    reason = "the CRC of the body is not the one that was stored with it"
    wrong = [(FaultKind.BODY, row, reason) for row in rows]
    reason = "the CRC that RocketMQ put into the properties is not that of the record"
    wrong += [
        (FaultKind.RECORD, row, reason) for row in damaged_records(records) if row not in rows
    ]
    flags = find_contradictions(records, has_multi_tags=has_multi_tags)
    wrong += [(FaultKind.SYS_FLAG, row, reason) for row, reason in flags]
    for kind, row, reason in wrong:
        offset = int(records.heads["physOffset"][row])
        topic = records.data[records.topic_start[row] : records.topic_end[row]].tobytes()
        queue_id, queue_offset = (int(records.heads[at][row]) for at in ("queueId", "queueOffset"))
        where = offset, topic.decode("utf-8", "replace"), queue_id, queue_offset
        findings.record(Finding(kind, reason, piece.path, offset - piece.base_offset, *where))


def _compare(work: AuditWork, piece: FilePiece, entries: Entries, part: AuditPart) -> None:
    assert work.root is not None
    end = min(piece.end, work.log_end)
    if work.checks_queues:
        for key, units in entries.queues().items():
            units = _drop_impossible(key, units, piece, part.findings)
            if _is_orphan(work, key):
                part.orphans[key.topic] += len(units)
            elif key.is_batch:
                count = check_batch(work.root, key, units, piece.start, end, part.findings)
                part.batch_units[key] += count
            else:
                purged_end = work.purged_topics.get(key.topic, 0)
                spans = check_plain(work.root, key, units, part.findings, purged_end)
                part.spans.setdefault(key, []).extend(spans)
    if work.index_files == ():
        keys = find_required_keys(entries.keys(), needs_tags=work.rules.has_tag_keys)
        part.unindexed_key_count += len(keys)
    elif work.index_files is not None:
        part.index_entry_count += check_index_entries(
            work.index_files,
            entries.keys(),
            piece.start,
            end,
            part.findings,
            needs_tags=work.rules.has_tag_keys,
        )


def _drop_impossible(key: QueueKey, units: Any, piece: FilePiece, findings: AuditFindings) -> Any:
    rows = impossible_rows(units)
    reason = "the head of the record claims a queue offset that it cannot have"
    for row in rows:
        offset = int(units["position"][row])
        where = offset, key.topic, key.queue_id, int(units["offset"][row])
        at = offset - piece.base_offset
        findings.record(Finding(FaultKind.LOG_DAMAGE, reason, piece.path, at, *where))
    return np.delete(units, rows) if rows else units


def _is_orphan(work: AuditWork, key: QueueKey) -> bool:
    known = work.rules.known_topics
    if known is None or key.topic in known or key.topic.startswith(LMQ_PREFIX):
        return False
    assert work.root is not None
    return not queue_directory(work.root, key).parent.exists()
