"""Condition: a mask over a batch, and which records are worth decoding for it."""

from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.searching.condition import Condition

ROWS: dict[str, list[Any]] = {
    "topic": ["orders", "orders", "bills"],
    "storeTimestamp": [1000, 2000, 3000],
    "tags": ["new", None, "paid"],
    "keys": ["A17 B2", None, "A1"],
    "msgId": ["M1", "M2", "A17"],
    "body": [b"hello", b"help", b"bye"],
    "properties": [[("amount", "5")], [("amount", "50")], None],
}


def batch() -> pa.RecordBatch:
    arrays = {name: pa.array(values) for name, values in ROWS.items() if name != "properties"}
    arrays["storeTimestamp"] = pa.array([ms * 1000 for ms in ROWS["storeTimestamp"]]).cast(
        pa.timestamp("us")
    )
    arrays["properties"] = pa.array(ROWS["properties"], pa.map_(pa.string(), pa.string()))
    return pa.RecordBatch.from_pydict(arrays)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (Condition(), ["M1", "M2", "A17"]),
        (Condition(topics=("bills",)), ["A17"]),
        (Condition(start_ms=2000), ["M2", "A17"]),
        (Condition(end_ms=2000), ["M1"]),
        (Condition(tag="new"), ["M1"]),
        (Condition(key="A17"), ["M1", "A17"]),
        (Condition(key="B2"), ["M1"]),
        (Condition(key="A"), []),
        (Condition(contains=b"hel"), ["M1", "M2"]),
        (Condition(contains=b"hel", tag="new"), ["M1"]),
        (Condition(sql92="amount > 10"), ["M2"]),
        (Condition(sql92="amount > 1", tag="new"), ["M1"]),
        (Condition(sql92="amount IS NULL"), ["A17"]),
        (Condition(where="topic = 'orders'"), ["M1", "M2"]),
    ],
)
def test_all_parts_of_a_condition_must_hold(condition: Condition, found: list[str]) -> None:
    assert condition.matching(batch()).column("msgId").to_pylist() == found


def test_a_condition_that_is_none_is_refused_with_an_example() -> None:
    Condition(sql92="amount > 10").check()
    with pytest.raises(PipelineError, match="an example is region = 'eu' AND amount > 100"):
        Condition(sql92="amount >").check()


def test_needles_are_what_the_bytes_of_a_record_must_hold() -> None:
    assert Condition(key="k", tag="t", contains=b"c").needles == (b"k", b"t", b"c")
    assert Condition(contains=b"").needles == ()
    assert Condition(key="k", where="tags = 'red' AND queueId = 1").needles == (b"k", b"red")
