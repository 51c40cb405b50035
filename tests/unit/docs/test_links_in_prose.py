"""Every link of a page leads to a file, and to a heading or an anchor in it."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.prose import ROOT, Line, pages


def slug(heading: str) -> str:
    """What a forge makes of a heading for its anchor."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text.strip().lower()))


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return frozenset(map(slug, headings)) | set(re.findall(r'id="([^"]+)"', text))


def links() -> Iterator[tuple[Line, str]]:
    """The links to places in this repository."""
    for page in pages():
        for line in page.prose():
            for target in re.findall(r"\]\(([^)\s]+)\)", line.text):
                if not re.match(r"[a-z]+:", target):
                    yield line, target


def test_links_lead_somewhere() -> None:
    found = list(links())
    assert len(found) > 200
    wrong = []
    for line, target in found:
        file, _, anchor = target.partition("#")
        path = (ROOT / line.page).parent / file if file else ROOT / line.page
        if not path.exists():
            wrong.append(f"{target}: no such file: {line}")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            wrong.append(f"{target}: no such heading: {line}")
    assert wrong == []


def test_a_heading_has_the_anchor_that_forges_give_it() -> None:
    assert slug("LOG_HISTORY (70020)") == "log_history-70020"
    assert slug("Writing: the [sink](sink.md), `rocketmq`") == "writing-the-sink-rocketmq"
