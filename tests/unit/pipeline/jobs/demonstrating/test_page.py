"""The page of the demo: what was counted, in a file that needs nothing from elsewhere."""

import re

from rockhopper.pipeline.jobs.demonstrating.page import TOP, page
from rockhopper.pipeline.jobs.demonstrating.words import WordCounts
from rockhopper.pipeline.jobs.reporting.plots import SERIES_MAX


def counted(words: int = 20) -> WordCounts:
    """word00 came most often; some in the window at 0 s, the rest at 2 s."""
    counts = WordCounts()
    for number in range(words):
        counts.by_window[0, f"word{number:02d}"] = 1000 - number
        counts.by_window[2000, f"word{number:02d}"] = 500
    return counts


def rows_of(text: str) -> list[tuple[str, str, str]]:
    pattern = r'<tr><td>(\w+)</td><td class="number">([\d,]+)</td>.*?width:([\d.]+%)'
    return re.findall(pattern, text)


def test_the_most_frequent_words_come_first_with_their_share_of_the_first() -> None:
    rows = rows_of(page(counted(), [], []))
    assert [word for word, _, _ in rows] == [f"word{number:02d}" for number in range(TOP)]
    assert rows[0] == ("word00", "1,500", "100.0%")
    assert rows[9] == ("word09", "1,491", "99.4%")


def test_the_plot_shows_every_window_and_only_some_words() -> None:
    text = page(counted(), [], [])
    plot = text.partition("Words as they arrived")[2].partition("</section>")[0]
    assert f"the {SERIES_MAX} most frequent words" in plot
    assert f"word{SERIES_MAX - 1:02d}" in plot
    assert f"word{SERIES_MAX:02d}" not in plot


def test_without_any_word_there_is_no_plot() -> None:
    text = page(WordCounts(), [], [])
    assert "<svg" not in text
    assert rows_of(text) == []


def test_facts_and_checks_are_said_as_text() -> None:
    text = page(counted(1), [("1 < 2", "a & b")], ["<none> lost"])
    assert "<b>1 &lt; 2</b><span>a &amp; b</span>" in text
    assert "✓ &lt;none&gt; lost" in text


def test_it_wants_nothing_from_elsewhere() -> None:
    text = page(counted(), [("1", "x")], ["y"])
    assert not re.search(r'src=|href="(?!#)|url\((?!#)|@import', text)
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
