"""Which branches of a table are left over, and which refusals of Iceberg's are conflicts.

All else needs Iceberg: tests/pipeline/test_iceberg.py.
"""

from rockhopper.pipeline.jobs.archiving.iceberg.table import is_conflict, left_over

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

    assert left_over(refs, 1000 + DAY_MS) == ["rockhopper-run-1000-ab"]
    assert left_over(refs, 999 + DAY_MS) == []


def test_what_iceberg_refuses_for_another_commit_is_a_conflict() -> None:
    for text in (
        "org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required",
        "java.lang.IllegalArgumentException: Cannot fast-forward: main is not an ancestor of x",
    ):
        assert is_conflict(RuntimeError(text))
    assert not is_conflict(RuntimeError("java.io.IOException: No space left on device"))
