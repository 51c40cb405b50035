"""Splits: all cores are done at about the same time, and what is in no file has no data."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.directory import open_store
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.splits import data_bytes, plan, split_size_bytes
from tests.support.written_logs import T0_MS, WrittenLog


@pytest.mark.parametrize("cores", [1, 2, 4, 16])
@pytest.mark.parametrize("total_mib", [0, 1, 100, 5_000, 50_000])
def test_the_cores_get_equally_many_splits_or_there_are_few(cores: int, total_mib: int) -> None:
    total = total_mib << 20
    size = split_size_bytes(total, cores)
    assert size > 0
    count = -(-total // size)
    assert count <= 2 * cores or count % cores == 0


def test_a_missing_range_has_no_data_and_one_that_cannot_be_asked_has_all() -> None:
    assert data_bytes(FilePiece("/gone", 0, 0, 100, 100, True, False, None, True)) == 0
    assert data_bytes(FilePiece("/gone", 0, 40, 100, 100, True, False)) == 60


def make_plan(log: WrittenLog, cores: int = 1, **options: Any) -> list[tuple[FilePiece, ...]]:
    return plan(
        open_store(str(log.root)), StoreReadRules(str(log.root), ("body",), **options), cores
    )


def test_every_byte_of_the_log_is_in_one_piece(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(60)
    pieces = [piece for task in make_plan(log, split_size_bytes=1000) for piece in task]
    assert pieces[0].start == 0
    assert all(before.end <= after.start for before, after in pairwise(pieces))
    owned = [sum(piece.start <= offset < piece.end for piece in pieces) for offset in log.offsets]
    assert set(owned) == {1}


def test_small_files_share_a_task(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(60)
    assert len(make_plan(log, split_size_bytes=1 << 20)) == 1


def test_offsets_outside_of_the_log_are_refused(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(60)
    log.file_of(0).unlink()
    with pytest.raises(PipelineError, match=r"startPhysOffset=0 is in front of the log.* 4096"):
        make_plan(log, start_offset=0)
    assert make_plan(log, start_offset=0, fail_on_data_loss=False)[0][0].start == 4096
    with pytest.raises(PipelineError, match="endPhysOffset=1000000 is behind the files"):
        make_plan(log, end_offset=1_000_000)


def test_pieces_stored_at_other_times_are_left_out(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(60).add(60, store_time_ms=T0_MS * 2)
    tasks = make_plan(log, split_size_bytes=2000, end_ms=T0_MS + 1000)
    kept = [piece for task in tasks for piece in task]
    assert all(any(each.start <= offset < each.end for each in kept) for offset in log.offsets[:60])
    assert not any(each.start <= log.offsets[90] < each.end for each in kept)


def test_a_foreign_file_is_named_unless_it_may_be_skipped(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(1)
    (log.commit_log / "notes.txt").touch()
    with pytest.raises(PipelineError, match=r"notes\.txt.* corruptRecords=skip"):
        make_plan(log)
    assert make_plan(log, corrupt_records="skip")
