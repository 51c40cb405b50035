"""What ``compact`` is asked for, as functions ask."""

from rockhopper.pipeline.jobs.compacting.options import CompactOptions


def test_what_nobody_says() -> None:
    asked = CompactOptions("history")
    assert (asked.target_size_bytes, asked.keep_old_ms, asked.topics) == (128 << 20, 3_600_000, ())
    assert asked.now_ms() > 1_700_000_000_000
