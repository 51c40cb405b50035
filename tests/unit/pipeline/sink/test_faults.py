"""What is wrong with rows: which, by which column, and in which words."""

from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.sink import faults
from rockhopper.pipeline.sink.encoding import encode_messages
from rockhopper.pipeline.sink.faults import Fault, unreadable, unsendable
from rockhopper.pipeline.sink.rules import read_rules

MAP = pa.map_(pa.string(), pa.string())


def batch(**columns: Any) -> pa.RecordBatch:
    arrays = {name: c if isinstance(c, pa.Array) else pa.array(c) for name, c in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def told(found: list[Fault]) -> list[tuple[str, list[int], str]]:
    return [
        (each.column, rows, each.sentence(rows[0]))
        for each in found
        if (rows := each.rows.nonzero()[0].tolist())
    ]


def no_utf8(*values: bytes) -> pa.Array:
    binary = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(values), *binary.buffers()[1:])


def sent(of_all: str = "T", **columns: Any) -> list[tuple[str, list[int], str]]:
    rows = batch(**columns)
    rules = read_rules({"nameServer": "a:1", "topic": of_all}, streaming=True)
    encoded = encode_messages(rows, of_all, lambda count: ["U"] * count)
    return told(unsendable(rows, encoded, rules))


def test_what_encoding_refuses_is_said_of_each_row() -> None:
    rows = batch(
        body=["a", None, "c", "d", "e"],
        topic=["T", "T", None, "T", "T"],
        tags=["t", "t", "t", "\x02", None],
        shardingKey=["k", "\x01", None, "k", "k"],
        properties=pa.array([[("a", "1")], [], None, [], [("b", "2"), ("c", "\x02")]], MAP),
    )
    separated = "holds the character 1 or 2, which separate properties"
    assert told(unreadable(rows, "")) == [
        ("body", [1], "the column 'body' cannot be sent: it is null"),
        (
            "topic",
            [2],
            "the column 'topic' cannot be sent: it is null, and the option topic is not set",
        ),
        ("shardingKey", [1], f"the column 'shardingKey' cannot be sent: it {separated}"),
        ("tags", [3], f"the column 'tags' cannot be sent: it {separated}"),
        (
            "properties",
            [4],
            f"the column 'properties' cannot be sent: a name or a value {separated}",
        ),
    ]
    assert [each[0] for each in told(unreadable(rows, "T"))] == [
        "body",
        "shardingKey",
        "tags",
        "properties",
    ]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_keys_in_lists(kind: pa.DataType) -> None:
    keys = pa.array([["a", "b"], ["c d"], None, ["\x01"], [None]], kind)
    (fault,) = unreadable(batch(body=["x"] * 5, keys=keys), "T")
    assert fault.rows.tolist() == [False, True, False, True, False]
    assert fault.sentence(1).startswith("the column 'keys' cannot be sent: 'c d' cannot be a key")
    assert "character 1 or 2" in fault.sentence(3)


def test_text_that_is_none() -> None:
    rows = batch(body=["x", "y"], shardingKey=no_utf8(b"ok", b"\xff"))
    assert told(unreadable(rows, "T")) == [
        ("shardingKey", [1], "the column 'shardingKey' cannot be sent: it is no UTF-8")
    ]
    assert sent(body=["x", "y"], tags=no_utf8(b"ok", b"\xff")) == [
        ("properties", [1], "the properties cannot be sent: they are no UTF-8")
    ]


def test_good_rows_have_no_faults() -> None:
    rows = batch(body=["x"], tags=["t"], properties=pa.array([[("a", "1")]], MAP), flag=[7])
    assert unreadable(rows, "T") == []
    assert sent(body=["x"], tags=["t"], flag=[-(2**31)]) == []
    assert sent(body=["x"], flag=pa.array([None], pa.int64())) == []
    assert sent(body=["x" * 40_000], tags=["t" * 30_000]) == []


def test_what_no_record_holds() -> None:
    assert sent(body=["x", "y"], tags=["t" * 32_768, "t"]) == [
        (
            "properties",
            [0],
            "the properties, tags and keys have 32785 bytes, but at most 32767 are allowed",
        )
    ]
    assert sent(body=["x", "y"], flag=[0, 2**31]) == [
        ("flag", [1], "the column 'flag' is 2147483648, and flags have 32 bits")
    ]


def test_bodies_that_no_request_holds_unless_they_are_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faults, "BODY_SIZE_BYTES_MAX", 50_000)
    noise = "".join(f"{number * 7919 % 1_000_003:06x}" for number in range(20_000))
    assert sent(body=["x" * 60_000, noise, "x"]) == [
        ("body", [1], "the body has 120000 bytes, but a request holds at most 50000")
    ]


def test_topics_that_cannot_be_sent_to() -> None:
    topics = ["T", "no good", "SCHEDULE_TOPIC_XXXX", "%DLQ%g"]
    found = sent("", body=["x"] * 4, topic=topics)
    assert found[0][:2] == ("topic", [1, 2])
    assert "contains characters other than" in found[0][2]


def test_exactly_once_refuses_more() -> None:
    rows = batch(body=["x", "y"], bornTimestamp=[5, -5], topic=["%DLQ%g", "T"])
    rules = read_rules({"nameServer": "a:1", "delivery": "exactly-once"}, streaming=True)
    encoded = encode_messages(rows, "", lambda count: ["U"] * count)
    assert told(unsendable(rows, encoded, rules)) == [
        ("topic", [0], "only brokers may write to topic '%DLQ%g'"),
        ("bornTimestamp", [1], "the column 'bornTimestamp' is -5, and times count from 1970 on"),
    ]
    rows = batch(body=["x", "y"], delayTimeLevel=[-1, None])
    encoded = encode_messages(rows, "T", lambda count: ["U"] * count)
    rules = read_rules(
        {"nameServer": "a:1", "delivery": "exactly-once", "topic": "T"}, streaming=True
    )
    assert told(unsendable(rows, encoded, rules)) == [
        ("delayTimeLevel", [0], "the column 'delayTimeLevel' is -1, and levels count from 1 on")
    ]


def test_properties_without_a_name_or_a_value_are_said_of_each_row() -> None:
    maps = [[("a", "1")], [("a", "1"), ("", "x")], None, [("b", "")], [("b", None)], []]
    rows = batch(body=["b"] * len(maps), properties=pa.array(maps, MAP))
    (fault,) = unreadable(rows, "T")
    assert fault.rows.nonzero()[0].tolist() == [1, 3, 4]
    assert fault.sentence(1).endswith("a name or a value is empty or null")
