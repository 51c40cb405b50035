"""What ``expire`` is asked for, as functions ask."""

from rockhopper.pipeline.jobs.expiring.options import ExpireOptions


def test_what_nobody_says() -> None:
    asked = ExpireOptions("history", older_than_ms=5)
    assert (asked.older_than_ms, asked.keep_old_ms, asked.topics) == (5, 3_600_000, ())
