"""The job ``package``: what it says, and what it leaves alone."""

from pathlib import Path

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.packaging.job import package


def test_the_file_is_written_and_named(tmp_path: Path) -> None:
    file = tmp_path / "it.zip"
    result = package(file)
    assert result.bytes == file.stat().st_size > 100_000
    first, second = result.lines()
    assert first.startswith(f"wrote {file} (")
    assert second == f"spark-submit --py-files {file} your_app.py"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "it.zip"
    result = package(file, dry_run=True)
    assert list(result.lines()) == [f"would write {file}"]
    assert not file.exists()


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=str(tmp_path)):
        package(tmp_path / "file" / "it.zip")
