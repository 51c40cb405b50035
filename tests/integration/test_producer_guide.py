"""The examples of docs/producer.md run as they are printed."""

import asyncio
import re
import sqlite3
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from rockhopper.broker import Broker
from tests.support.features import needs
from tests.support.hang import HANG_S

GUIDE = Path(__file__).parents[2] / "docs" / "producer.md"
SECTIONS = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", GUIDE.read_text(), re.M | re.S)
FEATURES = {"Request and reply": "request_reply", "Transactions": "transactions"}
EXAMPLES = [
    pytest.param(title, code, marks=needs(FEATURES[title]) if title in FEATURES else (), id=title)
    for title, text in SECTIONS
    for code in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)[:1]
]


@pytest.mark.parametrize(("title", "code"), EXAMPLES)
async def test_the_example_runs(title: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker.temporary() as broker:
        monkeypatch.setenv("NAMESRV_ADDR", broker.nameserver)
        run = compile(code, f"the example of {title!r} in {GUIDE.name}", "exec")
        async with asyncio.timeout(HANG_S):
            await asyncio.to_thread(run_program, run)


def run_program(code: CodeType) -> None:
    """Run a program in this thread. Its end closes a database, which no collection may do."""
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(code, names)
    finally:
        for each in names.values():
            if isinstance(each, sqlite3.Connection):
                each.close()


def test_every_section_has_its_example() -> None:
    without = {title for title, _ in SECTIONS} - {each.id for each in EXAMPLES}
    assert without == {"Options"}
