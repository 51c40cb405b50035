"""Compare the index with the log: it must have every key of each message, and no other keys."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.derived.entries import KIND_KEY, KIND_OPTIONAL, KIND_TAG
from rockhopper.pipeline.derived.index_files import (
    IndexFileInfo,
    check_chains,
    entries_between,
    index_paths,
    seconds_since,
)
from rockhopper.pipeline.jobs.auditing.findings import AuditFindings, FaultKind, Finding, find_runs
from rockhopper.pipeline.jobs.results import format_count
from rockhopper.protocol.store.queue_layout import INDEX_ENTRY_SIZE_BYTES

Array = npt.NDArray[Any]
# A crash leaves whole seconds.
_END_SLACK_MS = 999
_Part = tuple[IndexFileInfo, int, Array]
"""A file, the number of its first selected entry, and these entries."""


def check_index_entries(
    files: Sequence[IndexFileInfo],
    keys: Array,
    start: int,
    end: int,
    findings: AuditFindings,
    *,
    needs_tags: bool,
) -> int:
    """Compare the entries of messages in [start, end) with *keys*, the keys of those messages.

    Optional are entries of deleted topics and of damaged bodies, and tags unless *needs_tags*.
    Returns the number of entries.
    """
    parts = [(file, *entries_between(file, start, end)) for file in files]
    parts = [part for part in parts if len(part[2])]
    held = [_codes(part[2]["position"], part[2]["hash"], start) for part in parts]
    all_held = np.concatenate(held) if held else np.empty(0, np.int64)
    required = find_required_keys(keys, needs_tags=needs_tags)
    codes = _codes(required["position"], required["hash"], start)
    if len(codes) == len(all_held) and (codes == all_held).all():
        _check_times(parts, held, codes, required["ms"], findings)
        return len(all_held)
    missing = ~np.isin(codes, all_held)
    for low, high in find_runs(missing):
        first, last = int(required["position"][low]), int(required["position"][high - 1])
        span = "" if first == last else f" up to {last}"
        reason = f"{high - low} keys of the messages from here{span} are not in the index"
        findings.record(
            Finding(FaultKind.INDEX_MISSING, reason, commit_log_offset=first, count=high - low)
        )
    optional = keys[(keys["kind"] == KIND_OPTIONAL) | (keys["kind"] == KIND_TAG)]
    known = np.concatenate((codes, _codes(optional["position"], optional["hash"], start)))
    _check_times(parts, held, known, np.concatenate((required["ms"], optional["ms"])), findings)
    what = "are no keys of the messages that they point to"
    for part, entry_codes in zip(parts, held, strict=True):
        _report(part, ~np.isin(entry_codes, known), what, findings)
    return len(all_held)


def _report(part: _Part, mask: Array, what: str, findings: AuditFindings) -> None:
    file, first, entries = part
    for low, high in find_runs(mask):
        findings.record(
            Finding(
                FaultKind.INDEX_SURPLUS,
                f"{high - low} entries from number {first + low} on {what}",
                file.path,
                file.entries_at + (first + low) * INDEX_ENTRY_SIZE_BYTES,
                int(entries["position"][low]),
                count=high - low,
            )
        )


def find_required_keys(keys: Array, *, needs_tags: bool) -> Array:
    """Return the *keys* that the index must have."""
    required: Array = keys[(keys["kind"] == KIND_KEY) | ((keys["kind"] == KIND_TAG) & needs_tags)]
    return required


def make_no_index_finding(directory: Path, key_count: int) -> Finding:
    """Return the finding for a store whose messages have keys, but whose index has no entries."""
    what = "the directory is missing"
    if directory.is_dir():
        what = "no file there has entries" if index_paths(directory) else "there are no index files"
    keys = format_count(key_count, "key")
    return Finding(
        FaultKind.INDEX_MISSING,
        f"{what}, so none of the {keys} of the log's messages is found; it is no fault where the "
        "broker has messageIndexEnable=false: then leave the check index out",
        str(directory),
        count=key_count,
    )


def _codes(positions: Array, hashes: Array, start: int) -> npt.NDArray[np.int64]:
    """Combine position and hash in one number; positions of a piece are less than 2³¹ apart."""
    relative = positions.astype(np.int64) - start
    codes: npt.NDArray[np.int64] = (relative << 32) | (hashes.astype(np.int64) & 0xFFFFFFFF)
    return codes


def _check_times(
    parts: Sequence[_Part],
    held: Sequence[npt.NDArray[np.int64]],
    known: npt.NDArray[np.int64],
    known_ms: Array,
    findings: AuditFindings,
) -> None:
    """Compare the times of entries and headers with those of their messages, if *known*."""
    if not len(known):
        return
    order = np.argsort(known, kind="stable")
    ordered, times_ms = known[order], known_ms.astype(np.int64)[order]
    for part, codes in zip(parts, held, strict=True):
        file, first, entries = part
        rows = np.minimum(np.searchsorted(ordered, codes), len(ordered) - 1)
        is_known = ordered[rows] == codes
        ms = times_ms[rows]
        wrong = is_known & (entries["seconds"] != seconds_since(ms, file.begin_ms))
        if first == 1:
            wrong[0] = is_known[0] and not _may_begin_with(file, int(entries[0]["seconds"]), ms[:1])
        what = "have another time than their messages, so a look-up by time misses them"
        _report(part, wrong, what, findings)
        _check_header_times(part, is_known, ms, findings)


def _may_begin_with(file: IndexFileInfo, seconds: int, ms: Array) -> bool:
    """Return whether a file's first entry may have this time.

    The time counts from the end of the previous file. If a crash truncated that file, its end is
    known only to the second.
    """
    if file.former_end_ms is None:
        return seconds >= 0
    return abs(seconds - int(seconds_since(ms, file.former_end_ms)[0])) <= (file.former_end_ms > 0)


def _check_header_times(part: _Part, is_known: Array, ms: Array, findings: AuditFindings) -> None:
    """Compare the begin and end times of a file with those of its messages."""
    file, first, entries = part
    last = first + len(entries) - 1
    for number, row, name, at, held, slack in (
        (1, 1 - first, "begins", 0, file.begin_ms, 0),
        (file.next_number - 1, len(entries) - 1, "ends", 8, file.end_ms, _END_SLACK_MS),
    ):
        if not (file.is_settled and first <= number <= last and is_known[row]):
            continue
        if not 0 <= held - int(ms[row]) <= slack:
            reason = f"its header says that it {name} at {held} ms, and its message has {ms[row]}"
            position = int(entries["position"][row])
            findings.record(Finding(FaultKind.INDEX_FILE, reason, file.path, at, position))


def check_index_file(log_end: int, is_live: bool, file: IndexFileInfo) -> AuditFindings:
    """Check that look-ups reach every entry of the file, and that it ends where the log does."""
    findings = AuditFindings()
    try:
        problems = list(check_chains(file))
        _, behind = entries_between(file, log_end, 1 << 62)
    except FileNotFoundError:
        return findings  # It has expired.
    if not is_live:
        for number, position, reason in problems:
            at = file.entries_at + number * INDEX_ENTRY_SIZE_BYTES
            findings.record(Finding(FaultKind.INDEX_FILE, reason, file.path, at, position))
        if len(behind):
            count, position = len(behind), int(behind["position"][0])
            reason = f"{format_count(count, 'entry', 'entries')} pointing behind the end of the log"
            findings.record(
                Finding(FaultKind.INDEX_SURPLUS, reason, file.path, None, position, count=count)
            )
    return findings
