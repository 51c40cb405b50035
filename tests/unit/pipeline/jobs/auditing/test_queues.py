"""Consume queues against the log: units that differ, are missing, or are those of nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rockhopper.pipeline.derived.entries import UNIT, QueueKey
from rockhopper.pipeline.jobs.auditing.findings import AuditFindings, FaultKind
from rockhopper.pipeline.jobs.auditing.queues import (
    ComparedSpan,
    LogBounds,
    RestResult,
    check_batch,
    check_plain,
    check_rest,
    find_claimed_twice,
    find_impossible_spans,
    merge_spans,
)
from rockhopper.pipeline.store_source.scan import DamagedRange
from tests.support import apache_golden
from tests.support.derived_files import QueueWriter, pack_units
from tests.support.derived_stores import APACHE_GEOMETRY, audited
from tests.support.rot import overwrite
from tests.support.written_logs import WrittenLog


def queue_file(store: Path, topic: str = "Topic1", queue: int = 1) -> Path:
    return store / "consumequeue" / topic / str(queue) / f"{0:020d}"


def change(at: int, data: bytes) -> Callable[[Path], object]:
    return lambda path: overwrite(path, at, data)


@pytest.mark.parametrize(
    ("damage", "kind", "says"),
    [
        (change(5 * 20, (9999).to_bytes(8, "big")), "unit wrong", "commit log offset 9999 instead"),
        (change(5 * 20 + 8, (7).to_bytes(4, "big")), "unit wrong", "size 7 instead of"),
        (change(5 * 20 + 12, (1).to_bytes(8, "big")), "unit wrong", "tags code 1 instead of"),
        (change(5 * 20, bytes(20)), "unit missing", "no unit for 1 message"),
    ],
)
def test_a_unit_that_is_not_what_the_log_says(
    damage: Callable[[Path], object], kind: str, says: str, store: Path
) -> None:
    path = queue_file(store)
    damage(path)

    result = audited(store)

    assert result.counts == {kind: 1}
    finding = result.findings[0]
    assert (finding["path"], finding["fileOffset"]) == (str(path), 100)
    assert (finding["topic"], finding["queueId"], finding["queueOffset"]) == ("Topic1", 1, 5)
    assert says in finding["reason"]
    assert "rebuild" in finding["remedy"]


def test_a_queue_that_is_gone_and_one_that_ends_early(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Topic0")
    last = sorted((store / "consumequeue" / "Topic1" / "1").iterdir())[-1]
    last.unlink()

    result = audited(store)

    assert result.counts == {"unit missing": 2}
    assert [(one["topic"], one["queueOffset"]) for one in result.findings] == [
        ("Topic0", 0),
        ("Topic1", 50),
    ]


def test_units_of_no_message(store: Path) -> None:
    path = queue_file(store, "Topic2", 0)
    data = path.read_bytes()
    used = len(data.rstrip(b"\0")) // 20 + 1
    overwrite(path, used * 20, data[:20])
    far = (1 << 30).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    overwrite(path, (used + 1) * 20, far)

    result = audited(store)

    assert set(result.counts) == {"unit surplus"}
    assert result.findings[0]["queueOffset"] == used
    assert result.findings[0]["fileOffset"] == used * 20


def test_a_batch_queue(tmp_path: Path) -> None:
    apache = apache_golden.unpack("batch", tmp_path).path
    path = apache / "batchconsumequeue" / "Batches" / "1" / f"{0:020d}"
    overwrite(path, 46 * 2 + 36, (3).to_bytes(2, "big"))
    overwrite(path, 46 * 4, (77).to_bytes(8, "big"))

    result = audited(apache, **APACHE_GEOMETRY)

    assert result.counts["unit wrong"] == 1
    assert any("n 3 instead of" in one["reason"] for one in result.findings)
    assert result.counts["unit missing"] >= 1


def test_queue_files_of_a_topic_that_was_purged_may_be_gone(store: Path) -> None:
    queue_file(store).unlink()
    missing = audited(store)
    (store / "rockhopper" / "purged-topics.json").write_text(json.dumps({"Topic1": 1 << 40}))

    assert missing.counts == {"unit missing": 1}
    assert audited(store).counts == {}


def test_two_records_that_claim_one_offset(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(3, topic="t", queue_id=0)
    log.add(topic="t", queue_id=0, queue_offset=1)

    result = audited(log.root, checks=["queues"])

    assert result.counts["conflict"] == 1
    conflict = next(one for one in result.findings if one["kind"] == "conflict")
    assert (conflict["topic"], conflict["queueOffset"], conflict["count"]) == ("t", 1, 1)


PLAIN, BATCH = QueueKey("T", 3, False), QueueKey("T", 3, True)
SIZE = 100


def units(*offsets: int, position: int | None = None) -> Any:
    """What records of 100 bytes each must have; record 0 stands at 0."""
    made = np.zeros(len(offsets), UNIT)
    made["offset"] = offsets
    made["position"] = np.array(offsets) * SIZE if position is None else position
    made["size"], made["code"], made["ms"], made["n"] = SIZE, 7, 1000, 1
    return made


def write(root: Path, key: QueueKey, first: int, made: Any) -> None:
    QueueWriter(root, key, 4096).write(first, pack_units(made, key.is_batch))


def told(findings: AuditFindings) -> list[tuple[FaultKind, int | None, int]]:
    return [(one.kind, one.queue_offset, one.count) for one in findings.kept]


def plain(
    root: Path, expected: Any, purged_end: int = 0
) -> tuple[list[ComparedSpan], AuditFindings]:
    findings = AuditFindings()
    return check_plain(root, PLAIN, expected, findings, purged_end), findings


def test_what_was_compared_is_told_run_by_run(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, 0, units(0, 1, 2, 3, 4, 5))

    spans, findings = plain(tmp_path, units(1, 2, 4))

    assert spans == [ComparedSpan(1, 3, 100, 300), ComparedSpan(4, 5, 400, 500)]
    assert [span.count for span in spans] == [2, 1]
    assert findings.kept == []


def test_units_that_differ_in_a_row_are_one_finding(tmp_path: Path) -> None:
    held = units(0, 1, 2, 3, 4, 5)
    held["size"][1:4] = 99
    held["code"][1] = 8
    held[5] = 0
    write(tmp_path, PLAIN, 0, held)

    _, findings = plain(tmp_path, units(0, 1, 2, 3, 4, 5))

    assert told(findings) == [(FaultKind.UNIT_MISSING, 5, 1), (FaultKind.UNIT_WRONG, 1, 3)]
    missing, wrong = findings.kept
    assert missing.reason == "no unit for 1 message"
    assert wrong.reason == (
        "the unit has size 99 instead of 100, tags code 8 instead of 7, and 2 messages behind it "
        "differ too"
    )
    assert (wrong.commit_log_offset, wrong.topic, wrong.queue_id) == (100, "T", 3)
    assert (wrong.path, wrong.file_offset) == (str(tmp_path / f"consumequeue/T/3/{0:020d}"), 20)


def test_blank_units_are_none(tmp_path: Path) -> None:
    QueueWriter(tmp_path, PLAIN, 4096).fill_front(3)

    assert told(plain(tmp_path, units(1, 2))[1]) == [(FaultKind.UNIT_MISSING, 1, 2)]


@pytest.mark.parametrize(("purged_end", "missing"), [(0, 4), (200, 2), (400, 0)])
def test_units_of_purged_messages_may_be_gone_with_their_files(
    purged_end: int, missing: int, tmp_path: Path
) -> None:
    write(tmp_path, PLAIN, 205, units(205))  # in the queue's second file

    _, findings = plain(tmp_path, units(0, 1, 2, 3), purged_end)

    assert sum(one.count for one in findings.kept) == missing


@pytest.mark.parametrize(("held", "kinds"), [(7, []), (8, [FaultKind.UNIT_WRONG])])
def test_a_code_may_be_the_address_of_one_in_an_extension(
    held: int, kinds: list[FaultKind], tmp_path: Path
) -> None:
    made = units(0, 1)
    made["code"][1] = 40 - (1 << 63)
    write(tmp_path, PLAIN, 0, made)
    directory = tmp_path / "consumequeue_ext" / "T" / "3"
    directory.mkdir(parents=True)
    (directory / "08").write_bytes(bytes(34) + held.to_bytes(8, "big") + b"more")
    (directory / "90").write_bytes(b"behind it")
    (directory / "notes").write_bytes(b"foreign")

    assert [one.kind for one in plain(tmp_path, units(0, 1))[1].kept] == kinds


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([ComparedSpan(0, 5, 0, 500), ComparedSpan(5, 7, 500, 700)], [ComparedSpan(0, 7, 0, 700)]),
        ([ComparedSpan(5, 7, 500, 700), ComparedSpan(0, 5, 0, 500)], [ComparedSpan(0, 7, 0, 700)]),
        ([ComparedSpan(0, 9, 0, 900), ComparedSpan(2, 4, 200, 400)], [ComparedSpan(0, 9, 0, 900)]),
        (
            [ComparedSpan(0, 2, 0, 1), ComparedSpan(3, 4, 2, 3)],
            [ComparedSpan(0, 2, 0, 1), ComparedSpan(3, 4, 2, 3)],
        ),
    ],
)
def test_spans_that_touch_are_one(spans: list[ComparedSpan], expected: list[ComparedSpan]) -> None:
    assert merge_spans(tuple(spans)) == expected


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 5), (5, 9)], []),
        ([(0, 5), (4, 9)], [(4, 5)]),
        ([(0, 9), (2, 4), (3, 12)], [(2, 4), (3, 9)]),
        ([(4, 5), (4, 5)], [(4, 5)]),
    ],
)
def test_offsets_that_several_records_claim(
    spans: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    found = find_claimed_twice(tuple(ComparedSpan(*span, 0, 0) for span in spans))
    assert [(span.first, span.behind) for span in found] == expected


def test_of_two_spans_that_the_log_has_no_room_between_the_shorter_is_wrong() -> None:
    chain, far = ComparedSpan(0, 10, 0, 1000), ComparedSpan(1 << 40, (1 << 40) + 1, 1000, 1100)

    assert find_impossible_spans((chain, far)) == [far]
    assert find_impossible_spans(
        (ComparedSpan(0, 1, 0, 100), ComparedSpan(900, 950, 100, 5100))
    ) == [ComparedSpan(0, 1, 0, 100)]
    # Nine messages of 91 bytes at least, as many as there is room for, and one more.
    assert find_impossible_spans((chain, ComparedSpan(19, 20, 1000 + 9 * 91, 9999))) == []
    assert find_impossible_spans((chain, ComparedSpan(20, 21, 1000 + 9 * 91, 9999))) != []
    assert find_impossible_spans(()) == []


def rest(
    root: Path, *spans: ComparedSpan, key: QueueKey = PLAIN, compared: int = 0, **bounds: Any
) -> RestResult:
    given: dict[str, Any] = {"start": 0, "end": 600, "is_live": False, "damages": (), **bounds}
    return check_rest(root, LogBounds(**given), [(key, spans, compared)])


def test_units_that_no_message_claims(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, 0, units(0, 1, 2, 3, 4, 5, 6, 7))
    damage = DamagedRange(400, 500, "zeros", "log")

    found = rest(tmp_path, ComparedSpan(2, 4, 200, 400), start=100, damages=(damage,))

    assert (found.unit_count, found.expired_count) == (8, 1)
    assert [(one.kind, one.queue_offset, one.reason) for one in found.findings.kept] == [
        (FaultKind.UNIT_SURPLUS, 1, "1 unit pointing to places where no message of this queue is"),
        (
            FaultKind.MESSAGE_LOST,
            4,
            "4 messages lost: the units point into a damaged place of the log",
        ),
    ]


@pytest.mark.parametrize(("is_live", "count"), [(False, 2), (True, 0)])
def test_units_behind_the_log_are_those_of_a_running_broker(
    is_live: bool, count: int, tmp_path: Path
) -> None:
    write(tmp_path, PLAIN, 0, units(0, 6, 7))

    found = rest(tmp_path, ComparedSpan(0, 1, 0, 100), is_live=is_live).findings.kept

    assert sum(one.count for one in found) == count
    if found:
        assert found[0].reason == "2 units pointing behind the end of the log"


def test_messages_that_are_nowhere_and_have_others_behind_them(tmp_path: Path) -> None:
    made = units(0, 1, 2, 3, 4, 5)
    made[2:4] = 0
    write(tmp_path, PLAIN, 0, made)

    inside = rest(tmp_path, ComparedSpan(0, 2, 0, 200), ComparedSpan(4, 6, 400, 600))
    behind = rest(tmp_path, ComparedSpan(0, 2, 0, 200), ComparedSpan(9, 10, 500, 600))
    at_the_end = rest(tmp_path, ComparedSpan(0, 6, 0, 600))

    assert told(inside.findings) == [(FaultKind.MESSAGE_LOST, 2, 2)]
    assert "neither in the log nor in the queue" in inside.findings.kept[0].reason
    assert (FaultKind.MESSAGE_LOST, 6, 3) in told(behind.findings)
    assert at_the_end.findings.kept == []


def test_files_that_are_none_of_the_queue(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, 0, units(0))
    foreign = tmp_path / "consumequeue" / "T" / "3" / "notes"
    foreign.write_text("x")

    (found,) = rest(tmp_path, ComparedSpan(0, 1, 0, 100)).findings.kept

    assert (found.kind, found.path) == (FaultKind.FOREIGN_FILE, str(foreign))


def test_a_queue_without_files(tmp_path: Path) -> None:
    assert rest(tmp_path) == RestResult(AuditFindings())


def test_batches_are_found_by_their_places(tmp_path: Path) -> None:
    expected = units(0, 5, 9)
    write(tmp_path, BATCH, 0, expected)
    findings = AuditFindings()

    assert check_batch(tmp_path, BATCH, expected[1:], 500, 901, findings) == 2
    assert findings.kept == []
    assert check_batch(tmp_path, BATCH, units(0, 7, 9), 0, 1000, findings) == 3
    assert told(findings) == [(FaultKind.UNIT_MISSING, 7, 1), (FaultKind.UNIT_SURPLUS, 5, 1)]
    assert check_batch(tmp_path, BATCH, units(0, position=99), 1000, 2000, findings) == 0


@pytest.mark.parametrize(
    ("compared", "bounds", "reasons"),
    [
        (3, {}, []),
        (2, {}, ["1 unit pointing to places of the log without a record"]),
        (2, {"start": 100}, []),
        (2, {"end": 900}, ["1 unit pointing behind the end of the log"]),
        (2, {"end": 900, "is_live": True}, []),
    ],
)
def test_units_of_batches_that_no_record_claims(
    compared: int, bounds: dict[str, Any], reasons: list[str], tmp_path: Path
) -> None:
    write(tmp_path, BATCH, 0, units(0, 5, 9))

    found = rest(tmp_path, key=BATCH, compared=compared, **{"end": 1000, **bounds})

    assert [one.reason for one in found.findings.kept] == reasons
    assert (found.unit_count, found.expired_count) == (3, int("start" in bounds))
