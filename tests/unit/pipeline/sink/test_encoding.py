"""From Arrow batches to messages."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.encoding import Messages, encode_messages, pieces
from rockhopper.pipeline.sink.staging import part_ids
from rockhopper.protocol.properties import decode_properties, encode_properties
from rockhopper.protocol.store.message_codec import decode_batch

MAP = pa.map_(pa.string(), pa.string())


def ids(count: int) -> Sequence[str]:
    return [f"U{number}" for number in range(count)]


def encoded(of_all: str = "T", **columns: Any) -> Messages:
    arrays = {name: c if isinstance(c, pa.Array) else pa.array(c) for name, c in columns.items()}
    return encode_messages(pa.RecordBatch.from_pydict(arrays), of_all, ids, lambda: 77)


def properties(messages: Messages) -> list[dict[str, str]]:
    return [decode_properties(text) for text in messages.properties]


def test_a_body_is_enough() -> None:
    messages = encoded(body=["grüß", "b"])
    assert messages.topics == ["T", "T"]
    assert messages.bodies == ["grüß".encode(), b"b"]
    assert messages.properties == ["UNIQ_KEY\x01U0\x02", "UNIQ_KEY\x01U1\x02"]
    assert (messages.flags, messages.born_ms, messages.has_born) == ([0, 0], [77, 77], False)
    assert messages.queue_ids is None
    assert messages.sharding_keys is None
    assert messages.is_delayed is None
    assert messages.sizes.tolist() == [6 + 12, 1 + 12]


@given(
    rows=st.lists(st.tuples(st.binary(max_size=40), st.text("ab c", max_size=9)), min_size=1),
    data=st.data(),
)
def test_a_batch_holds_rows_as_the_protocol_says(
    rows: list[tuple[bytes, str]], data: st.DataObject
) -> None:
    texts, tags = zip(*rows, strict=True)
    flags = list(range(-1, len(rows) - 1))
    messages = encoded(body=pa.array(texts, pa.binary()), tags=tags, flag=flags)
    start = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(start + 1, len(rows)))
    some = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    for chosen, numbers in ((slice(start, end), range(start, end)), (np.array(some), some)):
        assert decode_batch(messages.batch(chosen)) == [
            (flags[n], texts[n], messages.properties[n].encode()) for n in numbers
        ]


def test_properties_that_no_record_can_hold_are_refused() -> None:
    messages = encoded(body=["a", "b"], tags=["t", "t" * 32_768])
    assert decode_batch(messages.batch(slice(0, 1)))
    with pytest.raises(PipelineError, match="at most 32767 are allowed: shorten"):
        messages.batch(slice(0, 2))


def test_every_column() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    messages = encoded(
        "",
        topic=["A", "B"],
        body=pa.array([b"\xff", b""]),
        tags=["t", None],
        keys=["k1 k2", ""],
        properties=pa.array([[("a", "1")], None], MAP),
        queueId=pa.array([3, None], pa.int16()),
        brokerName=["b", None],
        deliverTimestamp=pa.array([None, moment], pa.timestamp("us", "Europe/Berlin")),
        flag=pa.array([None, 9], pa.int64()),
        bornTimestamp=pa.array([moment, None], pa.timestamp("us", "UTC")),
    )
    assert messages.topics == ["A", "B"]
    assert messages.bodies == [b"\xff", b""]
    assert properties(messages) == [
        {"a": "1", "KEYS": "k1 k2", "TAGS": "t", "UNIQ_KEY": "U0"},
        {"TIMER_DELIVER_MS": "1767225600000", "UNIQ_KEY": "U1"},
    ]
    assert (messages.queue_ids, messages.broker_names) == ([3, None], ["b", None])
    assert (messages.flags, messages.born_ms) == ([0, 9], [1767225600000, 77])
    assert messages.is_delayed.tolist() == [False, True]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_keys_may_be_lists(kind: pa.DataType) -> None:
    keys = pa.array([["k1", "k2"], [], None, ["k3", None]], kind)
    messages = encoded("T", body=["a", "b", "c", "d"], keys=keys)
    assert [found.get("KEYS") for found in properties(messages)] == ["k1 k2", None, None, "k3"]
    with pytest.raises(PipelineError, match="'keys': 'a b' cannot be a key"):
        encoded("T", body=["a"], keys=pa.array([["a b"]], kind))


def test_properties_of_another_message_lose_their_history() -> None:
    stored = {
        "UNIQ_KEY": "old",
        "KEYS": "k",
        "TAGS": "old tag",
        "WAIT": "true",
        "RH_SINK": "x:0:1",
        "__CRC32#": "5",
        "DELAY": "3",
        "mine": "kept",
        "__CRC32": "mine too",
    }
    wanted = {"KEYS": "k", "TAGS": "new", "mine": "kept", "__CRC32": "mine too", "UNIQ_KEY": "U0"}
    as_map = encoded(body=["a"], tags=["new"], properties=pa.array([list(stored.items())], MAP))
    raw = pa.array([encode_properties(stored).encode()])
    as_bytes = encoded(body=["a"], tags=["new"], rawProperties=raw)
    assert properties(as_map) == properties(as_bytes) == [wanted]


def test_raw_properties_as_clients_leave_them() -> None:
    raw = [b"a\x011\x02b\x012", None, b"", b"bad\xff\x01x\x02=\x01\x02novalue\x02\x01noname\x02"]
    messages = encoded(body=["a"] * 4, rawProperties=pa.array(raw, pa.binary()))
    assert properties(messages) == [
        {"a": "1", "b": "2", "UNIQ_KEY": "U0"},
        {"UNIQ_KEY": "U1"},
        {"UNIQ_KEY": "U2"},
        {"bad\ufffd": "x", "UNIQ_KEY": "U3"},
    ]


@given(
    st.lists(
        st.none() | st.dictionaries(st.text("ab=% é", max_size=3), st.none() | st.text(max_size=4)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 7),
)
def test_maps_arrive_as_they_are(maps: list[dict[str, str | None] | None], start: int) -> None:
    for each in maps:
        for name, value in (each or {}).items():
            if {"\x01", "\x02"} & set(name + (value or "")):
                each.pop(name)  # type: ignore[union-attr]
                return
    rows = [None if each is None else list(each.items()) for each in maps]
    batch = pa.RecordBatch.from_pydict(
        {"body": pa.array(["b"] * len(maps)), "properties": pa.array(rows, MAP)}
    ).slice(min(start, len(maps) - 1))
    wanted = [each or {} for each in maps[min(start, len(maps) - 1) :]]
    if not all(name and value for each in wanted for name, value in each.items()):
        with pytest.raises(PipelineError, match="a name or a value that is empty or null"):
            encode_messages(batch, "T", ids, lambda: 0)
        return
    found = properties(encode_messages(batch, "T", ids, lambda: 0))
    assert [{k: v for k, v in each.items() if k != "UNIQ_KEY"} for each in found] == wanted


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"body": pa.array(["a", None])}, "1 rows for 'T' have no body"),
        ({"body": ["a"], "tags": ["x\x02y"]}, "the column 'tags' holds the character 1 or 2"),
        (
            {"body": ["a"], "properties": pa.array([[("a", "b\x01")]], MAP)},
            "the column 'properties' holds",
        ),
    ],
)
def test_rows_that_cannot_be_sent(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(PipelineError) as caught:
        encoded(**columns)
    assert says in str(caught.value)


def test_rows_without_a_topic() -> None:
    with pytest.raises(PipelineError, match="1 rows have no topic"):
        encoded("", body=["a", "b"], topic=["T", None])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_pieces_cover_everything_and_keep_the_limit(sizes: list[int], bytes_max: int) -> None:
    found = pieces(np.array(sizes), bytes_max, 3)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(sizes)
    for start, end in found:
        assert end - start == 1 or sum(sizes[start:end]) + 3 * (end - start) <= bytes_max


def test_ids_are_the_same_when_a_batch_is_repeated_and_never_twice() -> None:
    def some(*steps: int, partition: int = 0) -> list[str]:
        make = part_ids("sink", 4, partition)
        return [each for step in steps for each in make(step)]

    once = some(65_000, 1_000, 70_000)
    assert once == some(136_000)
    assert len(set(once) | set(some(1_000, partition=1))) == 137_000
    assert {len(each) for each in once} == {32}
    assert all(each.isalnum() for each in once)
