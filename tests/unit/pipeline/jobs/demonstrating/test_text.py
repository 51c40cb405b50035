"""The text of the demonstration, and the words in it."""

import sys

import pytest

from rockhopper.pipeline.jobs.demonstrating.text import passages, words


def test_there_is_text_enough_and_each_line_has_a_word() -> None:
    lines = passages()

    assert len(lines) > 1_000
    assert all(chapter and words(line) for chapter, line in lines)


def test_there_is_text_where_python_came_without_its_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)

    assert len(passages()) > 500


def test_words_are_what_the_query_takes_for_words() -> None:
    assert words("The Zen, isn't it: Namespaces_are 4 honking great") == [
        "namespaces",
        "honking",
        "great",
    ]
