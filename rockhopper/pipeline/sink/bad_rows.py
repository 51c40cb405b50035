"""Rows that cannot be sent, and what becomes of them: the option onBadRow.

A batch is encoded as if all its rows were good, which costs good rows nothing. Where that fails,
faults.py says which rows it is and why, and the others are encoded without them. What brokers alone
know (their maxMessageSize, how late they deliver) they say when a row is sent: one that they call
illegal is bad as well.

A dead letter is a message for the topic that the option deadLetterTopic names: as its body what
fits of the row's, and as properties why the row is there (PROPERTY_…) and what can be kept of the
row's own.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.client.errors import RequestRefusedError
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.encoding import HISTORY, Messages, encode_messages
from rockhopper.pipeline.sink.faults import Fault, unreadable, unsendable
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.properties import (
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
    join_properties,
)

PROPERTY_BAD_ROW = "RH_BAD_ROW"
"""Of a dead letter: the sentence that says what is wrong with the row."""
PROPERTY_BAD_COLUMN = "RH_BAD_COLUMN"
"""The column that it is about; left out where only the broker knows."""
PROPERTY_BAD_TOPIC = "RH_BAD_TOPIC"
"""Where the row was to go."""
# RocketMQ's maxMessageSize of 4 MiB, less what a record holds beside its body.
BODY_BYTES_MAX = (4 << 20) - (64 << 10)
TEXT_LENGTH_MAX = 1000
PROPERTIES_LENGTH_MAX = 5000
"""In characters, which take four bytes at most: far from what a record can hold."""
_OF_COLUMNS = {"keys": PROPERTY_KEYS, "tags": PROPERTY_TAGS, "shardingKey": PROPERTY_SHARDING_KEY}
_HARMLESS = str.maketrans("\x01\x02", "  ")


@dataclass(frozen=True)
class BadRows:
    """How many rows of a task could not be sent, and what was wrong with the first."""

    count: int = 0
    first: str = ""


class Sieve:
    """Makes messages of the rows of one task, and sets aside those that cannot be any."""

    def __init__(
        self,
        rules: SinkRules,
        unique_keys: Callable[[int], Sequence[str]],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._rules = rules
        self._unique_keys = unique_keys
        self._now_ms = now_ms
        self.bad = BadRows()
        """Those so far."""

    def messages(self, batch: pa.RecordBatch) -> list[Messages]:
        """The messages that rows are, and the dead letters of those that cannot be any.

        Raises:
            PipelineError: a row cannot be sent, and is not to be set aside.
        """
        if not batch.num_rows:
            return []
        if not self._rules.sets_bad_rows_aside:
            return [encode_messages(batch, self._rules.topic, self._unique_keys, self._now_ms)]
        # Ids go by row, so that those of a repeated batch are the same.
        return list(self._sifted(batch, self._unique_keys(batch.num_rows)))

    def _sifted(self, batch: pa.RecordBatch, ids: Sequence[str]) -> Iterator[Messages]:
        rules = self._rules
        try:
            messages = encode_messages(batch, rules.topic, lambda _: ids, self._now_ms)
            faults = unsendable(batch, messages, rules)
            if not faults:
                yield messages
                return
        except (PipelineError, UnicodeDecodeError, pa.ArrowInvalid):
            faults = unreadable(batch, rules.topic)
            if not faults:
                raise
        bad = np.logical_or.reduce([fault.rows for fault in faults])
        rows: list[int] = np.flatnonzero(bad).tolist()
        kept = rows if rules.dead_letter_topic else rows[:1]
        letters = list(self._letters(batch.take(pa.array(kept)), kept, faults))
        self._count(len(rows), letters[0].properties[PROPERTY_BAD_ROW])
        good: list[int] = np.flatnonzero(~bad).tolist()
        if good:
            yield from self._sifted(batch.take(pa.array(good)), [ids[row] for row in good])
        if rules.dead_letter_topic:
            yield self._posted(letters, [ids[row] for row in rows])

    def _letters(
        self, bad: pa.RecordBatch, rows: Sequence[int], faults: list[Fault]
    ) -> Iterator["_Letter"]:
        """What is to be kept of *bad*, which are some *rows* of a batch."""
        columns = {name: _values(bad.column(at)) for at, name in enumerate(bad.schema.names)}
        for number, row in enumerate(rows):
            fault = next(fault for fault in faults if fault.rows[row])
            parts = {name: values[number] for name, values in columns.items()}
            reasons = {
                PROPERTY_BAD_ROW: fault.sentence(row),
                PROPERTY_BAD_COLUMN: fault.column,
                PROPERTY_BAD_TOPIC: self._rules.topic or parts.get("topic") or "",
            }
            body = parts["body"] or b""
            body = body.encode() if isinstance(body, str) else body
            yield _Letter(body[:BODY_BYTES_MAX], reasons | _unlike(reasons, _kept(parts)))

    def refusal(self, error: BaseException | None) -> RequestRefusedError | None:
        """The answer of a broker that calls a message illegal, if *error* is one.

        None as well where such rows are not to be set aside.
        """
        if self._rules.sets_bad_rows_aside and isinstance(error, RequestRefusedError):
            return error if error.code == ResponseCode.MESSAGE_ILLEGAL else None
        return None

    def refuse(self, messages: Messages, row: int, why: str, column: str = "") -> Messages | None:
        """Set a message aside; its dead letter, if there is to be one. Raises PipelineError.

        A dead letter that is too large for the broker is cut.
        """
        topic = messages.topics[row]
        body = messages.body_bytes[row].as_py()
        properties = decode_properties(messages.property_texts[row].cast(pa.binary()).as_py())
        unique_key = properties.pop(PROPERTY_UNIQUE_KEY, "")
        if topic == self._rules.dead_letter_topic:
            if not body:
                raise PipelineError(
                    f"a dead letter could not be sent to {topic!r} ({why}): correct that topic, or "
                    "set onBadRow=drop"
                )
            return self._posted([_Letter(body[: len(body) // 4], properties)], [unique_key])
        self._count(1, why)
        if not self._rules.dead_letter_topic:
            return None
        reasons = {
            PROPERTY_BAD_ROW: why,
            PROPERTY_BAD_COLUMN: column,
            PROPERTY_BAD_TOPIC: topic,
        }
        # What asked for a delay would have the letter refused as well.
        kept = _unlike(HISTORY | reasons.keys(), properties)
        letter = _Letter(body[:BODY_BYTES_MAX], reasons | kept)
        return self._posted([letter], [unique_key])

    def without(
        self, messages: Messages, problems: Mapping[int, str], column: str
    ) -> list[Messages]:
        """*messages* but for the rows that have *problems*, and the dead letters of these."""
        good = np.setdiff1d(np.arange(len(messages)), list(problems))
        found = [messages.some(good)] if len(good) else []
        letters = [self.refuse(messages, row, why, column) for row, why in problems.items()]
        return found + [letter for letter in letters if letter is not None]

    def _count(self, count: int, first: str) -> None:
        self.bad = BadRows(self.bad.count + count, self.bad.first or first)

    def _posted(self, letters: list["_Letter"], ids: Sequence[str]) -> Messages:
        count = len(letters)
        texts = pa.array(
            [
                join_properties(_bounded(letter.properties) | {PROPERTY_UNIQUE_KEY: name})
                for letter, name in zip(letters, ids, strict=True)
            ],
            pa.string(),
        )
        bodies = pa.array([letter.body for letter in letters], pa.binary())
        sizes = pc.add(pc.binary_length(bodies), pc.binary_length(texts))
        return Messages(
            [self._rules.dead_letter_topic] * count,
            None,
            None,
            None,
            [0] * count,
            [self._now_ms()] * count,
            False,
            texts,
            bodies,
            sizes.to_numpy(zero_copy_only=False).astype(np.int64),
            None,
        )


@dataclass(frozen=True)
class _Letter:
    body: bytes
    properties: dict[str, str]


def _values(column: Any) -> list[Any]:
    """The values of a column; of text that is no UTF-8 what can be read."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return [None] * len(column)
        return [
            None if value is None else value.decode("utf-8", "replace")
            for value in column.cast(pa.binary()).to_pylist()
        ]
    return values


def _kept(parts: Mapping[str, Any]) -> dict[str, str]:
    """The properties that a row has by its columns."""
    found: dict[str, str] = {}
    for name, source in _OF_COLUMNS.items():
        value = parts.get(name)
        if isinstance(value, list):
            value = " ".join(filter(None, value))
        found[source] = value or ""
    own = dict(parts.get("properties") or ()) | decode_properties(parts.get("rawProperties") or b"")
    carried = _unlike(HISTORY, {name: value or "" for name, value in own.items()})
    return carried | {name: value for name, value in found.items() if value}


def _unlike(names: Any, properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in names}


def _bounded(properties: Mapping[str, str]) -> dict[str, str]:
    """As many of *properties* as a record surely holds, the first first, harmless and cut."""
    found: dict[str, str] = {}
    left = PROPERTIES_LENGTH_MAX
    for name, value in properties.items():
        key, text = (part.translate(_HARMLESS)[:TEXT_LENGTH_MAX] for part in (name, value))
        left -= len(key) + len(text) + 2
        if left >= 0 and key and text:
            found[key] = text
    return found
