"""How jobs begin that change an archive."""

from pathlib import Path

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import (
    CURRENT_FILE,
    REPLACED_DIRECTORY,
    find_kept_path,
)
from rockhopper.pipeline.jobs.kept_archives import archive_at

NAME = "topic=t/date=2026-11-20/part-00001-00000-0.parquet"


def test_there_has_to_be_an_archive(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"there is no archive in {tmp_path}"):
        archive_at(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_planned_is_where_it_was_or_aside_or_gone(tmp_path: Path) -> None:
    path, aside = tmp_path / NAME, tmp_path / REPLACED_DIRECTORY / "run-00000002" / NAME
    assert find_kept_path(str(path)) == str(path)  # no archive: opening it fails
    (tmp_path / CURRENT_FILE).parent.mkdir()
    (tmp_path / CURRENT_FILE).touch()
    with pytest.raises(PipelineError, match=r"merged with others or expired: .*another --id"):
        find_kept_path(str(path))
    aside.parent.mkdir(parents=True)
    aside.touch()
    assert find_kept_path(str(path)) == str(aside)
    path.parent.mkdir(parents=True)
    path.touch()
    assert find_kept_path(str(path)) == str(path)
