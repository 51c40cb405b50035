"""The messages that the page quotes are those of the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/operations/troubleshooting.md"
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def said() -> str:
    """Every text of broker, client and protocol, with its parts between values as they stand."""
    texts = []
    for top in ("broker", "client", "protocol"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(re.sub(r"%(?:r|s|d|g)", "", node.value))
    return "\n".join(texts)


def test_the_page_quotes() -> None:
    assert len(QUOTED) > 40


@pytest.mark.parametrize("message", QUOTED)
def test_each_message_stands_in_the_code(message: str) -> None:
    pieces = [piece.strip() for piece in message.split("…")]
    assert [piece for piece in pieces if piece not in said()] == []
