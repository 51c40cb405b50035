"""Handle rows that cannot be sent: the option onBadRow.

A batch is first encoded as if all its rows were good, so good rows cost nothing extra. If that
fails, faults.py finds the bad rows and the reasons, and the other rows are encoded without them.
Some limits are known only to brokers (maxMessageSize, the longest delay); a broker reports them
when a row is sent. A row that a broker refuses as illegal counts as bad too.

A dead letter is a message to the topic in the option deadLetterTopic. Its body is as much of the
row's body as fits. Its properties are the reason (PROPERTY_…) and the row's own properties, as far
as they can be stored.
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
"""In a dead letter: the sentence that describes what is wrong with the row."""
PROPERTY_BAD_COLUMN = "RH_BAD_COLUMN"
"""In a dead letter: the bad column; omitted if only the broker found the problem."""
PROPERTY_BAD_TOPIC = "RH_BAD_TOPIC"
"""In a dead letter: the topic that the row was meant for."""
# RocketMQ's maxMessageSize of 4 MiB, minus room for the rest of a record.
BODY_BYTES_MAX = (4 << 20) - (64 << 10)
TEXT_LENGTH_MAX = 1000
PROPERTIES_LENGTH_MAX = 5000
"""In characters of at most four bytes each: far below the capacity of a record."""
_OF_COLUMNS = {"keys": PROPERTY_KEYS, "tags": PROPERTY_TAGS, "shardingKey": PROPERTY_SHARDING_KEY}
_HARMLESS = str.maketrans("\x01\x02", "  ")


@dataclass(frozen=True)
class BadRows:
    """The number of bad rows of a task, and the problem of the first."""

    count: int = 0
    first: str = ""


class Sieve:
    """Turns the rows of one task into messages, and sets bad rows aside."""

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
        """The bad rows so far."""

    def messages(self, batch: pa.RecordBatch) -> list[Messages]:
        """Return the messages of good rows, and the dead letters of bad rows.

        Raises:
            PipelineError: a row is bad, and the options do not set bad rows aside.
        """
        if not batch.num_rows:
            return []
        if not self._rules.sets_bad_rows_aside:
            return [encode_messages(batch, self._rules.topic, self._unique_keys, self._now_ms)]
        # Ids are assigned by row, so a repeated batch gets the same ids.
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
        """Yield a letter for each of *bad*, whose row numbers in the batch are *rows*."""
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
        """Return *error* if a broker refused a message as illegal, else None.

        Also return None if the options do not set bad rows aside.
        """
        if self._rules.sets_bad_rows_aside and isinstance(error, RequestRefusedError):
            return error if error.code == ResponseCode.MESSAGE_ILLEGAL else None
        return None

    def refuse(self, messages: Messages, row: int, why: str, column: str = "") -> Messages | None:
        """Set a message aside; return its dead letter, if the options ask for one.

        If a broker refuses a dead letter as too large, its body is cut. Raises PipelineError.
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
        # A delay property would make the broker refuse the dead letter as well.
        kept = _unlike(HISTORY | reasons.keys(), properties)
        letter = _Letter(body[:BODY_BYTES_MAX], reasons | kept)
        return self._posted([letter], [unique_key])

    def without(
        self, messages: Messages, problems: Mapping[int, str], column: str
    ) -> list[Messages]:
        """Return *messages* without the rows in *problems*, and the dead letters of those rows."""
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
    """Return the values of a column; bytes that are not UTF-8 become U+FFFD."""
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
    """Return the properties that the columns of a row define."""
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
    """Return as many *properties* as surely fit a record, in order, sanitised and shortened."""
    found: dict[str, str] = {}
    left = PROPERTIES_LENGTH_MAX
    for name, value in properties.items():
        key, text = (part.translate(_HARMLESS)[:TEXT_LENGTH_MAX] for part in (name, value))
        left -= len(key) + len(text) + 2
        if left >= 0 and key and text:
            found[key] = text
    return found
