"""Compare consume queues with the log.

A task that reads a piece of the log compares the units of its messages. The remaining units belong
to no message: they point to expired messages, or to nothing.
"""

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.pipeline.derived.queue_files import ListedQueueFiles, Units, is_blank
from rockhopper.pipeline.jobs.auditing.findings import AuditFindings, FaultKind, Finding, find_runs
from rockhopper.pipeline.jobs.results import format_count
from rockhopper.pipeline.store_source.scan import DamagedRange
from rockhopper.protocol.store.compare import Verdict, compare_unit
from rockhopper.protocol.store.expected import ExpectedUnit, Place
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN
from rockhopper.protocol.store.store_paths import CONSUME_QUEUE_EXT_DIRECTORY

Array = npt.NDArray[Any]

_FIELDS = ("position", "size", "code", "ms", "offset", "n")


@dataclass(frozen=True, slots=True)
class ComparedSpan:
    """Queue offsets [first, behind) that a task has compared."""

    first: int
    behind: int
    start: int
    """The commit log offset of the first record."""
    end: int
    """The end of the last record."""

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.behind - self.first


def check_plain(
    root: Path, key: QueueKey, units: Array, findings: AuditFindings, purged_end: int = 0
) -> list[ComparedSpan]:
    """Compare the expected units, in log order, with those in the files.

    Messages before *purged_end* were purged: the files with their units may be deleted.
    """
    files = ListedQueueFiles(root, key)
    spans = []
    edges = np.flatnonzero(np.diff(units["offset"]) != 1) + 1
    for part in np.split(units, edges):
        first, behind = int(part["offset"][0]), int(part["offset"][-1]) + 1
        start, end = int(part["position"][0]), int(part["position"][-1] + part["size"][-1])
        spans.append(ComparedSpan(first, behind, start, end))
        held = files.read(first, behind)
        wrong = np.zeros(len(part), np.bool_)
        for name in ("position", "size", "code"):
            wrong |= held[name] != part[name]
        if purged_end:
            wrong &= (part["position"] >= purged_end) | (part["offset"] >= files.start)
        missing = np.zeros(len(part), np.bool_)
        for row in np.flatnonzero(wrong).tolist():
            missing[row] = is_blank(held[row])
            if not missing[row]:
                verdict = _compare(root, key, part[row], held[row].item())
                wrong[row] = verdict is not Verdict.RIGHT
                missing[row] = verdict is Verdict.MISSING
        _report(files, part, held, missing, findings, FaultKind.UNIT_MISSING)
        _report(files, part, held, wrong & ~missing, findings, FaultKind.UNIT_WRONG)
    return spans


def _compare(root: Path, key: QueueKey, wanted: Any, held: tuple[int, ...]) -> Verdict:
    """Compare the fields of a unit with the wanted one (``UNIT``)."""
    offset, log_offset, size_bytes, code, time_ms, count = wanted.item()
    place = Place(key.topic, key.queue_id, offset, count)
    unit = ExpectedUnit(place, log_offset, size_bytes, code, time_ms)
    # Records that claim one offset are found when all tasks are done.
    verdict = compare_unit(unit, held, lambda _: None, is_batch=key.is_batch)
    if verdict is Verdict.EXTENDED and _extension_code(root, key, held[2]) == code:
        return Verdict.RIGHT
    return verdict


def _report(
    files: ListedQueueFiles,
    part: Array,
    held: Units,
    mask: Array,
    findings: AuditFindings,
    kind: FaultKind,
) -> None:
    for start, end in find_runs(mask):
        if kind is FaultKind.UNIT_MISSING:
            reason = describe_missing_units(end - start)
        else:
            reason = _difference(part[start], held[start], end - start)
        first, position = int(part["offset"][start]), int(part["position"][start])
        findings.record(_about_units(files, first, end - start, kind, reason, position))


def _about_units(
    files: ListedQueueFiles,
    first: int,
    count: int,
    kind: FaultKind,
    reason: str,
    position: int | None = None,
) -> Finding:
    """Return a finding about units of a plain queue, whose numbers are queue offsets."""
    key = files.key
    path, at = files.place(first)
    return Finding(kind, reason, path, at, position, key.topic, key.queue_id, first, count)


def describe_missing_units(count: int) -> str:
    """Return the reason for messages without units."""
    return f"no unit for {format_count(count, 'message')}"


def find_claimed_twice(spans: tuple[ComparedSpan, ...]) -> list[ComparedSpan]:
    """Return the offsets that several records claim."""
    found: list[ComparedSpan] = []
    reach = -1
    for span in sorted(spans, key=lambda span: span.first):
        if span.first < reach:
            found.append(replace(span, behind=min(reach, span.behind)))
        reach = max(reach, span.behind)
    return found


