"""Counts of words: each micro-batch says anew how often a word came in a window."""

from types import SimpleNamespace
from typing import Any

from rockhopper.pipeline.jobs.demonstrating.words import WordCounts


def batch(*rows: tuple[int, str, int]) -> Any:
    found = [SimpleNamespace(start_ms=at, word=word, times=times) for at, word, times in rows]
    return SimpleNamespace(collect=lambda: found)


def test_a_later_batch_takes_the_place_of_what_was_said_before() -> None:
    counts = WordCounts()
    counts.update(batch((0, "loop", 2), (1000, "loop", 1)), 0)
    counts.update(batch((0, "loop", 5)), 1)
    assert counts.by_window == {(0, "loop"): 5, (1000, "loop"): 1}
    assert counts.batches == 2


def test_totals_are_over_all_windows() -> None:
    counts = WordCounts()
    counts.update(batch((0, "loop", 2), (1000, "loop", 1), (1000, "list", 4)), 0)
    assert counts.totals() == {"loop": 3, "list": 4}
    assert counts.totals().most_common(1) == [("list", 4)]
