"""Findings: what is kept of them, how they read, and what is taken back."""

import numpy as np
import pytest

from rockhopper.pipeline.jobs.auditing.findings import (
    KEPT_MAX,
    REMEDIES,
    AuditFindings,
    FaultKind,
    Finding,
    find_runs,
)


def missing(offset: int, topic: str = "T", kind: FaultKind = FaultKind.UNIT_MISSING) -> Finding:
    return Finding(kind, "it is not there", topic=topic, queue_id=1, queue_offset=offset)


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_kind_has_a_remedy(kind: FaultKind) -> None:
    assert Finding(kind, "why").remedy == REMEDIES[kind]


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding(FaultKind.BODY, "why"), ": why"),
        (Finding(FaultKind.BODY, "why", path="f"), "f: why"),
        (Finding(FaultKind.BODY, "why", path="f", file_offset=0), "f at byte 0: why"),
        (Finding(FaultKind.BODY, "why", commit_log_offset=7), "commit log offset 7: why"),
        (Finding(FaultKind.BODY, "why", topic="T"), "topic T: why"),
        (
            Finding(FaultKind.BODY, "why", "f", 1, 2, "T", 3, 4),
            "f at byte 1; commit log offset 2; topic T, queue 3, offset 4: why",
        ),
    ],
)
def test_a_finding_is_a_line_with_its_place(finding: Finding, text: str) -> None:
    assert finding.text() == text


def test_a_document_has_all_of_it() -> None:
    found = missing(4).document()
    assert (found["kind"], found["queueOffset"], found["path"]) == ("unit missing", 4, None)
    assert found["remedy"].startswith("stop the broker")


def test_all_are_counted_and_the_first_are_kept() -> None:
    findings = AuditFindings()
    for number in range(KEPT_MAX + 5):
        findings.record(missing(number))
    findings.record(Finding(FaultKind.BODY, "why"))
    other = AuditFindings()
    other.record(missing(1))
    findings.extend(other)
    assert findings.counts == {FaultKind.UNIT_MISSING: KEPT_MAX + 6, FaultKind.BODY: 1}
    assert len(findings.kept) == KEPT_MAX + 2


def test_what_was_said_of_some_units_is_taken_back() -> None:
    findings = AuditFindings()
    for finding in (
        *map(missing, (3, 4, 5, 6)),
        missing(4, "other"),
        missing(4, kind=FaultKind.UNIT_SURPLUS),
        missing(5, kind=FaultKind.UNIT_WRONG),
    ):
        findings.record(finding)
    findings.forget_units("T", 1, 4, 6)
    assert [(one.kind, one.topic, one.queue_offset) for one in findings.kept] == [
        (FaultKind.UNIT_MISSING, "T", 3),
        (FaultKind.UNIT_MISSING, "T", 6),
        (FaultKind.UNIT_MISSING, "other", 4),
        (FaultKind.UNIT_SURPLUS, "T", 4),
    ]
    assert +findings.counts == {FaultKind.UNIT_MISSING: 3, FaultKind.UNIT_SURPLUS: 1}


@pytest.mark.parametrize(
    ("mask", "runs"),
    [
        ([], []),
        ([0, 0], []),
        ([1, 1], [(0, 2)]),
        ([1, 0, 1, 1, 0], [(0, 1), (2, 4)]),
        ([0, 1], [(1, 2)]),
    ],
)
def test_runs_are_where_a_mask_is_true(mask: list[int], runs: list[tuple[int, int]]) -> None:
    assert list(find_runs(np.array(mask, np.bool_))) == runs
