"""What an archive's run says of itself."""

from typing import Any

import pytest

from rockhopper.pipeline.jobs.archiving.result import ArchiveResult, TopicCount


def said(**fields: Any) -> list[str]:
    return list(ArchiveResult("history", 3, "store", **fields).lines())


def test_what_was_archived() -> None:
    found = said(
        rows=2000,
        files=1,
        bytes=4_000_000,
        seconds=1.26,
        topics=[TopicCount("a", 1), TopicCount("b", 1999)],
        undecoded=1,
        damaged=2,
        left_out=[TopicCount("c", 3)],
        deletable_segments=["/log/0"],
        unfinished_run=2,
    )

    assert found == [
        "run 2, which had been killed, was finished",
        "archived 2,000 messages of store in run 3: 1 file, 4.0 MB, 1.3 s, in history",
        "  a: 1 message",
        "  b: 1,999 messages",
        "1 body did not decode: value is null",
        "2 damaged places of the log skipped",
        "not archived, since these topics were not chosen:",
        "  c: 3 messages",
        "these files of the log are archived whole, and the broker can do without them:",
        "  /log/0",
    ]


def test_nothing_new() -> None:
    assert said() == ["nothing new in store for history"]


@pytest.mark.parametrize(
    ("count", "last"), [(12, "  t11: 1 message"), (14, "  … and 2 more topics")]
)
def test_not_all_of_many_topics_are_listed(count: int, last: str) -> None:
    topics = [TopicCount(f"t{number}", 1) for number in range(count)]

    found = said(rows=count, topics=topics)

    assert (len(found), found[-1]) == (1 + min(count, 13), last)


def test_what_would_be_archived() -> None:
    topics = [TopicCount("a", 7)]

    assert said(dry_run=True, rows=7, tasks=1, topics=topics, unfinished_run=2) == [
        "run 2 was killed: it would be finished first",
        "run 3 would archive 7 messages of store in 1 task, into history",
        "  a: 7 messages",
    ]
    assert said(dry_run=True, from_files=True, log_bytes=2000, tasks=2) == [
        "run 3 would read 2.0 KB of the log of store in 2 tasks, into history"
    ]
