"""The truth table that RocketMQ's own evaluator made (tests.interop.make_sql_golden)."""

import json
from pathlib import Path
from typing import Any

from tests.support.sql_table import EXPRESSIONS, PROPERTY_SETS
from tests.support.sql_verdicts import REFUSED, our_verdicts

GOLDEN = Path(__file__).parents[3] / "golden" / "apache-5.5.0" / "sql92.json"


def table() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return document


def test_every_verdict_is_the_reference_s() -> None:
    golden = table()
    verdicts: dict[str, str] = golden["verdicts"]
    ours = {expression: our_verdicts(expression, PROPERTY_SETS) for expression in verdicts}
    assert {
        text: (verdicts[text], ours[text]) for text in ours if ours[text] != verdicts[text]
    } == {}


def test_the_table_is_that_of_today_and_has_all_kinds_of_verdicts() -> None:
    golden = table()
    assert golden["properties"] == PROPERTY_SETS
    assert set(EXPRESSIONS) <= golden["verdicts"].keys()
    letters = "".join(text for text in golden["verdicts"].values() if text != REFUSED)
    for letter in "TFNX":
        assert letters.count(letter) > 500
