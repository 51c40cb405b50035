"""The messages that the page quotes are those of the code."""

import re
from functools import cache

import pytest

from tests.support.prose import ROOT, code

PAGE = ROOT / "docs/operations/troubleshooting.md"
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def said() -> str:
    """Every text of broker, client and protocol, with its parts between values as they stand."""
    homes = ("rockhopper/broker", "rockhopper/client", "rockhopper/protocol")
    ours = {path for home in homes for path in (ROOT / home).rglob("*.py")}
    texts = [text for path, text in code().texts if path in ours]
    return re.sub(r"%(?:r|s|d|g)", "", "\n".join(texts))


def test_the_page_quotes() -> None:
    assert len(QUOTED) > 40


@pytest.mark.parametrize("message", QUOTED)
def test_each_message_stands_in_the_code(message: str) -> None:
    pieces = [piece.strip() for piece in message.split("…")]
    assert [piece for piece in pieces if piece not in said()] == []
