"""Where the messages of a report come from: what is read of stores and archives, and by whom."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.reporting.inputs import (
    COLUMNS,
    ArchiveFilesTask,
    Chosen,
    ReportTasks,
    archive_work,
    store_work,
)
from rockhopper.pipeline.schema import arrow_schema
from tests.support.written_archives import archive_of
from tests.support.written_logs import T0_MS, WrittenLog


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "store", file_size_bytes=8192).add(120)


def numbers(work: ReportTasks) -> list[int]:
    """The queue offsets, which number the messages, after the tasks have travelled."""
    tasks = pickle.loads(pickle.dumps(work.tasks))
    batches = [batch for task in tasks for batch in task.batches()]
    assert all(batch.schema == arrow_schema(COLUMNS) for batch in batches)
    return sorted(number for batch in batches for number in batch["queueOffset"].to_pylist())


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Chosen(), range(120)),
        (Chosen(topics=("topic-1",)), range(1, 120, 3)),
        (Chosen(start_ms=T0_MS + 50), range(50, 120)),
        (Chosen(end_ms=T0_MS + 50), range(50)),
        (Chosen(("topic-0", "topic-2"), T0_MS + 3, T0_MS + 9), [3, 5, 6, 8]),
        (Chosen(start_ms=T0_MS + 120), []),
    ],
)
def test_the_same_is_chosen_of_a_store_and_of_its_archive(
    log: WrittenLog, tmp_path: Path, chosen: Chosen, expected: range | list[int]
) -> None:
    archive = str(archive_of(log, tmp_path / "archive"))
    assert numbers(store_work(str(log.root), chosen)) == list(expected)
    assert numbers(archive_work(archive, chosen, 2)) == list(expected)


def shares(work: ReportTasks) -> list[tuple[tuple[str, str], ...]]:
    """The files of each task, with their topics."""
    return [task.files for task in work.tasks if isinstance(task, ArchiveFilesTask)]


def test_files_of_an_archive_that_hold_nothing_wanted_are_not_opened(
    log: WrittenLog, tmp_path: Path
) -> None:
    archive = str(archive_of(log, tmp_path / "archive"))
    whole = archive_work(archive, Chosen(), 2)
    part = archive_work(archive, Chosen(topics=("topic-1",)), 2)
    named = [topic for share in shares(part) for _, topic in share]
    assert set(named) == {"topic-1"}
    assert 0 < part.size_bytes < whole.size_bytes
    assert archive_work(archive, Chosen(end_ms=T0_MS), 2) == ReportTasks([], 0)
    assert archive_work(archive, Chosen(start_ms=T0_MS + 119), 2).size_bytes > 0


def test_files_are_shared_out_and_none_twice(log: WrittenLog, tmp_path: Path) -> None:
    archive = str(archive_of(log, tmp_path / "archive"))
    found = shares(archive_work(archive, Chosen(), 1))
    assert [len(share) for share in found] == [2, 1]
    assert len({name for share in found for name, _ in share}) == 3


def test_where_there_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"there is no archive in {tmp_path}: make one with"):
        archive_work(str(tmp_path), Chosen(), 1)


def test_columns_that_a_file_does_not_have_are_null_and_its_topic_is_known(tmp_path: Path) -> None:
    schema = arrow_schema(("queueOffset", "storeTimestamp"))
    times = pa.array([T0_MS * 1000], schema.field("storeTimestamp").type)
    table = pa.table({"queueOffset": pa.array([7], pa.int64()), "storeTimestamp": times})
    pq.write_table(table, tmp_path / "part.parquet")
    (batch,) = ArchiveFilesTask(str(tmp_path), (("part.parquet", "orders"),), Chosen()).batches()
    (row,) = batch.to_pylist()
    assert (row["topic"], row["queueOffset"], row["body"], row["tags"]) == ("orders", 7, None, None)
