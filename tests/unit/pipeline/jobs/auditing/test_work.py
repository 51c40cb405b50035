"""What a task says of its pieces of the log: damage, bodies, deleted topics, what it counted."""

from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.pipeline.jobs.auditing.findings import FaultKind
from rockhopper.pipeline.jobs.auditing.queues import ComparedSpan
from rockhopper.pipeline.jobs.auditing.work import AuditPart, AuditWork
from rockhopper.pipeline.store_source.directory import open_store
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.splits import plan
from rockhopper.protocol.store.record_head import BORN_TIME_AT
from tests.support import golden_stores
from tests.support.derived_stores import audited, derive
from tests.support.rot import overwrite
from tests.support.written_logs import WrittenLog


def segment(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def test_a_body_that_was_changed(store: Path) -> None:
    path = segment(store, 2)
    at = path.read_bytes().index(b"body 7", 500)
    overwrite(path, at, b"BODY")

    result = audited(store)

    assert result.counts == {"body": 1}
    finding = result.findings[0]
    assert finding["path"] == str(path)
    assert finding["fileOffset"] == at - 88
    assert finding["commitLogOffset"] == 2 * 4096 + at - 88
    assert finding["topic"].startswith("Topic")
    assert finding["queueOffset"] >= 0
    assert "restore" in finding["remedy"]
    assert not result.is_good
    assert audited(store, checks=["queues", "index"]).is_good


def test_a_segment_of_zeros_and_one_that_is_missing(store: Path) -> None:
    overwrite(segment(store, 1), 0, bytes(4096))
    segment(store, 3).unlink()

    result = audited(store)

    damages = [one for one in result.findings if one["kind"] == "log damage"]
    assert [one["commitLogOffset"] for one in damages] == [4096, 3 * 4096]
    assert "missing" in damages[1]["reason"]


def test_a_torn_tail_is_harmless(store: Path) -> None:
    last = segment(store, -1)
    data = last.read_bytes()
    end = len(data.rstrip(b"\0"))
    overwrite(last, end + 2, (300).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + b"torn")

    result = audited(store)

    assert set(result.counts) <= {"torn tail"}
    assert result.is_good


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Twenty messages of one queue, and its units."""
    log = WrittenLog(tmp_path / "log", file_size_bytes=1024)
    for offset in range(20):
        log.add(topic="T", queue_id=1, queue_offset=offset)
    derive(log.root)
    return log


def part_of(log: WrittenLog, known: frozenset[str] | None = None, **asked: Any) -> AuditPart:
    """What a task says of the whole log."""
    store = open_store(str(log.root))
    groups = plan(
        store, StoreReadRules(str(log.root), (), split_size_bytes=4096, corrupt_records="skip"), 1
    )
    given: dict[str, Any] = {
        "root": log.root,
        "rules": DispatchRules(known_topics=known),
        "index_files": None,
        "checks_bodies": True,
        "checks_queues": True,
        "archived": None,
        "log_end": store.readable_end,
        **asked,
    }
    return AuditWork(**given)([piece for group in groups for piece in group])


def test_records_are_counted_and_their_queues_compared(log: WrittenLog) -> None:
    part = part_of(log)

    size = log.offsets[1] - log.offsets[0]
    assert part.record_count == 20
    # Ten have a digit more in body and key; what fills up the files is no record.
    assert part.size_bytes == 20 * size + 10 * 2 < log.end
    (spans,) = part.spans.values()
    assert list(part.spans) == [QueueKey("T", 1, False)]
    assert (spans[0].first, spans[-1].behind) == (0, 20)
    assert all(isinstance(span, ComparedSpan) for span in spans)
    assert (part.findings.kept, part.damages, part.expired) == ([], [], [])


def test_what_is_not_asked_for_is_not_looked_at(log: WrittenLog) -> None:
    log.write(log.offsets[3] + 88, b"BODY")
    overwrite(log.root / "consumequeue" / "T" / "1" / f"{0:020d}", 0, bytes(20))

    assert set(part_of(log).findings.counts) == {FaultKind.BODY, FaultKind.UNIT_MISSING}
    assert set(part_of(log, checks_bodies=False).findings.counts) == {FaultKind.UNIT_MISSING}
    queues_apart = part_of(log, checks_queues=False)
    assert (set(queues_apart.findings.counts), queues_apart.spans) == ({FaultKind.BODY}, {})
    assert set(part_of(log, root=None).findings.counts) == {FaultKind.BODY}


def test_a_body_says_where_its_record_is(log: WrittenLog) -> None:
    log.write(log.offsets[15] + 88, b"BODY")

    (found,) = part_of(log).findings.kept

    assert (found.topic, found.queue_id, found.queue_offset) == ("T", 1, 15)
    assert found.commit_log_offset == log.offsets[15]
    assert found.path == str(log.file_of(log.offsets[15]))
    assert found.file_offset == log.offsets[15] % 1024


def test_a_flag_that_no_topic_can_have(log: WrittenLog) -> None:
    log.write(log.offsets[5] + 36, (2).to_bytes(4, "big"))

    (found,) = part_of(log, has_multi_tags=False).findings.kept

    assert (found.kind, found.commit_log_offset) == (FaultKind.SYS_FLAG, log.offsets[5])
    assert "several tags" in found.reason
    assert part_of(log).findings.kept == []


def test_files_that_expire_meanwhile_are_told(log: WrittenLog, monkeypatch: Any) -> None:
    first = log.file_of(0)
    data = first.read_bytes()

    def vanish(piece: Any) -> Any:
        first.unlink()
        raise FileNotFoundError(piece.path)

    monkeypatch.setattr("rockhopper.pipeline.jobs.auditing.work.scan", vanish)
    part = part_of(log)
    first.write_bytes(data)

    assert part.expired[0] == str(first)
    assert (part.record_count, part.findings.kept) == (0, [])


def test_a_piece_that_is_missing_has_no_byte_in_a_file(log: WrittenLog) -> None:
    log.file_of(log.offsets[0] + 1024).unlink()

    part = part_of(log)

    (damage,) = part.damages
    found = next(one for one in part.findings.kept if one.kind is FaultKind.LOG_DAMAGE)
    assert (found.file_offset, found.commit_log_offset, found.count) == (None, 1024, 1024)
    assert (damage.start, damage.end) == (1024, 2048)


def test_records_of_topics_that_nobody_knows_are_counted_apart(log: WrittenLog) -> None:
    for path in sorted((log.root / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()

    part = part_of(log, known=frozenset({"other"}))

    assert part.orphans == {"T": 20}
    assert (part.spans, part.findings.kept) == ({}, [])
    assert part_of(log, known=frozenset({"T"})).findings.counts[FaultKind.UNIT_MISSING] > 0
    (log.root / "consumequeue" / "T").mkdir(parents=True)
    assert part_of(log, known=frozenset({"other"})).orphans == {}


def test_an_offset_that_a_record_cannot_have_is_damage(log: WrittenLog) -> None:
    log.write(log.offsets[4] + 20, (1 << 40).to_bytes(8, "big"))

    part = part_of(log)

    (found,) = part.findings.kept
    assert (found.kind, found.queue_offset) == (FaultKind.LOG_DAMAGE, 1 << 40)
    assert found.commit_log_offset == log.offsets[4]
    spans = part.spans[QueueKey("T", 1, False)]
    assert sum(span.count for span in spans) == 19


@pytest.mark.parametrize(("index_files", "keys"), [((), 20), (None, 0)])
def test_keys_without_an_index_are_counted(
    index_files: tuple[()] | None, keys: int, log: WrittenLog
) -> None:
    part = part_of(log, index_files=index_files)

    assert (part.unindexed_key_count, part.index_entry_count) == (keys, 0)


def test_a_record_that_ends_with_a_crc_of_its_own(tmp_path: Path) -> None:
    store = golden_stores.copy_golden_store("crcprop", tmp_path / "store")
    assert audited(store, checks=["crc"]).counts == {}
    (segment,) = (store / "commitlog").iterdir()
    overwrite(segment, BORN_TIME_AT, bytes(4))

    (finding,) = audited(store, checks=["crc"]).findings

    assert (finding["kind"], finding["commitLogOffset"]) == ("record", 0)
    assert "put into the properties" in finding["reason"]
