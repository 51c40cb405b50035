"""Condition: a mask over a batch, and which records are worth decoding for it."""

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rockhopper.pipeline.decoder import Records, read_records
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.searching.condition import Condition, candidates
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED
from tests.support.records import encode_message

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


def records(*bodies: tuple[bytes, int]) -> Records:
    encoded = [encode_message(topic="T", body=body, sys_flag=flag) for body, flag in bodies]
    starts = np.cumsum([0, *map(len, encoded[:-1])])
    return read_records(np.frombuffer(b"".join(encoded), np.uint8), starts)


def rows(found: Records | None, every: Records) -> list[int]:
    return [] if found is None else np.searchsorted(every.offsets, found.offsets).tolist()


@pytest.mark.parametrize(
    ("needles", "expected"),
    [
        ((), [0, 1, 2, 3]),
        ((b"one",), [0, 2, 3]),
        ((b"one", b"two"), [2, 3]),
        ((b"three",), [3]),
        # Over the border of two records: the end of a body and what follows in its record.
        ((b"one two\x01T\0\0\0\0\0",), [3]),
    ],
)
def test_records_that_cannot_match_are_not_decoded(
    needles: tuple[bytes, ...], expected: list[int]
) -> None:
    compressed = (zlib.compress(b"none of them"), SYS_FLAG_COMPRESSED)
    every = records((b"one", 0), (b"two", 0), (b"one two", 0), compressed)
    assert rows(candidates(every, needles), every) == expected


def test_where_no_record_can_match_there_is_none() -> None:
    assert candidates(records((b"one", 0)), (b"two",)) is None
