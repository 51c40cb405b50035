"""By which schema a run into a table decodes. The runs: tests/pipeline/test_iceberg.py."""

from typing import Any

import pytest

from rockhopper.pipeline.jobs.archiving.iceberg.job import chosen_value
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

    assert chosen_value(asked(decode="json", schema=NEW), run_with(OLD)) == new
    assert chosen_value(asked(decode="json", schema=NEW), None) == new
    assert chosen_value(asked(), run_with(OLD)) == ValueFormat("json", OLD)
    assert chosen_value(asked(), run_with(None)) is None
    assert chosen_value(asked(), None) is None


def test_bad_values_are_for_decoding() -> None:
    with pytest.raises(UsageProblem, match="is for decoding bodies: add --decode"):
        chosen_value(asked(bad_values="fail"), None)
