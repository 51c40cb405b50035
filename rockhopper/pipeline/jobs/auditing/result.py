"""The result of an audit."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rockhopper.pipeline.jobs.auditing.findings import HARMLESS, FaultKind, Finding
from rockhopper.pipeline.jobs.results import JobResult, format_count, format_size

_SHOWN_MAX = 30


@dataclass(frozen=True)
class AuditResult(JobResult):
    """The counts and the findings of an audit."""

    source: str
    is_dry_run: bool
    checks: tuple[str, ...]
    commit_log_start: int
    commit_log_end: int
    is_live: bool
    task_count: int
    record_count: int = 0
    size_bytes: int = 0
    queue_count: int = 0
    unit_count: int = 0
    expired_unit_count: int = 0
    index_file_count: int = 0
    index_entry_count: int = 0
    archived_file_count: int = 0
    archived_and_in_log_count: int = 0
    only_archived_count: int = 0
    not_archived_count: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Findings by kind."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)
    """Check -> why it was impossible, and what would enable it."""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _findings: list[Finding] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether there are no faults."""
        return not any(kind not in HARMLESS for kind in self.counts)

    def _check_lines(self) -> Iterable[str]:
        if "queues" in self.checks:
            yield (
                f"  queues   {format_count(self.queue_count, 'queue')}, "
                f"{format_count(self.unit_count, 'unit')}, "
                f"{self.expired_unit_count:,} of them expired"
            )
        if "index" in self.checks:
            yield (
                f"  index    {format_count(self.index_file_count, 'file')}, "
                f"{format_count(self.index_entry_count, 'entry', 'entries')}"
            )
        yield from self._unchecked_lines()
        if "archive" in self.checks:
            yield (
                f"  archive  {format_count(self.archived_file_count, 'file')}; "
                f"{self.archived_and_in_log_count:,} messages compared with the log, "
                f"{self.only_archived_count:,} only in the archive, "
                f"{self.not_archived_count:,} not archived yet"
            )

    def lines(self) -> Iterable[str]:
        """Yield a summary as text."""
        live = ", of a running broker" if self.is_live else ""
        log = f"{self.source}, commit log {self.commit_log_start} to {self.commit_log_end}{live}"
        if self.is_dry_run:
            yield f"Would audit {log}, in {format_count(self.task_count, 'task')}"
            yield f"  checks   {', '.join(self.checks)}"
            yield from self._unchecked_lines()
            return
        yield f"Audited {log}"
        rate = f", {self.size_bytes / 1e6 / self.seconds:,.0f} MB/s" if self.seconds > 0 else ""
        bodies = "" if "crc" in self.checks else ", bodies not checked"
        yield (
            f"  log      {format_count(self.record_count, 'record')}, "
            f"{format_size(self.size_bytes)} in {self.seconds:.1f} s{rate}{bodies}"
        )
        yield from self._check_lines()
        for note in self.notes:
            yield f"  note     {note}"
        if not self.counts:
            where = " in what was checked" if self.unchecked else ""
            yield f"Nothing is wrong{where}."
            return
        yield from self._finding_lines()

    def _unchecked_lines(self) -> Iterable[str]:
        for check, why in self.unchecked.items():
            yield f"  {check:8} not checked: {why}"

    def _finding_lines(self) -> Iterable[str]:
        total = sum(self.counts.values())
        yield f"Found {format_count(total, 'place')} where something is wrong:"
        by_kind: dict[FaultKind, list[Finding]] = {}
        for finding in self._findings:
            by_kind.setdefault(finding.kind, []).append(finding)
        for kind, found in by_kind.items():
            yield f"{kind} ({self.counts[kind]:,}): {found[0].remedy}"
            for finding in found[:_SHOWN_MAX]:
                yield f"  {finding.text()}"
            if self.counts[kind] > _SHOWN_MAX:
                yield f"  and {self.counts[kind] - _SHOWN_MAX:,} more; --json has all"
