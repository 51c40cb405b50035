"""The index against the log: keys without an entry, entries of no key, chains, times."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rockhopper.pipeline.derived.entries import KEY, KIND_KEY, KIND_OPTIONAL, KIND_TAG
from rockhopper.pipeline.derived.index_files import (
    IndexFileInfo,
    index_paths,
    read_index_info,
)
from rockhopper.pipeline.jobs.auditing.findings import AuditFindings, FaultKind
from rockhopper.pipeline.jobs.auditing.index import (
    check_index_entries,
    check_index_file,
    find_required_keys,
    make_no_index_finding,
)
from tests.support import golden_stores
from tests.support.derived_files import write_index_file
from tests.support.derived_stores import audited, derive
from tests.support.rot import flip_bit, overwrite
from tests.support.written_logs import WrittenLog


def entry_at(path: Path, number: int) -> int:
    return 40 + 16 * 4 + number * 20


def test_what_a_crash_of_the_reference_takes_from_the_index(tmp_path: Path) -> None:
    reference = golden_stores.copy_golden_store("three_sessions", tmp_path / "store")

    result = audited(reference, index_slots=16, index_entries=4000)

    assert result.counts == {"index missing": 1}
    assert result.findings[0]["commitLogOffset"] == 0
    assert result.findings[0]["count"] == 48


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


def test_entries_that_the_header_does_not_count_yet(store: Path) -> None:
    path = index_paths(store / "index")[-1]
    whole = read_index_info(path, 16, 400, look_behind=False)
    overwrite(path, 36, (5).to_bytes(4, "big"))
    data = path.read_bytes()
    overwrite(path, 24, data[entry_at(path, 4) + 4 : entry_at(path, 4) + 12])
    (store / "abort").touch()

    assert read_index_info(path, 16, 400, look_behind=True).next_number == whole.next_number
    assert audited(store).counts == {}
    (store / "abort").unlink()
    assert audited(store).counts == {"index file": 2}


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        (7, "it begins at"),
        (13, "it ends at"),
        (23, "it begins at"),
        (31, "it ends at"),
        (33, "slots are in use"),
        (39, "its header counts"),
    ],
)
def test_each_field_of_the_header_is_compared(position: int, reason: str, store: Path) -> None:
    path = index_paths(store / "index")[-1]
    flip_bit(path, position, 2 if position == 39 else 1)

    found = [each for each in audited(store).findings if reason in each["reason"]]

    assert [each["path"] for each in found] == [str(path)]


def test_a_hash_that_is_negative(store: Path) -> None:
    path = index_paths(store / "index")[0]
    flip_bit(path, entry_at(path, 9), 7)

    assert audited(store).counts == {"index missing": 1, "index surplus": 1}


def test_times_are_compared_beside_the_messages_of_a_deleted_topic(store: Path) -> None:
    path = index_paths(store / "index")[0]
    (store / "rockhopper" / "deleted-topics.json").write_text('{"Topic1": 1000000}')
    shutil.rmtree(store / "consumequeue" / "Topic1")
    assert audited(store).counts == {}
    times = {entry_at(path, number) + 14 for number in range(20, 40)}
    for position in times:
        flip_bit(path, position)

    assert audited(store).counts["index surplus"] >= 1


def test_a_log_without_keys_needs_no_index(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(5, topic="T", queue_id=0, properties={"TAGS": "a"})
    derive(log.root)
    shutil.rmtree(log.root / "index", ignore_errors=True)

    assert audited(log.root).counts == {}


def keys(*positions: int, kind: int = KIND_KEY) -> Any:
    """Keys of messages at these places, each of another hash, stored when they stand there."""
    made = np.zeros(len(positions), KEY)
    made["position"] = positions
    made["hash"] = np.array(positions) * 7 + 1
    made["ms"] = np.array(positions) * 1000 + 5000
    made["kind"] = kind
    return made


def index_file(path: Path, made: Any) -> IndexFileInfo:
    write_index_file(path, made["hash"], made["position"], made["ms"], 8, 50, 0)
    return read_index_info(path, 8, 50, look_behind=False)


def compared(
    files: list[IndexFileInfo], wanted: Any, start: int = 0, end: int = 1000, tags: bool = True
) -> tuple[int, list[tuple[FaultKind, int | None, int]]]:
    findings = AuditFindings()
    count = check_index_entries(files, wanted, start, end, findings, needs_tags=tags)
    return count, [(one.kind, one.commit_log_offset, one.count) for one in findings.kept]


def test_entries_are_compared_over_files_and_only_of_the_piece(tmp_path: Path) -> None:
    files = [
        index_file(tmp_path / "1", keys(10, 20, 30)),
        index_file(tmp_path / "2", keys(40, 50)),
    ]

    assert compared(files, keys(10, 20, 30, 40, 50)) == (5, [])
    assert compared(files, keys(20, 30, 40), 20, 50) == (3, [])
    assert compared(files, keys(), 60, 90) == (0, [])
    assert compared([], keys(10, 20)) == (0, [(FaultKind.INDEX_MISSING, 10, 2)])


def test_what_is_missing_and_what_is_too_much_is_told_run_by_run(tmp_path: Path) -> None:
    files = [index_file(tmp_path / "1", keys(10, 20, 30, 60))]

    assert compared(files, keys(10, 40, 50, 60)) == (
        4,
        [(FaultKind.INDEX_MISSING, 40, 2), (FaultKind.INDEX_SURPLUS, 20, 2)],
    )


def test_the_reasons_name_places_and_numbers(tmp_path: Path) -> None:
    info, findings = index_file(tmp_path / "1", keys(10, 20)), AuditFindings()

    check_index_entries([info], keys(10, 40, 50), 0, 99, findings, needs_tags=True)

    missing, surplus = findings.kept
    assert missing.reason == "2 keys of the messages from here up to 50 are not in the index"
    assert surplus.reason.startswith("1 entries from number 2 on are no keys of the messages")
    assert (surplus.path, surplus.file_offset) == (info.path, info.entries_at + 2 * 20)


@pytest.mark.parametrize("kind", [KIND_TAG, KIND_OPTIONAL])
@pytest.mark.parametrize("is_there", [True, False])
def test_tags_and_what_deleted_topics_had_may_be_there_or_not(
    kind: int, is_there: bool, tmp_path: Path
) -> None:
    wanted = np.concatenate((keys(10), keys(20, kind=kind)))
    files = [index_file(tmp_path / "1", wanted if is_there else keys(10))]

    assert compared(files, wanted, tags=False)[1] == []
    needed = kind == KIND_TAG and not is_there
    assert len(compared(files, wanted, tags=True)[1]) == needed
    assert len(find_required_keys(wanted, needs_tags=True)) == (2 if kind == KIND_TAG else 1)


@pytest.mark.parametrize(
    ("former_end_ms", "seconds", "is_right"),
    [
        (0, 0, True),
        (0, 1, False),
        (3000, 12, True),
        (3000, 11, True),
        (3000, 10, False),
        (3000, 0, False),
        (None, 4711, True),
        (None, -1, False),
    ],
)
def test_the_first_entry_counts_from_the_end_of_the_file_before(
    former_end_ms: int | None, seconds: int, is_right: bool, tmp_path: Path
) -> None:
    info = replace(index_file(tmp_path / "1", keys(10, 20)), former_end_ms=former_end_ms)
    overwrite(tmp_path / "1", info.entries_at + 20 + 12, seconds.to_bytes(4, "big", signed=True))

    wrong = [] if is_right else [(FaultKind.INDEX_SURPLUS, 10, 1)]
    assert compared([info], keys(10, 20)) == (2, wrong)


def test_times_are_compared_but_the_first_of_a_file(tmp_path: Path) -> None:
    info = index_file(tmp_path / "1", keys(10, 20, 30, 40))
    wanted = keys(10, 20, 30, 40)
    wanted["ms"][:] += 3000

    assert compared([info], wanted) == (4, [(FaultKind.INDEX_SURPLUS, 20, 3)])
    assert compared([info], wanted[2:], 30, 99) == (2, [(FaultKind.INDEX_SURPLUS, 30, 2)])
    findings = AuditFindings()
    check_index_entries([info], wanted, 0, 99, findings, needs_tags=True)
    (found,) = findings.kept
    assert found.reason.startswith("3 entries from number 2 on have another time than")
    assert found.file_offset == info.entries_at + 2 * 20


@pytest.mark.parametrize(("is_live", "log_end"), [(True, 20), (False, 99)])
def test_a_sound_file(is_live: bool, log_end: int, tmp_path: Path) -> None:
    info = index_file(tmp_path / "1", keys(10, 20, 30))
    assert check_index_file(log_end, is_live, info).kept == []


def test_entries_behind_the_log(tmp_path: Path) -> None:
    info = index_file(tmp_path / "1", keys(10, 20, 30))

    (found,) = check_index_file(20, False, info).kept

    assert (found.kind, found.commit_log_offset, found.count) == (FaultKind.INDEX_SURPLUS, 20, 2)
    assert found.reason == "2 entries pointing behind the end of the log"
    Path(info.path).unlink()
    assert check_index_file(20, False, info).kept == []


def test_an_index_that_is_not_there_says_how_much_of_it(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "20261120120000000").write_bytes(b"")

    reasons = [
        make_no_index_finding(tmp_path / name, 3).reason for name in ("none", "empty", "full")
    ]

    assert [reason.partition(",")[0] for reason in reasons] == [
        "the directory is missing",
        "there are no index files",
        "no file there has entries",
    ]
    assert "none of the 3 keys" in reasons[0]
