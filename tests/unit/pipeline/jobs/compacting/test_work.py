"""What a task of a compaction makes sure of."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
from rockhopper.pipeline.jobs.archiving.writing import WriteTarget
from rockhopper.pipeline.jobs.compacting.work import CompactWork
from tests.support.written_logs import WrittenLog


def files_of(tmp_path: Path) -> tuple[CompactWork, tuple[ArchivedFile, ...]]:
    log = WrittenLog(tmp_path / "store")
    for _ in range(2):
        log.add(4, topic="t")
        jobs.archive(tmp_path / "a", path=log.root)
    catalog = Catalog(LocalFiles(tmp_path / "a"))
    target = WriteTarget(catalog.files.location, catalog.create_staging(3), 3)
    return CompactWork(target), tuple(catalog.archived_files())


def test_a_file_says_in_whose_place_it_comes(tmp_path: Path) -> None:
    work, (first, second) = files_of(tmp_path)

    (merged,) = work((0, (first, second))).files

    assert (merged.place, merged.rows) == (first.path, 8)
    assert merged.path.endswith("part-00003-00000-0.parquet")


def test_a_file_that_was_altered_and_can_be_read_is_refused(tmp_path: Path) -> None:
    work, (first, second) = files_of(tmp_path)
    path = tmp_path / "a" / first.path
    table = pq.ParquetFile(path).read()
    number = table.schema.get_field_index("tags")
    pq.write_table(table.set_column(number, "tags", [["blue"] * 4]), path)
    with pytest.raises(PipelineError, match=f"{first.path} is damaged .its SHA-256 is not that"):
        work((0, (first, second)))


def test_sums_that_are_not_those_of_the_manifests(tmp_path: Path) -> None:
    work, (first, second) = files_of(tmp_path)
    queue, *others = first.queues
    other = replace(first, queues=(replace(queue, body_hash=queue.body_hash ^ 1), *others))
    with pytest.raises(PipelineError, match=f"messages in {first.path}, .* are not those of"):
        work((0, (other, second)))
    with pytest.raises(PipelineError, match="it has 4 messages of 19 columns"):
        work((0, (replace(first, rows=5, sha256=None), second)))
