"""Rows that cannot be sent: dropped or made dead letters, and what of them is kept."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.client.errors import BrokerUnreachableError, RequestRefusedError
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.bad_rows import BODY_BYTES_MAX, BadRows, Sieve
from rockhopper.pipeline.sink.encoding import PROPERTIES_SIZE_BYTES_MAX, Messages, encode_messages
from rockhopper.pipeline.sink.rules import SinkRules, read_rules
from rockhopper.protocol.properties import decode_properties

MAP = pa.map_(pa.string(), pa.string())
DROP = {"onBadRow": "drop"}
KEEP = {"onBadRow": "deadletter", "deadLetterTopic": "bad"}


def rules(given: dict[str, str]) -> SinkRules:
    return read_rules({"nameServer": "a:1", "topic": "T"} | given, streaming=True)


class Ids:
    """U0, U1 and so on."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, count: int) -> Sequence[str]:
        self.made += count
        return [f"U{number}" for number in range(self.made - count, self.made)]


def sieve(given: dict[str, str]) -> Sieve:
    return Sieve(rules(given), Ids(), lambda: 77)


def batch(**columns: Any) -> pa.RecordBatch:
    arrays = {name: c if isinstance(c, pa.Array) else pa.array(c) for name, c in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def properties(messages: Messages) -> list[dict[str, str]]:
    return [decode_properties(text) for text in messages.properties]


def test_good_rows_are_encoded_as_without_a_sieve() -> None:
    rows = batch(body=["a", "b"], tags=["t", None], flag=[1, 2])
    (found,) = sieve(KEEP).messages(rows)
    plain = encode_messages(rows, "T", Ids(), lambda: 77)
    assert (found.topics, found.bodies, found.properties, found.flags) == (
        plain.topics,
        plain.bodies,
        plain.properties,
        plain.flags,
    )
    assert sieve(DROP).messages(batch(body=pa.array([], pa.string()))) == []


def test_a_bad_row_fails_the_write_by_default() -> None:
    with pytest.raises(PipelineError, match=r"1 rows for 'T' have no body: leave them out"):
        sieve({}).messages(batch(body=["a", None]))


def test_rows_are_dropped_and_counted_and_ids_go_by_row() -> None:
    sifting = sieve(DROP)
    (first,) = sifting.messages(batch(body=["a", None, "c", "d"], tags=["t", "t", "\x01", "t"]))
    assert first.bodies == [b"a", b"d"]
    assert [each["UNIQ_KEY"] for each in properties(first)] == ["U0", "U3"]
    assert sifting.messages(batch(body=[None, None], tags=["t", "t"])) == []
    (third,) = sifting.messages(batch(body=["e"], tags=["t"]))
    assert properties(third)[0]["UNIQ_KEY"] == "U6"
    assert sifting.bad == BadRows(4, "the column 'body' cannot be sent: it is null")


def test_dead_letters_say_why_and_keep_what_can_be_kept() -> None:
    sifting = sieve(KEEP | {"topic": ""})
    rows = batch(
        body=["a", None, "c", "d"],
        topic=["A", "B", "C", "no good"],
        tags=["t", "t", "\x01t", "t"],
        keys=pa.array([["k"], ["k1", "k2"], None, []], pa.list_(pa.string())),
        properties=pa.array([None, [("mine", "1"), ("UNIQ_KEY", "old")], None, None], MAP),
    )
    found = sifting.messages(rows)
    letters = {
        body.decode(): own
        for messages in found[1:]
        for body, own in zip(messages.bodies, properties(messages), strict=True)
    }
    assert found[0].bodies == [b"a"]
    assert {topic for messages in found[1:] for topic in messages.topics} == {"bad"}
    assert letters[""] == {
        "RH_BAD_ROW": "the column 'body' cannot be sent: it is null",
        "RH_BAD_COLUMN": "body",
        "RH_BAD_TOPIC": "B",
        "KEYS": "k1 k2",
        "TAGS": "t",
        "mine": "1",
        "UNIQ_KEY": "U1",
    }
    assert (letters["c"]["RH_BAD_COLUMN"], letters["c"]["TAGS"]) == ("tags", " t")
    assert letters["d"]["RH_BAD_COLUMN"] == "topic"
    assert "characters other than" in letters["d"]["RH_BAD_ROW"]
    assert sifting.bad.count == 3


def test_a_dead_letter_that_is_bad_again_tells_the_newer_reason() -> None:
    own = pa.array([[("RH_BAD_ROW", "old"), ("RH_BAD_TOPIC", "old"), ("a", "1")]], MAP)
    (letters,) = sieve(KEEP).messages(batch(body=pa.array([None], pa.string()), properties=own))
    assert properties(letters)[0] == {
        "RH_BAD_ROW": "the column 'body' cannot be sent: it is null",
        "RH_BAD_COLUMN": "body",
        "RH_BAD_TOPIC": "T",
        "a": "1",
        "UNIQ_KEY": "U0",
    }


@given(
    body=st.one_of(st.none(), st.binary(max_size=50)),
    tags=st.text(max_size=30),
    pairs=st.dictionaries(st.text(max_size=9), st.text(max_size=20), max_size=5),
    scale=st.sampled_from([1, 3000]),
)
def test_whatever_a_row_holds_its_dead_letter_can_be_stored(
    body: bytes | None, tags: str, pairs: dict[str, str], scale: int
) -> None:
    own = [(name, value * scale) for name, value in pairs.items()]
    rows = batch(
        body=pa.array([body, None], pa.binary()),
        tags=[tags * scale] * 2,
        properties=pa.array([own, own], MAP),
        flag=[0, 2**40],
    )
    sifting = sieve(KEEP)
    found = sifting.messages(rows)
    assert sum(map(len, found)) == 2
    for messages in found:
        assert messages.batch(slice(0, len(messages)))
        for text in messages.properties:
            assert len(text.encode()) <= PROPERTIES_SIZE_BYTES_MAX
            assert text.count("\x01") == text.count("\x02")
    assert sifting.bad.count >= 1


def test_what_a_broker_calls_illegal_is_set_aside() -> None:
    illegal = RequestRefusedError(10, 13, "too large", "a:1")
    for_a_while = RequestRefusedError(10, 2, "busy", "a:1")
    assert sieve({}).refusal(illegal) is None
    assert sieve(DROP).refusal(illegal) is illegal
    assert sieve(DROP).refusal(for_a_while) is None
    assert sieve(DROP).refusal(BrokerUnreachableError("gone")) is None
    dropping, keeping = sieve(DROP), sieve(KEEP)
    sent = encode_messages(batch(body=["a", "x" * (5 << 20)], tags=["t", "u"]), "T", Ids())
    assert dropping.refuse(sent, 1, "too large") is None
    assert dropping.bad == BadRows(1, "too large")
    letter = keeping.refuse(sent, 1, "too large")
    assert letter is not None
    assert letter.sizes[0] > len(letter.bodies[0]) == BODY_BYTES_MAX
    assert properties(letter) == [
        {"RH_BAD_ROW": "too large", "RH_BAD_TOPIC": "T", "TAGS": "u", "UNIQ_KEY": "U1"}
    ]
    smaller = keeping.refuse(letter, 0, "too large again")
    assert smaller is not None
    assert len(smaller.bodies[0]) == BODY_BYTES_MAX // 4
    assert properties(smaller) == properties(letter)
    assert keeping.bad == BadRows(1, "too large")


def test_a_dead_letter_that_nobody_takes_fails_the_write() -> None:
    keeping = sieve(KEEP)
    (letters,) = keeping.messages(batch(body=pa.array([None], pa.string())))
    with pytest.raises(PipelineError, match=r"sent to 'bad' \(no room\): correct that topic"):
        keeping.refuse(letters, 0, "no room")


def test_some_messages_are_taken_out_of_others() -> None:
    rows = batch(body=["a", "b", "c"], queueId=[0, 9, 1], delayTimeLevel=[None, 1, 2])
    keeping = sieve(KEEP)
    (messages,) = keeping.messages(rows)
    good, letter = keeping.without(messages, {1: "no queue 9"}, "queueId")
    assert (good.bodies, good.queue_ids, good.is_delayed.tolist()) == (
        [b"a", b"c"],
        [0, 1],
        [False, True],
    )
    assert properties(letter)[0]["RH_BAD_COLUMN"] == "queueId"
    assert letter.queue_ids is None
