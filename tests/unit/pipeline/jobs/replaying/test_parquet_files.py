"""The files that a replay reads: in which order, of which topics, and which of their rows."""

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, Manifest
from rockhopper.pipeline.jobs.replaying.parquet_files import (
    SourceFile,
    check_unaltered,
    find_source,
    mean_row_bytes,
    read_rows,
)
from tests.support.written_logs import WrittenLog


def write(path: Path, count: int = 1, **columns: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"body": [b"x"] * count, **columns}), path)
    return path


def archive(root: Path, names: list[str], away: list[str] | None = None) -> Path:
    """An archive whose only manifest lists these files, in another order than they were stored."""
    for name in names:
        write(root / name)
    files = tuple(ArchivedFile(name, "a", "2026-11-20", 1, 9, 5, 6, ()) for name in names)
    manifest = Manifest(1, 0, {"away": away or []}, ("body",), None, files)
    Catalog(LocalFiles(root)).commit(manifest, names)
    return root


def test_files_of_an_archive_come_as_their_messages_were_stored(tmp_path: Path) -> None:
    stored = [
        "part-00001-00000-2.parquet",
        "part-00001-00000-10.parquet",
        "part-00001-00001-0.parquet",
        "part-00002-00000-0.parquet",
        "part-100000-00000-0.parquet",
    ]
    root = archive(tmp_path / "a", sorted(stored, reverse=True), ["broker-b"])
    write(root / "foreign.parquet")

    found = find_source(str(root))

    assert [Path(each.path).name for each in found.files] == stored
    assert {(each.topic, each.min_store_ms, each.max_store_ms) for each in found.files} == {
        ("a", 5, 6)
    }
    assert (found.is_archive, found.root, found.away) == (True, root, ("broker-b",))


def test_other_files_come_by_name_and_hidden_ones_not_at_all(tmp_path: Path) -> None:
    for name in ("b/2.parquet", "b/1.parq", "a.parquet", "_c/1.parquet", ".d/1.parquet"):
        write(tmp_path / name)
    for name in ("_e.parquet", ".f.parquet", "g.txt"):
        write(tmp_path / name)

    found = find_source(str(tmp_path))

    assert [str(Path(each.path).relative_to(tmp_path)) for each in found.files] == [
        "a.parquet",
        "b/1.parq",
        "b/2.parquet",
    ]
    assert (found.is_archive, found.columns, found.away) == (False, ("body",), ())


def test_a_directory_says_the_topic_unless_a_column_does(tmp_path: Path) -> None:
    write(tmp_path / f"topic={quote('%DLQ%g')}" / "date=x" / "1.parquet", 3)
    write(tmp_path / "topic=told" / "1.parquet", topic=["own"])
    write(tmp_path / "topicality" / "1.parquet")

    found = {Path(each.path).parent: each for each in find_source(str(tmp_path)).files}

    told = {str(path.relative_to(tmp_path)): each.topic for path, each in found.items()}
    assert told == {"topic=%25DLQ%25g/date=x": "%DLQ%g", "topic=told": None, "topicality": None}
    assert {each.rows for each in found.values()} == {3, 1}


def test_a_file_alone_says_nothing_of_its_directory(tmp_path: Path) -> None:
    path = write(tmp_path / "topic=a b" / "1.parquet")

    for location in (str(path), path.as_uri()):
        found = find_source(location)
        assert [(each.path, each.topic) for each in found.files] == [(str(path), None)]
        assert found.root == path.parent


def test_places_without_messages(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is not in a local directory"):
        find_source("s3://bucket/history")
    with pytest.raises(PipelineError, match=f"there is nothing at {tmp_path}/nothing"):
        find_source(str(tmp_path / "nothing"))
    with pytest.raises(PipelineError, match="there is no Parquet file in"):
        find_source(str(tmp_path))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(PipelineError, match=r"broken\.parquet cannot be read as Parquet"):
        find_source(str(tmp_path))
    pq.write_table(pa.table({"bodi": ["a"], "key": ["b"]}), tmp_path / "broken.parquet")
    with pytest.raises(PipelineError, match=r"has no column 'body'.* it has bodi, key"):
        find_source(str(tmp_path))


def test_how_large_a_message_is(tmp_path: Path) -> None:
    large = find_source(str(write(tmp_path / "large.parquet", 4, keys=["k" * 100_000] * 4))).files
    small = find_source(str(write(tmp_path / "small.parquet", 4))).files
    empty = find_source(str(write(tmp_path / "empty.parquet", 0))).files

    assert mean_row_bytes(empty) == 1.0
    assert mean_row_bytes(small) < 100 < mean_row_bytes(large)
    assert mean_row_bytes(small * 8 + large) == mean_row_bytes(small)  # the first few tell
    assert mean_row_bytes(small + large) == (mean_row_bytes(small) + mean_row_bytes(large)) / 2


@pytest.mark.parametrize(
    "rows", [[], [0], [24], [9, 10], [5, 6, 7], [0, 2, 19, 24], list(range(25))]
)
def test_rows_are_read_wherever_row_groups_end(rows: list[int], tmp_path: Path) -> None:
    table = pa.table({"n": list(range(25)), "other": ["x"] * 25})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=10)

    found = read_rows(str(tmp_path / "f.parquet"), ("n", "missing"), np.array(rows, np.int64))

    assert [number for batch in found for number in batch.column("n").to_pylist()] == rows
    assert all(batch.schema.names == ["n"] for batch in found)


def test_a_replay_goes_on_with_files_that_were_merged_since(tmp_path: Path) -> None:
    log, root = WrittenLog(tmp_path / "store"), tmp_path / "history"
    for _ in range(2):
        log.add(4, topic="t", queue_id=0)
        jobs.archive(root, path=log.root)
    planned = find_source(str(root)).files

    jobs.compact(root, keep_old_ms=1000, now_ms=lambda: 5_000)

    (whole,) = find_source(str(root)).files
    assert whole.rows == 8
    for each, offsets in zip(planned, ([0, 1, 2], [4, 5, 6]), strict=True):
        (batch,) = read_rows(each.path, ["queueOffset"], np.arange(3))
        assert batch.column("queueOffset").to_pylist() == offsets
    jobs.compact(root, now_ms=lambda: 6_000)
    with pytest.raises(PipelineError, match=r"merged with others or expired: .*another --id"):
        read_rows(planned[0].path, ["queueOffset"], np.arange(3))


def test_files_are_compared_with_what_the_archive_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 10)
    noted = hashlib.sha256(path.read_bytes()).hexdigest()
    file = SourceFile(str(path), 10, "a", sha256=noted)
    check_unaltered([file, SourceFile(str(path), 10, "a")])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(PipelineError, match=r"a\.parquet was altered since it was archived"):
        check_unaltered([file])
    path.unlink()
    with pytest.raises(PipelineError, match=r"a\.parquet cannot be read"):
        check_unaltered([file])
