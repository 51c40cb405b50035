"""Each figure in our pages is what the code, or a kept result, says."""

import tomllib
from pathlib import Path

import pytest

from tests.support import figures
from tests.support.prose import ROOT, Page, pages

TABLE = "docs/site/figures.toml"
KNOWN = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))
LATER = KNOWN.pop("later")["pages"]
PAGES = [page for page in pages() if page.name not in LATER]


def _sources(sources: str | list[str]) -> list[str]:
    return [sources] if isinstance(sources, str) else sources


def _unlike(figure: figures.Figure, source: str) -> str:
    """What is wrong with *figure*, if anything."""
    if source.startswith("file "):
        return "" if figures.file_has(source, figure) else f"not so: {source}"
    try:
        found = figures.value_of(source)
    except ValueError as error:
        return str(error)
    if found is None or figures.agrees(figure, found):
        return ""
    shown = float(found.value / figures.SCALES.get(figure.unit, 1))
    return f"{source} is {shown:,.6g} {figure.unit}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_figure_is_what_its_source_says(page: Page) -> None:
    text, wrong = figures.text_of(page), list[str]()
    found = list(figures.figures(text))
    named = set()
    for words, sources in KNOWN.get(page.name, {}).items():
        begin = text.find(words)
        if begin < 0:
            wrong.append(f"{words!r}: the page no longer has these words; see {TABLE}")
        while begin >= 0:
            end = begin + len(words)
            inside = [one for one in found if begin <= one.begin and one.end <= end]
            named.update(inside)
            if len(inside) != len(_sources(sources)):
                shown = [one.text for one in inside]
                wrong.append(f"{words!r}: has the figures {shown}, and another number of sources")
            for figure, source in zip(inside, _sources(sources), strict=False):
                if because := _unlike(figure, source):
                    wrong.append(f"{words!r}: {figure.text}: {because}")
            begin = text.find(words, end)
    for figure in found:
        if figure not in named:
            words = text[max(0, figure.begin - 60) : figure.end + 15]
            wrong.append(f"{figure.text!r} has no source: add it to {TABLE}: {words!r}")
    assert not wrong, "\n".join(["", *(f"{page.name}: {one}" for one in wrong)])


@pytest.mark.parametrize(
    "page",
    # Docstrings, of which pages are made, have no links.
    [page for page in PAGES if not figures.is_made(page)],
    ids=lambda page: page.name,
)
def test_a_page_with_a_measured_figure_links_to_the_kept_result(page: Page) -> None:
    named = (each for sources in KNOWN.get(page.name, {}).values() for each in _sources(sources))
    results = {Path(each.split()[1]).stem for each in named if each.startswith("result ")}
    assert {stem for stem in results if f"/results/{stem}." not in page.text} == set()


def test_the_table_names_no_page_that_is_not_there() -> None:
    names = {page.name for page in pages()}
    assert {*KNOWN, *LATER} <= names
