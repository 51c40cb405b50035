"""By which schema a run into a table decodes. The runs: tests/pipeline/test_iceberg.py."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg import job
from rockhopper.pipeline.jobs.archiving.iceberg.job import archive_table, choose_value
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import TableName
from rockhopper.pipeline.jobs.archiving.manifest import Manifest
from rockhopper.pipeline.jobs.archiving.options import ArchiveOptions
from rockhopper.pipeline.jobs.archiving.values import ValueFormat
from rockhopper.pipeline.jobs.results import UsageProblem

OLD = '{"properties": {"id": {"type": "integer"}}}'
NEW = '{"properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}'


def asked(**options: Any) -> ArchiveOptions:
    return ArchiveOptions("iceberg:lake.db.orders", nameserver="n:1", **options)


def run_with(schema: str | None) -> Manifest:
    value = None if schema is None else ValueFormat("json", schema).to_document()
    return Manifest(1, 0, {}, (), value)


def test_it_is_what_is_asked_for_else_that_of_the_last_run() -> None:
    new = ValueFormat("json", NEW)

    assert choose_value(asked(decode="json", schema=NEW), run_with(OLD)) == new
    assert choose_value(asked(decode="json", schema=NEW), None) == new
    assert choose_value(asked(), run_with(OLD)) == ValueFormat("json", OLD)
    assert choose_value(asked(), run_with(None)) is None
    assert choose_value(asked(), None) is None


def test_bad_values_are_for_decoding() -> None:
    with pytest.raises(UsageProblem, match="is for decoding bodies: add --decode"):
        choose_value(asked(bad_values="fail"), None)


NAME = TableName(("lake", "db", "orders"))


def test_a_table_is_not_archived_from_files() -> None:
    with pytest.raises(UsageProblem, match="give --nameserver instead of --path"):
        archive_table(ArchiveOptions(str(NAME), path="store"), NAME)


class Runs:
    """Runs that end as they are told to, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: object) -> None:
        self.left = list(ends)
        session = SimpleNamespace(dataSource=SimpleNamespace(register=lambda _: None))
        monkeypatch.setattr(job, "iceberg_session", lambda *_: session)
        monkeypatch.setattr(job, "describe_jobs", lambda *_: nullcontext())
        monkeypatch.setattr(job, "_CommitAttempt", lambda *_: self)

    def result(self) -> object:
        end = self.left.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def test_a_run_is_tried_again_where_the_table_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, None, "added", "never asked for")
    ended: object = archive_table(asked(), NAME)
    assert (ended, runs.left) == ("added", ["never asked for"])


def test_a_table_that_is_always_changed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, None, None, None)
    with pytest.raises(PipelineError, match="in each of 3 tries to add to it, and nothing was"):
        archive_table(asked(), NAME)
    assert runs.left == []


def test_what_spark_raises_is_one_sentence_about_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    Runs(monkeypatch, PipelineError("archive into another directory"))
    with pytest.raises(PipelineError, match=r"^archive into another table$"):
        archive_table(asked(), NAME)
    Runs(monkeypatch, RuntimeError("lost task"))
    with pytest.raises(PipelineError, match=r"^Spark gave up: lost task;"):
        archive_table(asked(), NAME)
