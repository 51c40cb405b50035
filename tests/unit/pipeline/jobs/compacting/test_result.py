"""What ``compact`` says."""

from rockhopper.pipeline.jobs.compacting.result import CompactResult, MergedTopic


def test_what_was_merged() -> None:
    topic = MergedTopic("orders", 9, 2, 4000)
    result = CompactResult("history", 4, [topic], 9, 2, 1234, 4000, 2500)
    assert str(result) == (
        "merged 9 files of 4.0 KB into 2 of 2.5 KB: 1,234 messages of history\n  orders: 9 into 2"
    )
    result.dry_run = True
    assert str(result).startswith("would merge 9 files of 4.0 KB into 2: 1,234 messages")


def test_nothing_to_do() -> None:
    assert str(CompactResult("history")) == "no files of history are small enough to be merged"
