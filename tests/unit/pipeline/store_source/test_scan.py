"""Damaged stores: an error that names the place and the remedy, or everything that is left."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.pipeline.errors import PipelineError
from tests.support.written_logs import T0_MS, WrittenLog, read_rows

SPLIT_SIZES = pytest.mark.parametrize("split_size", [4096, 1 << 20])


def offsets_of(root: Path, split_size: int) -> list[int]:
    options = {"columns": "physOffset", "corruptRecords": "skip", "splitSize": split_size}
    return [row["physOffset"] for row in read_rows(root, options)]


def places_of(root: Path, split_size: int) -> list[tuple[int, str]]:
    columns = "physOffset,corrupt"
    options = {"corruptRecords": "column", "splitSize": split_size, "columns": columns}
    rows = read_rows(root, options)
    return [(row["physOffset"], row["corrupt"]) for row in rows if row["corrupt"] is not None]


@SPLIT_SIZES
def test_a_torn_last_record(tmp_path: Path, split_size: int) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=16_384).add(300)
    log.write(log.end - 20, bytes(20))

    with pytest.raises(PipelineError, match=r"start a broker on the store.*corruptRecords=skip"):
        read_rows(tmp_path, {"splitSize": split_size})
    assert offsets_of(tmp_path, split_size) == log.offsets[:-1]
    ((place, reason),) = places_of(tmp_path, split_size)
    assert place == log.offsets[-1]
    assert "torn record" in reason


@SPLIT_SIZES
def test_a_file_cut_off_in_its_last_record(tmp_path: Path, split_size: int) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=16_384).add(300)
    path = log.file_of(log.end)
    with open(path, "r+b") as file:
        file.truncate(log.end % 16_384 - 5)

    with pytest.raises(PipelineError, match="torn record"):
        read_rows(tmp_path, {"splitSize": split_size})
    assert offsets_of(tmp_path, split_size) == log.offsets[:-1]


@SPLIT_SIZES
def test_a_file_of_zeros_with_messages_behind_it(tmp_path: Path, split_size: int) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=16_384).add(500)
    log.write(16_384, bytes(16_384))

    with pytest.raises(PipelineError, match=r"from 16384 to 32768 \(zeros.*restore that file"):
        read_rows(tmp_path, {"splitSize": split_size})
    assert offsets_of(tmp_path, split_size) == [
        offset for offset in log.offsets if not 16_384 <= offset < 32_768
    ]
    assert [place for place, _ in places_of(tmp_path, split_size)] == [16_384]


@SPLIT_SIZES
def test_a_file_of_zeros_at_the_end_was_made_ahead_of_need(tmp_path: Path, split_size: int) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=16_384).add(300)
    log.write(log.file_size_bytes * 4, bytes(16_384))

    assert len(read_rows(tmp_path, {"splitSize": split_size})) == 300


@SPLIT_SIZES
def test_a_missing_file(tmp_path: Path, split_size: int) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=16_384).add(500)
    log.file_of(16_384).unlink()

    says = rf"from 16384 to 32768 \(a file of the .* is missing, in {log.file_of(16_384)}\)"
    with pytest.raises(PipelineError, match=says):
        read_rows(tmp_path, {"splitSize": split_size})
    assert [place for place, _ in places_of(tmp_path, split_size)] == [16_384]


@given(st.integers(0, 299), st.integers(0, 90), st.binary(min_size=1, max_size=4000))
def test_damage_in_the_middle_costs_only_what_it_covers(
    tmp_path_factory: pytest.TempPathFactory, number: int, shift: int, noise: bytes
) -> None:
    root = tmp_path_factory.mktemp("store")
    log = WrittenLog(root, file_size_bytes=16_384).add(400)
    start = log.offsets[number] + shift
    end = min(start + len(noise), start - start % 16_384 + 16_384)
    log.write(start, noise[: end - start])

    found = [offsets_of(root, split_size) for split_size in (4096, 5000, 1 << 20)]

    assert found[0] == found[1] == found[2]
    touched = {
        offset
        for offset, behind in zip(log.offsets, log.offsets[1:], strict=False)
        if offset < end and behind > start
    }
    assert set(found[0]) >= set(log.offsets) - touched
    assert set(found[0]) <= set(log.offsets)
    places = [places_of(root, split_size) for split_size in (4096, 5000, 1 << 20)]
    assert places[0] == places[1] == places[2]


def test_records_that_were_left_over_from_former_days_do_not_count(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(10)
    log.write(log.end, b"\x01" * 50)
    log.end += 50
    log.add(5, store_time_ms=T0_MS - 3_600_000)

    assert offsets_of(tmp_path, 1 << 20) == log.offsets[:10]


def damage_body(log: WrittenLog, number: int) -> None:
    log.write(log.offsets[number] + 88, b"X")


def test_a_damaged_body_is_found_where_bodies_are_compared(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(10).add(body=b"")
    damage_body(log, 4)

    assert len(read_rows(tmp_path)) == 11
    flags = [row["crcOk"] for row in read_rows(tmp_path, {"verifyCrc": "flag"})]
    assert flags == [True] * 4 + [False] + [True] * 5 + [None]
    with pytest.raises(PipelineError, match=f"offset {log.offsets[4]} .*verifyCrc=off"):
        read_rows(tmp_path, {"verifyCrc": "fail"})
    options = {"verifyCrc": "fail", "corruptRecords": "skip"}
    assert len(read_rows(tmp_path, options)) == 10
    rows = read_rows(tmp_path, {"verifyCrc": "fail", "corruptRecords": "column"})
    ((place, body),) = ((r["physOffset"], r["body"]) for r in rows if r["corrupt"])
    assert (place, body) == (log.offsets[4], b"Xody 4")


def test_a_body_that_does_not_decompress(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(3).add(body=b"not zlib", sys_flag=0x301).add(3)

    with pytest.raises(PipelineError, match=r"not a zlib stream.*decompress=false"):
        read_rows(tmp_path)
    assert len(read_rows(tmp_path, {"corruptRecords": "skip"})) == 6
    assert read_rows(tmp_path, {"decompress": "false"})[3]["body"] == b"not zlib"
    rows = read_rows(tmp_path, {"corruptRecords": "column"})
    assert [r["physOffset"] for r in rows if r["corrupt"]] == [log.offsets[3]]


def test_a_batch_that_cannot_be_unwrapped(tmp_path: Path) -> None:
    WrittenLog(tmp_path).add(3).add(body=b"no batch", sys_flag=0xC0).add(3)

    with pytest.raises(PipelineError, match="sizes that do not add up"):
        read_rows(tmp_path)
    assert len(read_rows(tmp_path, {"corruptRecords": "skip"})) == 6