def find_impossible_spans(spans: tuple[ComparedSpan, ...]) -> list[ComparedSpan]:
    """Return the spans with impossible offsets: the log has no room for the messages before them.

    If two sides contradict each other, the one with fewer messages counts as damaged.
    """
    refused: list[ComparedSpan] = []
    chain: list[ComparedSpan] = []
    for span in merge_spans(spans):
        if chain:
            missing = span.first - chain[-1].behind
            if missing * RECORD_SIZE_BYTES_MIN > span.start - chain[-1].end:
                if span.count <= sum(one.count for one in chain):
                    refused.append(span)
                    continue
                refused += chain
                chain = []
        chain.append(span)
    return refused


def _difference(expected: Any, held: Any, count: int) -> str:
    names = {"position": "commit log offset", "size": "size", "code": "tags code"}
    differs = _find_differing(names, expected, held) or "another size"
    verb = "differs" if count == 2 else "differ"
    more = f", and {format_count(count - 1, 'message')} behind it {verb} too" if count > 1 else ""
    return f"the unit has {differs}{more}"


def _find_differing(names: Mapping[str, str], expected: Any, held: Any) -> str:
    """Describe the fields that differ, by their display *names*; empty if none does."""
    return ", ".join(
        f"{text} {int(held[name])} instead of {int(expected[name])}"
        for name, text in names.items()
        if int(held[name]) != int(expected[name])
    )


def _extension_code(root: Path, key: QueueKey, address: int) -> int | None:
    """Return the tags code in the extension unit at *address*."""
    at = address + (1 << 63)
    directory = root / CONSUME_QUEUE_EXT_DIRECTORY / key.topic / str(key.queue_id)
    with suppress(OSError):
        names = sorted(name for name in os.listdir(directory) if name.isdecimal())
        for name in reversed(names):
            if int(name) <= at:
                with open(directory / name, "rb") as file:
                    file.seek(at - int(name) + 2)
                    return int.from_bytes(file.read(8), "big", signed=True)
    return None


def check_batch(
    root: Path, key: QueueKey, units: Array, start: int, end: int, findings: AuditFindings
) -> int:
    """Compare the units of records in [start, end) of the log; return their number."""
    files = ListedQueueFiles(root, key)
    behind = files.used_end()
    first = _first_at(files, behind, start)
    number = _first_at(files, behind, end)
    held = files.read(first, number)
    if len(held) == len(units) and all((held[name] == units[name]).all() for name in _FIELDS):
        return len(held)
    positions = held["position"].astype(np.int64)
    missing = ~np.isin(units["position"], positions)
    for low, high in find_runs(missing):
        count, messages = high - low, int(units["n"][low:high].sum())
        reason = f"no unit for {count} records with {messages} messages"
        position, offset = int(units["position"][low]), int(units["offset"][low])
        about = position, key.topic, key.queue_id, offset, count
        findings.record(Finding(FaultKind.UNIT_MISSING, reason, str(files.directory), None, *about))
    rows = np.searchsorted(units["position"], positions)
    for row, expected in enumerate(rows.tolist()):
        path, at = files.place(first + row)
        unit = held[row]
        offset = int(unit["offset"])
        where = path, at, int(positions[row]), key.topic, key.queue_id, offset
        if expected == len(units) or int(units["position"][expected]) != int(positions[row]):
            reason = "the unit points to a place where no record of this queue starts"
            findings.record(Finding(FaultKind.UNIT_SURPLUS, reason, *where))
            continue
        if _compare(root, key, units[expected], unit.item()) is not Verdict.RIGHT:
            differs = _find_differing({name: name for name in _FIELDS}, units[expected], unit)
            findings.record(Finding(FaultKind.UNIT_WRONG, f"the unit has {differs}", *where))
    return len(held)


