"""What a replay says of itself."""

from typing import Any

import pytest

from rockhopper.pipeline.jobs.replaying.result import ReplayResult


def said(**fields: Any) -> list[str]:
    given: dict[str, Any] = {"rows": 120, "files": 2, "batches": 3, "topics": ["a", "b"]}
    given |= {"delivery": "exactly-once", **fields}
    return list(ReplayResult("id7", "history", **given).lines())


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"rows": 0}, ["nothing in history is to be replayed"]),
        (
            {"sent": 0},
            [
                "all 120 messages of 2 files were replayed before, as id7; with another --id they "
                "are sent once more, and so is what was archived since"
            ],
        ),
        (
            {"sent": 120, "dry_run": True},
            ["would replay 120 messages of 2 files into a, b, exactly-once, as id7"],
        ),
        (
            {"sent": 20, "dry_run": True, "resumed_at_batch": 2},
            [
                "would continue at batch 2 of 3",
                "would replay 20 messages of 120 messages into a, b, exactly-once, as id7",
            ],
        ),
        (
            {"sent": 20, "resumed_at_batch": 2, "broker": "broker-a", "seconds": 1.25},
            [
                "continued at batch 2 of 3",
                "replayed 20 messages into a, b on broker-a as id7: 3 batches, exactly-once, 1.2 s",
            ],
        ),
        (
            {"sent": 1, "batches": 1, "topics": [], "delivery": "at-least-once"},
            [
                "replayed 1 message into no topic as id7: 1 batch, at-least-once, 0.0 s",
                "at-least-once: after a failure messages of one batch may be there twice, since "
                "these brokers cannot publish a batch at once",
            ],
        ),
    ],
)
def test_what_was_done_or_would_be(fields: dict[str, Any], lines: list[str]) -> None:
    assert said(**fields) == lines


def test_brokers_that_were_away_when_the_archive_was_made() -> None:
    result = ReplayResult("id7", "history", 1, sent=1, away=["b", "c"])

    assert not result.is_good
    assert result.warning.startswith("when history was last added to, the brokers b, c are noted")
    assert result.warning.endswith("archive with --without")
    assert ReplayResult("id7", "history", 1, sent=1).warning == ""
