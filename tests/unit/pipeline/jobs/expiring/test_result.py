"""What ``expire`` says."""

from rockhopper.pipeline.jobs.expiring.result import ExpiredTopic, ExpireResult


def test_what_was_removed() -> None:
    topic = ExpiredTopic("orders", 1234, 2, 4000)
    result = ExpireResult("history", 0, 4, [topic], 1234, 2, 4000, keep_old_ms=3_600_000)
    assert str(result).split("\n") == [
        "removed 1,234 messages from before 1970-01-01 00:00:00 (UTC) of history: 2 files, 4.0 KB",
        "  orders: 1,234 messages, 2 files, 4.0 KB",
        "the files are in _rockhopper/replaced still; the first run of archive, compact or expire "
        "deletes them that comes 60 minutes later",
    ]
    result.dry_run = True
    assert str(result).startswith("would remove 1,234 messages")
    assert "replaced" not in str(result)


def test_nothing_to_do() -> None:
    assert str(ExpireResult("history", 0)).startswith("no file of history has only messages from")
