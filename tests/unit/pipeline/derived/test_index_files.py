"""Index files: built whole from entries in order, and read as a broker's files are found."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.pipeline.derived.index_files import (
    IndexFileInfo,
    build_chains,
    check_chains,
    entries_between,
    index_paths,
    read_index_info,
    seconds_since,
)
from rockhopper.protocol.store.queue_layout import INDEX_HEADER, INDEX_SECONDS_MAX
from tests.support.derived_files import write_index_file
from tests.support.rot import overwrite
from tests.support.written_logs import T0_MS

SLOTS, ENTRIES = 4, 20
HASHES = np.array([1, 5, 2, 9, 1], np.int32)
POSITIONS = np.array([100, 100, 250, 400, 400], np.int64)
TIMES_MS = T0_MS + np.array([0, 0, 1500, 2999, 60_000], np.int64)
HEADER_SIZE_BYTES, ENTRY_SIZE_BYTES = 40, 20
ENTRIES_AT = HEADER_SIZE_BYTES + 4 * SLOTS


def write(directory: Path, name: str = "1", previous_end_ms: int = 0) -> Path:
    path = directory / name
    write_index_file(path, HASHES, POSITIONS, TIMES_MS, SLOTS, ENTRIES, previous_end_ms)
    return path


def info(path: Path, *, look_behind: bool = False) -> IndexFileInfo:
    return read_index_info(path, SLOTS, ENTRIES, look_behind=look_behind)


def set_entry(path: Path, number: int, data: bytes, at: int = 0) -> None:
    overwrite(path, ENTRIES_AT + number * ENTRY_SIZE_BYTES + at, data)


def int4(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_each_entry_leads_to_the_one_before_it_in_its_slot() -> None:
    previous, newest = build_chains(HASHES, SLOTS)
    # Hashes 1, 5, 9 and 1 share slot 1; 2 is alone in its own.
    assert previous.tolist() == [0, 1, 0, 2, 4]
    assert newest.tolist() == [0, 5, 3, 0]


def test_without_entries_there_are_no_chains() -> None:
    previous, newest = build_chains(np.empty(0, np.int32), SLOTS)
    assert (previous.tolist(), newest.tolist()) == ([], [0] * SLOTS)


@pytest.mark.parametrize(
    ("time_ms", "begin_ms", "seconds"),
    [
        (T0_MS + 1999, T0_MS, 1),
        (T0_MS - 1, T0_MS, 0),
        (T0_MS, 0, 0),
        (2**31 * 1000 + 1, 1, INDEX_SECONDS_MAX),
    ],
)
def test_seconds_of_an_entry(time_ms: int, begin_ms: int, seconds: int) -> None:
    assert seconds_since(np.array([time_ms]), begin_ms).tolist() == [seconds]


def test_a_file_that_was_built_is_the_one_that_a_broker_writes(tmp_path: Path) -> None:
    index = MessageIndex(tmp_path / "index", SLOTS, ENTRIES, now_ms=lambda: T0_MS)
    index.load(True)
    for key_hash, position, time_ms in zip(HASHES, POSITIONS, TIMES_MS, strict=True):
        index.put_many(INDEX_KEY.pack(int(key_hash), int(position)), int(time_ms))
    index.flush()
    index.close()
    (theirs,) = index_paths(tmp_path / "index")
    assert write(tmp_path).read_bytes() == theirs.read_bytes()


def test_the_seconds_of_the_first_entry_count_from_the_file_before(tmp_path: Path) -> None:
    path = write(tmp_path, previous_end_ms=T0_MS - 5000)
    _, found = entries_between(info(path), 0, 1 << 40)
    assert found["seconds"].tolist() == [5, 0, 1, 2, 60]


def test_what_the_header_says(tmp_path: Path) -> None:
    found = info(write(tmp_path))
    assert (found.begin_ms, found.end_ms) == (T0_MS, T0_MS + 60_000)
    assert (found.begin_offset, found.end_offset) == (100, 400)
    assert (found.used_slot_count, found.next_number) == (2, 6)
    assert not found.is_full


def test_a_file_that_was_there_before_is_written_over(tmp_path: Path) -> None:
    whole = write(tmp_path).read_bytes()
    (tmp_path / "2").write_bytes(b"\xff" * 5000)
    assert write(tmp_path, "2").read_bytes() == whole


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ((1, 1, 0, 10, 1, ENTRIES + 1), "its header counts 21 entries, at most 20 fit"),
        ((1, 1, 0, 10, 1, -1), "its header counts -1 entries"),
        ((1, 1, 11, 10, 1, 2), "its header says that it goes from 11 to 10"),
        ((1, 1, -1, 10, 1, 2), "its header says that it goes from -1 to 10"),
    ],
)
def test_a_header_that_makes_no_sense(tmp_path: Path, header: tuple[int, ...], reason: str) -> None:
    path = write(tmp_path)
    overwrite(path, 0, INDEX_HEADER.pack(*header))
    with pytest.raises(ValueError, match=reason):
        info(path)


def test_a_file_of_another_geometry(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 456 bytes, and 8 slots with 20 entries make 472"):
        read_index_info(write(tmp_path), 8, ENTRIES, look_behind=False)


def test_files_by_number_and_no_others(tmp_path: Path) -> None:
    for name in ("9", "10", "x", "11.tmp"):
        (tmp_path / name).touch()
    (tmp_path / "12").mkdir()
    assert [path.name for path in index_paths(tmp_path)] == ["9", "10"]
    assert index_paths(tmp_path / "none") == []


def uncounted(path: Path, count: int) -> Path:
    """As after a crash: the last *count* entries are there, and the header is older."""
    header = (T0_MS, T0_MS, 100, int(POSITIONS[-count - 1]), 1, 6 - count)
    overwrite(path, 0, INDEX_HEADER.pack(*header))
    return path


@pytest.mark.parametrize("count", [1, 3, 4])
def test_entries_behind_the_header_count_too(tmp_path: Path, count: int) -> None:
    path = uncounted(write(tmp_path), count)
    assert info(path).next_number == 6 - count
    found = info(path, look_behind=True)
    assert (found.next_number, found.end_offset) == (6, 400)


@pytest.mark.parametrize(
    ("data", "at"),
    [
        (int4(0) + bytes(8), 0),
        ((50).to_bytes(8, "big"), 4),
        (int4(4), 16),
        (int4(9), 16),
    ],
    ids=["zeros", "an earlier place", "leads to itself", "leads ahead"],
)
def test_they_end_where_one_makes_no_sense(tmp_path: Path, data: bytes, at: int) -> None:
    path = uncounted(write(tmp_path), 3)
    set_entry(path, 4, data, at)
    found = info(path, look_behind=True)
    assert (found.next_number, found.end_offset) == (4, 250)


@pytest.mark.parametrize(
    ("start", "end", "first", "positions"),
    [
        (0, 1000, 1, [100, 100, 250, 400, 400]),
        (100, 400, 1, [100, 100, 250]),
        (101, 401, 3, [250, 400, 400]),
        (251, 399, 4, []),
        (400, 401, 4, [400, 400]),
        (401, 500, 6, []),
        (0, 100, 6, []),
    ],
)
def test_entries_of_a_range_of_the_log(
    tmp_path: Path, start: int, end: int, first: int, positions: list[int]
) -> None:
    number, found = entries_between(info(write(tmp_path)), start, end)
    assert (number, found["position"].tolist()) == (first, positions)


def test_a_range_of_an_empty_file(tmp_path: Path) -> None:
    path = write(tmp_path)
    overwrite(path, 0, bytes(os.stat(path).st_size))
    _, found = entries_between(info(path), 0, 1000)
    assert len(found) == 0


def damages(path: Path) -> list[tuple[int, int, str]]:
    return list(check_chains(info(path)))


def test_a_sound_file_and_an_empty_one(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert damages(path) == []
    overwrite(path, 0, bytes(os.stat(path).st_size))
    assert damages(path) == []


@pytest.mark.parametrize(
    ("number", "data", "at", "found"),
    [
        (4, int4(1), 16, (4, 400, "1 entries do not lead to the one before them")),
        (3, (401).to_bytes(8, "big"), 4, (4, 400, "its entries are not in the order of the log")),
        (1, (99).to_bytes(8, "big"), 4, (1, 99, "its header says that it begins at 100")),
    ],
)
def test_wrong_entries_are_named(
    tmp_path: Path, number: int, data: bytes, at: int, found: tuple[int, int, str]
) -> None:
    path = write(tmp_path)
    set_entry(path, number, data, at)
    ((where, offset, what),) = damages(path)
    assert (where, offset) == found[:2]
    assert what.startswith(found[2])


@pytest.mark.parametrize(
    ("slot", "named", "found"), [(1, 4, (5, 400)), (2, 0, (3, 250)), (0, 1, (0, 0))]
)
def test_wrong_slots_are_named(
    tmp_path: Path, slot: int, named: int, found: tuple[int, int]
) -> None:
    path = write(tmp_path)
    overwrite(path, HEADER_SIZE_BYTES + 4 * slot, int4(named))
    assert damages(path) == [(*found, "1 slots do not name the newest entry of their chain")]


def test_several_things_are_wrong(tmp_path: Path) -> None:
    path = write(tmp_path)
    set_entry(path, 2, int4(7), 0)
    said: list[Any] = [what for _, _, what in damages(path)]
    assert len(said) == 2
