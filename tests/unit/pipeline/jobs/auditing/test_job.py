"""An audit finds what is wrong, says where, and says nothing where nothing is wrong."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.pipeline.derived.index_files import index_paths, read_index_info
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.auditing.findings import REMEDIES, FaultKind
from rockhopper.pipeline.jobs.results import UsageProblem, as_document
from rockhopper.pipeline.store_source.directory import open_store
from rockhopper.protocol.store.record_head import (
    BORN_TIME_AT,
    FLAG_AT,
    HEAD_SIZE_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_OFFSET_AT,
)
from tests.support import apache_golden, open_stores
from tests.support.derived_stores import (
    APACHE_GEOMETRY,
    audited,
    derive,
    fill,
    write_store,
)
from tests.support.killed_store import copy_killed
from tests.support.peers import Clock
from tests.support.rot import flip_bit, overwrite
from tests.support.written_logs import WrittenLog


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


def test_foreign_files(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("x")
    (store / "consumequeue" / "Topic1" / "1" / "copy").write_text("x")

    result = audited(store)

    assert result.counts == {"foreign file": 2}
    assert {Path(one["path"]).name for one in result.findings} == {"notes.txt", "copy"}


def test_expired_files_and_deleted_topics_are_no_fault(store: Path) -> None:
    segment(store, 0).unlink()
    shutil.rmtree(store / "consumequeue" / "Topic0")
    note = store / "rockhopper" / "deleted-topics.json"
    note.write_text(json.dumps({"Topic0": 1 << 40}))

    result = audited(store)

    assert result.counts == {}
    assert result.expired_unit_count > 0


def test_a_topic_that_apache_deleted_is_told(tmp_path: Path) -> None:
    apache = apache_golden.unpack("plain", tmp_path).path
    shutil.rmtree(apache / "consumequeue" / "Untagged")
    for name in ("topics.json", "topics.json.bak"):
        path = apache / "config" / name
        path.write_text(path.read_text().replace('"Untagged"', '"Other"'))

    result = audited(apache, **APACHE_GEOMETRY)

    assert result.counts == {}
    assert any("Untagged" in note and "deleted" in note for note in result.notes)


@pytest.mark.parametrize(("number", "split_size"), [(40, None), (0, None), (57, 4096)])
def test_a_head_that_claims_an_impossible_offset(
    number: int, split_size: int | None, tmp_path: Path
) -> None:
    log = WrittenLog(tmp_path / "store", file_size_bytes=8192)
    for offset in range(100):
        log.add(topic="T", queue_id=0, queue_offset=offset)
    derive(log.root)
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
    overwrite(store / "consumequeue" / "Topic1" / "1" / f"{0:020d}", 0, bytes(20))

    document = json.loads(json.dumps(as_document(audited(store))))

    assert document["counts"] == {"unit missing": 1}
    assert document["findings"][0]["queueOffset"] == 0
    assert set(REMEDIES) == set(FaultKind)


def vouched_for(store: Path) -> Iterator[tuple[Path, int]]:
    """Every byte that a second place in the store, or a checksum, tells of."""
    for file in sorted((store / "commitlog").iterdir()):
        data = file.read_bytes()
        at = 0
        while int.from_bytes(data[at + 4 : at + 8], "big") in (MAGIC_V1, MAGIC_V2):
            size, body = (int.from_bytes(data[at + one : at + one + 4], "big") for one in (0, 84))
            topic_end = HEAD_SIZE_BYTES + body + 1 + data[at + HEAD_SIZE_BYTES + body]
            covered = [
                *range(FLAG_AT),
                *range(QUEUE_OFFSET_AT, BORN_TIME_AT),
                *range(84, topic_end),
            ]
            yield from ((file, at + one) for one in covered)
            at += size
    for file in sorted((store / "consumequeue").rglob("0" * 20)):
        yield from ((file, at) for at in range(len(file.read_bytes().rstrip(b"\0"))))
    for path in index_paths(store / "index"):
        info = read_index_info(path, 16, 400, look_behind=False)
        # Not the last time's milliseconds, nor how many slots are in use.
        yield from ((path, at) for at in (*range(14), *range(16, 32), *range(36, 40)))
        entries = range(info.entries_at + 20, info.entries_at + 20 * info.next_number)
        yield from ((path, at) for at in (*range(40, info.entries_at), *entries))


@pytest.mark.parametrize("seed", range(3))
def test_each_flipped_bit_is_found(seed: int, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 40)
    dice = random.Random(seed)
    unnamed = []
    for path, position in dice.sample(list(vouched_for(store)), 60):
        bit = dice.randrange(8)
        held = flip_bit(path, position, bit)
        if audited(store).is_good:
            unnamed.append((str(path.relative_to(store)), position, bit))
        path.write_bytes(held)
    assert unnamed == []
    assert audited(store).is_good


@pytest.mark.parametrize("checks", [["crc"], None])
def test_the_newest_file_of_the_log_is_missing(checks: list[str] | None, store: Path) -> None:
    newest = segment(store, -1)
    end = open_store(str(store)).noted_end
    newest.unlink()

    result = audited(store, checks=checks)

    assert result.counts["log damage"] == 1
    damage = next(one for one in result.findings if one["kind"] == "log damage")
    assert "the newest commit log files are missing" in damage["reason"]
    assert (damage["commitLogOffset"], damage["count"]) == (
        int(newest.name),
        end - int(newest.name),
    )
    assert "restore" in damage["remedy"]


def test_the_last_records_are_zeros(store: Path) -> None:
    newest = segment(store, -1)
    data = newest.read_bytes()
    overwrite(newest, 0, bytes(len(data)))

    result = audited(store, checks=["crc"])

    assert [one["commitLogOffset"] for one in result.findings] == [int(newest.name)]
    assert "no record is left of the newest part" in result.findings[0]["reason"]


def test_a_torn_write_of_a_killed_broker_is_no_damage(tmp_path: Path) -> None:
    clock = Clock()
    broker = open_stores.open_store(tmp_path / "store", clock)
    fill(broker, clock, 20)
    end = broker.log.written_offset
    killed = copy_killed(tmp_path / "store", tmp_path / "killed")
    open_stores.close(broker)
    overwrite(segment(killed, end // 4096), end % 4096, b"\0\0\1\0torn")

    assert audited(killed).is_good


def test_the_newest_file_was_cut_off_where_nothing_stood(store: Path) -> None:
    newest = segment(store, -1)
    os.truncate(newest, len(newest.read_bytes().rstrip(b"\0")) + 8)

    (finding,) = audited(store, checks=["crc"]).findings

    assert (finding["kind"], finding["path"]) == ("log damage", str(newest))
    assert "the one before 4096" in finding["reason"]
