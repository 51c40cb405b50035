"""An archive as a DataFrame, as far as that is asked of Spark and not done by it."""

from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.reading import read_archive
from rockhopper.pipeline.schema import COLUMNS
from tests.support.written_logs import WrittenLog

VALUE = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


class Asked:
    """As much of a session as is asked to read, and what for."""

    def __init__(self) -> None:
        self.read = self
        self.types: dict[str, str] = {}
        self.base = ""
        self.paths: tuple[str, ...] = ()
        self.columns: tuple[str, ...] = ()

    def schema(self, schema: Any) -> "Asked":
        self.types = {field.name: field.dataType.simpleString() for field in schema}
        return self

    def option(self, name: str, value: str) -> "Asked":
        assert name == "basePath"
        self.base = value
        return self

    def parquet(self, *paths: str) -> "Asked":
        self.paths = paths
        return self

    def createDataFrame(self, rows: list[Any], schema: Any) -> "Asked":  # noqa: N802  as in Spark
        assert rows == []
        return self.schema(schema)

    def select(self, *columns: str) -> "Asked":
        self.columns = columns
        return self


def read(root: Path, **given: Any) -> Asked:
    session: Any = Asked()
    found: Any = read_archive(session, root, **given)
    assert isinstance(found, Asked)
    return found


def test_it_reads_what_manifests_list_and_nothing_else(tmp_path: Path) -> None:
    log, root = WrittenLog(tmp_path / "store").add(6), tmp_path / "history"
    jobs.archive(root, path=log.root)
    log.add(3)
    jobs.archive(root, path=log.root)
    (root / "topic=topic-1" / "foreign.parquet").write_bytes(b"")

    asked = read(root)

    files = Catalog(LocalFiles(root)).archived_files()
    assert asked.paths == tuple(f"{root}/{file.path}" for file in files)
    assert len(files) == 6
    assert asked.base == str(root)
    assert asked.columns == (*COLUMNS, "date")
    # A topic may look like a number, and its type is not Spark's to guess.
    assert (asked.types["topic"], asked.types["date"]) == ("string", "date")
    assert read(root, files=files[2:3]).paths == asked.paths[2:3]


def test_decoded_bodies_are_a_column_of_their_own(tmp_path: Path) -> None:
    log, root = WrittenLog(tmp_path / "store").add(1, body=b'{"id": 7}'), tmp_path / "history"
    jobs.archive(root, path=log.root, decode="json", schema=VALUE)

    asked = read(root)

    assert asked.types["value"] == "struct<id:bigint>"
    assert asked.columns == (*COLUMNS, "value", "date")


def test_an_archive_without_messages_has_the_same_columns(tmp_path: Path) -> None:
    log, root = WrittenLog(tmp_path / "store").add(1), tmp_path / "history"
    jobs.archive(root, path=log.root, pattern="nothing")

    asked = read(root)

    assert (asked.paths, asked.columns) == ((), (*COLUMNS, "date"))
    assert asked.types["body"] == "binary"


def test_no_archive_to_read(tmp_path: Path) -> None:
    session: Any = Asked()
    said = f"there is no archive in {tmp_path}: make one with python -m rockhopper.pipeline archive"
    with pytest.raises(PipelineError, match=said):
        read_archive(session, tmp_path)
