"""An audit finds what is wrong, says where, and says nothing where nothing is wrong."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rockhopper.pipeline.derived.index_files import index_paths, read_index_info
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.auditing.findings import KEPT_MAX, REMEDIES, Findings, Kind, runs_of
from rockhopper.pipeline.jobs.results import UsageProblem, as_document
from tests.support import apache_golden, golden_stores, open_stores
from tests.support.derived_stores import (
    APACHE_GEOMETRY,
    audited,
    fill,
    rebuilt,
    write_store,
)
from tests.support.peers import Clock
from tests.support.rot import overwrite
from tests.support.written_logs import WrittenLog


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path / "store")


def queue_file(store: Path, topic: str = "Topic1", queue: int = 1) -> Path:
    return store / "consumequeue" / topic / str(queue) / f"{0:020d}"


def segment(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


@pytest.mark.parametrize("split_size", [None, 4096])
def test_nothing_is_wrong_with_what_our_broker_wrote(store: Path, split_size: int | None) -> None:
    result = audited(store, split_size=split_size)

    assert result.is_good
    assert result.counts == {}
    assert (result.record_count, result.unit_count, result.queue_count) == (200, 200, 4)
    assert result.index_entry_count > 400
    assert list(result.lines())[-1] == "Nothing is wrong."


@pytest.mark.parametrize("name", ["plain", "batch", "extended", "killed"])
def test_nor_with_what_apache_wrote(name: str, tmp_path: Path) -> None:
    apache = apache_golden.unpack(name, tmp_path).path

    result = audited(apache, split_size=4096, **APACHE_GEOMETRY)

    assert result.counts == {}
    assert result.record_count == result.unit_count


@pytest.mark.parametrize("name", ["plain", "killed"])
def test_the_geometry_of_an_index_need_not_be_said(name: str, tmp_path: Path) -> None:
    apache = apache_golden.unpack(name, tmp_path).path

    result = audited(apache, index_slots=None, index_entries=None)

    assert "index" in result.checks
    assert result.index_entry_count > 0
    assert result.counts == {}


def without_telling_entries(store: Path) -> None:
    """Damage the headers of the index, so that nothing tells its geometry."""
    for path in index_paths(store / "index"):
        overwrite(path, 24, (1 << 40).to_bytes(8, "big"))


def test_where_the_geometry_is_not_known_all_else_is_checked(tmp_path: Path) -> None:
    apache = apache_golden.unpack("plain", tmp_path).path
    without_telling_entries(apache)
    unsaid = {"index_slots": None, "index_entries": None}

    result = audited(apache, **unsaid)

    assert (result.is_good, result.counts) == (True, {})
    assert result.checks == ("crc", "queues")
    assert result.unit_count == result.record_count > 0
    document = as_document(result)
    assert "--index-slots and --index-entries" in document["unchecked"]["index"]
    lines = list(result.lines())
    assert any(line.startswith("  index    not checked: the index files have") for line in lines)
    assert lines[-1] == "Nothing is wrong in what was checked."
    foretold = list(audited(apache, dry_run=True, **unsaid).lines())
    assert any(line.startswith("  index    not checked: ") for line in foretold)
    with pytest.raises(PipelineError, match="set --index-slots and --index-entries"):
        audited(apache, checks=["index"], **unsaid)
    assert audited(apache, index_entries=None, index_slots=64).index_file_count > 0


def test_what_a_crash_of_the_reference_takes_from_the_index(tmp_path: Path) -> None:
    reference = golden_stores.copy_golden_store("three_sessions", tmp_path / "store")

    result = audited(reference, index_slots=16, index_entries=4000)

    assert result.counts == {"index missing": 1}
    assert result.findings[0]["commitLogOffset"] == 0
    assert result.findings[0]["count"] == 48


def test_a_store_that_a_broker_writes_is_looked_at_up_to_what_is_on_disk(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", Clock()
    opened = open_stores.open_store(root, clock)
    try:
        fill(opened, clock, 150)
        open_stores.flush(opened)
        open_stores.flush_derived_files(opened)
        fill(opened, clock, 50)
        result = audited(root)
    finally:
        open_stores.close(opened)

    assert result.is_live
    assert result.counts == {}
    assert result.record_count == 150


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


def test_zeros_in_the_log_and_the_messages_that_they_took(store: Path) -> None:
    path = segment(store, 1)
    overwrite(path, 1000, bytes(700))

    result = audited(store)

    assert result.counts["log damage"] == 1
    assert result.counts["message lost"] >= 1
    damage = result.findings[0]
    assert damage["path"] == str(path)
    assert damage["commitLogOffset"] < 4096 + 1000 + 150
    lost = [one["count"] for one in result.findings if one["kind"] == "message lost"]
    assert sum(lost) == 200 - result.record_count


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


def test_foreign_files(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("x")
    (store / "consumequeue" / "Topic1" / "1" / "copy").write_text("x")

    result = audited(store)

    assert result.counts == {"foreign file": 2}
    assert {Path(one["path"]).name for one in result.findings} == {"notes.txt", "copy"}


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


def entry_at(path: Path, number: int) -> int:
    return 40 + 16 * 4 + number * 20


def test_index_entries_that_are_not_what_the_log_says(store: Path) -> None:
    path = index_paths(store / "index")[0]
    overwrite(path, entry_at(path, 9), (12345).to_bytes(4, "big"))

    result = audited(store)

    assert result.counts["index missing"] == 1
    assert result.counts["index surplus"] == 1
    surplus = next(one for one in result.findings if one["kind"] == "index surplus")
    assert (surplus["path"], surplus["fileOffset"]) == (str(path), entry_at(path, 9))


def test_a_chain_that_does_not_lead_to_its_entries(store: Path) -> None:
    path = index_paths(store / "index")[0]
    overwrite(path, entry_at(path, 300) + 16, bytes(4))

    result = audited(store)

    assert set(result.counts) == {"index file"}
    assert "chain" in result.findings[0]["reason"]


def test_another_time_than_the_message_has(store: Path) -> None:
    path = index_paths(store / "index")[0]
    overwrite(path, entry_at(path, 300) + 12, (4000).to_bytes(4, "big"))

    assert audited(store).counts == {"index surplus": 1}


def test_an_index_file_of_another_length_or_with_a_mad_header(store: Path) -> None:
    paths = index_paths(store / "index")
    os.truncate(paths[-1], 100)
    overwrite(paths[0], 36, (401).to_bytes(4, "big"))

    result = audited(store)

    assert result.counts["index file"] == 2
    assert result.counts["index missing"] >= 1


@pytest.mark.parametrize("split_size", [None, 4096])
@pytest.mark.parametrize("left", ["nothing", "the directory", "an empty file"])
def test_an_index_that_is_gone(left: str, split_size: int | None, store: Path) -> None:
    key_count = audited(store).index_entry_count
    index = store / "index"
    size = index_paths(index)[0].stat().st_size
    shutil.rmtree(index)
    if left != "nothing":
        index.mkdir()
    if left == "an empty file":
        (index / "20261120120000000").write_bytes(bytes(size))

    result = audited(store, split_size=split_size)

    assert not result.is_good
    assert result.counts == {"index missing": 1}
    (finding,) = result.findings
    assert (finding["path"], finding["count"]) == (str(index), key_count)
    assert f"none of the {key_count} keys" in finding["reason"]
    assert "rebuild" in finding["remedy"]
    assert audited(store, checks=["crc", "queues"]).is_good


def test_a_log_without_keys_needs_no_index(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(5, topic="T", queue_id=0, properties={"TAGS": "a"})
    rebuilt(log.root, None, in_place=True)
    shutil.rmtree(log.root / "index", ignore_errors=True)

    assert audited(log.root).counts == {}


def test_entries_that_the_header_does_not_count_yet(store: Path) -> None:
    path = index_paths(store / "index")[-1]
    whole = read_index_info(path, 16, 400, look_behind=False)
    overwrite(path, 36, (5).to_bytes(4, "big"))
    data = path.read_bytes()
    overwrite(path, 24, data[entry_at(path, 4) + 4 : entry_at(path, 4) + 12])

    assert read_index_info(path, 16, 400, look_behind=True).next_number == whole.next_number
    assert audited(store).counts == {}


def test_expired_files_and_deleted_topics_are_no_fault(store: Path) -> None:
    segment(store, 0).unlink()
    shutil.rmtree(store / "consumequeue" / "Topic0")
    note = store / "rockhopper" / "deleted-topics.json"
    note.write_text(json.dumps({"Topic0": 1 << 40}))

    result = audited(store)

    assert result.counts == {}
    assert result.expired_unit_count > 0


def test_queue_files_of_a_topic_that_was_purged_may_be_gone(store: Path) -> None:
    queue_file(store).unlink()
    missing = audited(store)
    (store / "rockhopper" / "purged-topics.json").write_text(json.dumps({"Topic1": 1 << 40}))

    assert missing.counts == {"unit missing": 1}
    assert audited(store).counts == {}


def test_a_topic_that_apache_deleted_is_told(tmp_path: Path) -> None:
    apache = apache_golden.unpack("plain", tmp_path).path
    shutil.rmtree(apache / "consumequeue" / "Untagged")
    for name in ("topics.json", "topics.json.bak"):
        path = apache / "config" / name
        path.write_text(path.read_text().replace('"Untagged"', '"Other"'))

    result = audited(apache, **APACHE_GEOMETRY)

    assert result.counts == {}
    assert any("Untagged" in note and "deleted" in note for note in result.notes)


def test_two_records_that_claim_one_offset(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(3, topic="t", queue_id=0)
    log.add(topic="t", queue_id=0, queue_offset=1)

    result = audited(log.root, checks=["queues"])

    assert result.counts["conflict"] == 1
    conflict = next(one for one in result.findings if one["kind"] == "conflict")
    assert (conflict["topic"], conflict["queueOffset"], conflict["count"]) == ("t", 1, 1)


@pytest.mark.parametrize(("number", "split_size"), [(40, None), (0, None), (57, 4096)])
def test_a_head_that_claims_an_impossible_offset(
    number: int, split_size: int | None, tmp_path: Path
) -> None:
    log = WrittenLog(tmp_path / "store", file_size_bytes=8192)
    for offset in range(100):
        log.add(topic="T", queue_id=0, queue_offset=offset)
    rebuilt(log.root, None, in_place=True)
    log.write(log.offsets[number] + 20, (1 << 40).to_bytes(8, "big"))

    result = audited(log.root, split_size=split_size, checks=["crc", "queues"])

    assert result.counts == {"log damage": 1, "unit surplus": 1}
    damage, surplus = result.findings
    assert damage["commitLogOffset"] == surplus["commitLogOffset"] == log.offsets[number]
    assert "cannot have" in damage["reason"]


def test_checks_can_be_chosen(store: Path) -> None:
    with pytest.raises(UsageProblem, match="did you mean 'queues'"):
        audited(store, checks=["queue"])
    with pytest.raises(UsageProblem, match="needs an archive"):
        audited(store, checks=["archive"])
    alone = store.parent / "alone" / "commitlog"
    shutil.copytree(store / "commitlog", alone)
    with pytest.raises(UsageProblem, match="neither queues nor an index"):
        audited(alone, checks=["queues"])
    assert audited(alone).checks == ("crc",)
    with pytest.raises(PipelineError, match="no archive"):
        audited(store, archive=str(store))


def test_the_result_for_programs(store: Path) -> None:
    overwrite(queue_file(store), 0, bytes(20))

    document = json.loads(json.dumps(as_document(audited(store))))

    assert document["counts"] == {"unit missing": 1}
    assert document["findings"][0]["queueOffset"] == 0
    assert set(REMEDIES) == set(Kind)


def test_many_findings_are_counted_and_few_kept() -> None:
    import numpy as np

    from rockhopper.pipeline.jobs.auditing.findings import Finding

    findings = Findings()
    for number in range(KEPT_MAX + 50):
        findings.add(Finding(Kind.BODY, "x", commit_log_offset=number))

    assert len(findings.kept) == KEPT_MAX
    assert findings.counts[Kind.BODY] == KEPT_MAX + 50
    assert list(runs_of(np.array([1, 1, 0, 1], bool))) == [(0, 2), (3, 4)]