def _first_at(files: ListedQueueFiles, behind: int, offset: int) -> int:
    """Return the first unit before *behind* of a record at log offset *offset* or later."""
    numbers = range(files.start, behind)
    return files.start + bisect_left(
        numbers, offset, key=lambda at: int(files.read(at, at + 1)["position"][0])
    )


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds and damaged places of the log."""

    start: int
    end: int
    is_live: bool
    damages: tuple[DamagedRange, ...]


Compared = tuple[QueueKey, tuple[ComparedSpan, ...], int]
"""A queue, its compared spans, and for a batch queue the number of compared units."""


@dataclass(slots=True)
class RestResult:
    """The result of ``check_rest``."""

    findings: AuditFindings
    unit_count: int = 0
    expired_count: int = 0


def check_rest(root: Path, bounds: LogBounds, queues: Iterable[Compared]) -> RestResult:
    """Check the units that belong to no message of the log."""
    result = RestResult(AuditFindings())
    for key, spans, compared in queues:
        files = ListedQueueFiles(root, key)
        for path in files.foreign:
            reason = "it is no file of a consume queue"
            result.findings.record(
                Finding(
                    FaultKind.FOREIGN_FILE, reason, path, topic=key.topic, queue_id=key.queue_id
                )
            )
        if key.is_batch:
            _check_batch_rest(files, compared, bounds, result)
        else:
            _check_plain_rest(files, merge_spans(spans), bounds, result)
    return result


def merge_spans(spans: tuple[ComparedSpan, ...]) -> list[ComparedSpan]:
    """Merge spans into as few as possible, ascending."""
    found: list[ComparedSpan] = []
    for span in sorted(spans, key=lambda span: span.first):
        if found and span.first <= found[-1].behind:
            last = max(found[-1], span, key=lambda one: one.behind)
            found[-1] = replace(found[-1], behind=last.behind, end=last.end)
        else:
            found.append(span)
    return found


def _check_plain_rest(
    files: ListedQueueFiles, spans: list[ComparedSpan], bounds: LogBounds, result: RestResult
) -> None:
    end = files.used_end()
    result.unit_count += end - files.start
    at = files.start
    for span in [*spans, None]:
        stop = end if span is None else span.first
        for first, units in files.chunks(at, min(stop, end)):
            _judge(files, first, units, bounds, result)
            if at > files.start and span is not None:
                for low, high in find_runs(units["size"] <= 0):
                    _report_gap(files, first + low, first + high, result)
        if span is not None:
            if at > files.start and max(at, end) < span.first:
                _report_gap(files, max(at, end), span.first, result)
            at = max(at, span.behind)


def _judge(
    files: ListedQueueFiles, first: int, units: Units, bounds: LogBounds, result: RestResult
) -> None:
    """Check units between or after those that were compared."""
    positions = units["position"].astype(np.int64)
    is_used = (units["size"] > 0) & ~is_blank(units)
    is_expired = is_used & (positions < bounds.start)
    result.expired_count += int(is_expired.sum())
    suspicious = is_used & ~is_expired
    if bounds.is_live:
        suspicious &= positions < bounds.end
    for low, high in find_runs(suspicious):
        _report_surplus(files, first + low, units[low:high], bounds, result)


def _report_surplus(
    files: ListedQueueFiles, first: int, units: Units, bounds: LogBounds, result: RestResult
) -> None:
    position = int(units["position"][0])
    kind = FaultKind.UNIT_SURPLUS
    count = len(units)
    if any(damage.start <= position < damage.end for damage in bounds.damages):
        kind = FaultKind.MESSAGE_LOST
        lost = format_count(count, "message")
        reason = f"{lost} lost: the units point into a damaged place of the log"
    elif position >= bounds.end:
        reason = f"{format_count(count, 'unit')} pointing behind the end of the log"
    else:
        reason = (
            f"{format_count(count, 'unit')} pointing to places where no message of this queue is"
        )
    result.findings.record(_about_units(files, first, count, kind, reason, position))


def _report_gap(files: ListedQueueFiles, first: int, behind: int, result: RestResult) -> None:
    missing = format_count(behind - first, "message")
    reason = f"{missing} neither in the log nor in the queue, with others behind"
    result.findings.record(
        _about_units(files, first, behind - first, FaultKind.MESSAGE_LOST, reason)
    )


def _check_batch_rest(
    files: ListedQueueFiles, compared: int, bounds: LogBounds, result: RestResult
) -> None:
    end = files.used_end()
    expired = _first_at(files, end, bounds.start)
    inside = _first_at(files, end, bounds.end)
    result.unit_count += end - files.start
    result.expired_count += expired - files.start
    key = files.key
    if inside < end and not bounds.is_live:
        path, at = files.place(inside)
        reason = f"{format_count(end - inside, 'unit')} pointing behind the end of the log"
        result.findings.record(
            Finding(FaultKind.UNIT_SURPLUS, reason, path, at, None, key.topic, key.queue_id)
        )
    if inside - expired > compared:
        surplus = format_count(inside - expired - compared, "unit")
        reason = f"{surplus} pointing to places of the log without a record"
        path = str(files.directory)
        result.findings.record(
            Finding(FaultKind.UNIT_SURPLUS, reason, path, topic=key.topic, queue_id=key.queue_id)
        )
