"""Which branches of a table are left over, and which refusals of Iceberg's are conflicts.

All else needs Iceberg: tests/pipeline/test_iceberg.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg.positions import Snapshot
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import TableName
from rockhopper.pipeline.jobs.archiving.iceberg.table import (
    IcebergTable,
    find_left_over,
    is_conflict,
)

DAY_MS = 86_400_000


def test_branches_of_runs_that_began_a_day_ago_are_left_over() -> None:
    refs = [
        "main",
        "rockhopper-run-1000-ab",
        "rockhopper-run-1001-cd",
        "rockhopper-run-1",
        "theirs",
    ]
    refs += ["1000-ab", "rockhopper-run-x-ab"]

    assert find_left_over(refs, 1000 + DAY_MS) == ["rockhopper-run-1000-ab"]
    assert find_left_over(refs, 999 + DAY_MS) == []


def test_what_iceberg_refuses_for_another_commit_is_a_conflict() -> None:
    for text in (
        "org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required",
        "java.lang.IllegalArgumentException: Cannot fast-forward: main is not an ancestor of x",
    ):
        assert is_conflict(RuntimeError(text))
    assert not is_conflict(RuntimeError("java.io.IOException: No space left on device"))


POSITION = "how far"


class Table(IcebergTable):
    """Over snapshots that a test gives, without Java."""

    def __init__(self, snapshots: list[Snapshot], *, is_empty: bool = False, **noted: str) -> None:
        self.name = TableName(("lake", "db", "orders"))
        self.snapshots = {each.id: each for each in snapshots}
        self.head = snapshots[-1].id if snapshots else None
        self._table = SimpleNamespace(properties=lambda: noted)
        frame = SimpleNamespace(isEmpty=lambda: is_empty)
        spark: Any = SimpleNamespace(table=lambda _: frame)
        self._spark = spark


def test_the_newest_snapshot_that_notes_a_position_says_how_far_the_table_goes() -> None:
    noted = Snapshot(1, None, POSITION)
    assert Table([noted, Snapshot(2, 1, None)]).position() == POSITION
    assert Table([noted, Snapshot(2, 1, "further")]).position() == "further"
    assert Table([]).position() is None
    assert Table([Snapshot(1, None, None)], is_empty=True).position() is None


def test_a_table_with_messages_and_no_position_is_not_added_to() -> None:
    with pytest.raises(PipelineError, match=r"no snapshot of .*; archive into another table"):
        Table([Snapshot(1, None, None)]).position()


def test_a_branch_that_cannot_be_removed_hides_no_other_failure() -> None:
    def refuse() -> None:
        raise RuntimeError("the catalog is away")

    table = Table([])
    table._table = SimpleNamespace(refresh=refuse)
    table.drop("rockhopper-run-1000-ab")
