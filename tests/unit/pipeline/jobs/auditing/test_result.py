"""What an audit says of itself."""

from collections import Counter
from typing import Any

import pytest

from rockhopper.pipeline.jobs.auditing.findings import FaultKind, Finding
from rockhopper.pipeline.jobs.auditing.result import AuditResult

ALL = ("crc", "queues", "index", "archive")


def result(checks: tuple[str, ...] = ALL, found: list[Finding] | None = None, **more: Any) -> Any:
    given: dict[str, Any] = {"is_dry_run": False, "is_live": False, "task_count": 3, **more}
    counts = Counter(str(finding.kind) for finding in found or [])
    return AuditResult(
        "log",
        checks=checks,
        commit_log_start=5,
        commit_log_end=900,
        counts=counts,
        _findings=found or [],
        **given,
    )


def test_all_that_was_looked_at() -> None:
    made = result(
        is_live=True,
        record_count=2000,
        size_bytes=4_000_000,
        seconds=0.5,
        queue_count=1,
        unit_count=2000,
        expired_unit_count=1000,
        index_file_count=2,
        index_entry_count=1,
        archived_file_count=1,
        archived_and_in_log_count=1500,
        only_archived_count=3,
        not_archived_count=4,
        notes=["seen"],
    )

    assert list(made.lines()) == [
        "Audited log, commit log 5 to 900, of a running broker",
        "  log      2,000 records, 4.0 MB in 0.5 s, 8 MB/s",
        "  queues   1 queue, 2,000 units, 1,000 of them expired",
        "  index    2 files, 1 entry",
        "  archive  1 file; 1,500 messages compared with the log, 3 only in the archive, 4 not "
        "archived yet",
        "  note     seen",
        "Nothing is wrong.",
    ]


def test_what_was_not_looked_at_is_said() -> None:
    made = result(("queues",), unchecked={"index": "why not"})

    assert list(made.lines()) == [
        "Audited log, commit log 5 to 900",
        "  log      0 records, 0 bytes in 0.0 s, bodies not checked",
        "  queues   0 queues, 0 units, 0 of them expired",
        "  index    not checked: why not",
        "Nothing is wrong in what was checked.",
    ]


def test_what_would_be_looked_at() -> None:
    made = result(("crc", "queues"), is_dry_run=True, unchecked={"index": "why not"})

    assert list(made.lines()) == [
        "Would audit log, commit log 5 to 900, in 3 tasks",
        "  checks   crc, queues",
        "  index    not checked: why not",
    ]


@pytest.mark.parametrize(
    ("kinds", "is_good"),
    [([], True), ([FaultKind.TORN_TAIL], True), ([FaultKind.TORN_TAIL, FaultKind.BODY], False)],
)
def test_what_is_harmless_is_no_fault(kinds: list[FaultKind], is_good: bool) -> None:
    assert result(found=[Finding(kind, "why") for kind in kinds]).is_good == is_good


def test_findings_stand_below_their_kinds_and_not_all_of_many() -> None:
    bodies = [Finding(FaultKind.BODY, "why", commit_log_offset=n) for n in range(32)]
    made = result((), [Finding(FaultKind.TORN_TAIL, "torn"), *bodies])

    lines = list(made.lines())[2:]

    assert lines[0] == "Found 33 places where something is wrong:"
    assert lines[1] == "torn tail (1): nothing: the broker cuts it off when it starts"
    assert lines[2] == "  : torn"
    assert lines[3].startswith("body (32): restore the file")
    assert lines[4] == "  commit log offset 0: why"
    assert lines[33:] == ["  commit log offset 29: why", "  and 2 more; --json has all"]
