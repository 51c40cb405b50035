"""Find rows that cannot become messages; masks mark the rows.

For a batch of good rows, only ``unsendable`` runs, which checks just the largest and smallest
values.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.client.sending.outgoing import BODY_SIZE_BYTES_MAX
from rockhopper.pipeline.sink.encoding import (
    PROPERTIES_SIZE_BYTES_MAX,
    SEPARATORS,
    Messages,
    map_entries,
    milliseconds,
    valueless,
)
from rockhopper.pipeline.sink.rules import SinkRules, sendable_error
from rockhopper.protocol.compression import compress_zlib
from rockhopper.protocol.message import message_keys
from rockhopper.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from rockhopper.protocol.store.light_queues import is_light

_TEXTS = ("topic", "brokerName", "shardingKey", "tags", "keys")
_SEPARATED = "it holds the character 1 or 2, which separate properties"
_NO_TEXT = "it is no UTF-8"


@dataclass(frozen=True)
class Fault:
    """One problem of some rows."""

    column: str
    rows: Any
    """A mask, as a numpy array."""
    sentence: Callable[[int], str]
    """Returns the error text for a row number."""


def _text_faults(name: str, column: pa.Array) -> list[Fault]:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return list(_key_faults(column))
    found = [_fault(name, _no_text(column), _NO_TEXT)]
    if name in ("shardingKey", "tags", "keys"):
        found.append(_fault(name, _separated(column), _SEPARATED))
    return found


def unreadable(batch: pa.RecordBatch, topic: str) -> list[Fault]:
    """Return why ``encode_messages`` refuses *batch*: the invalid or missing values of its rows."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    found = [_fault("body", _mask(columns["body"].is_null()), "it is null")]
    if not topic:
        nothing = "it is null, and the option topic is not set"
        found.append(_fault("topic", _mask(columns["topic"].is_null()), nothing))
    for name in _TEXTS:
        if name in columns and not (name == "topic" and topic):
            found += _text_faults(name, columns[name])
    if "properties" in columns:
        keys, values, counts = map_entries(columns["properties"])
        wrong = _separated(keys) | _separated(values)
        rows = np.repeat(np.arange(batch.num_rows), counts)
        mask = np.bincount(rows[wrong], minlength=batch.num_rows) > 0
        found.append(_fault("properties", mask, "a name or a value " + _SEPARATED[3:]))
        mask = np.bincount(rows[_mask(valueless(keys, values))], minlength=batch.num_rows) > 0
        found.append(_fault("properties", mask, "a name or a value is empty or null"))
    return [each for each in found if each.rows.any()]


def unsendable(batch: pa.RecordBatch, messages: Messages, rules: SinkRules) -> list[Fault]:
    """Return the problems of rows that were encoded as *messages* but cannot be sent."""
    found = [*_sizes(messages, rules), *_texts(messages), *_topics(messages, rules)]
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    found += _numbers(columns, "flag", -(2**31), 2**31 - 1, "flags have 32 bits")
    if rules.is_exactly_once:
        found += _numbers(columns, "bornTimestamp", 0, 2**63 - 1, "times count from 1970 on")
        found += _numbers(columns, "delayTimeLevel", 0, 2**63 - 1, "levels count from 1 on")
    return [each for each in found if each.rows.any()]


def _fault(column: str, rows: Any, what: str) -> Fault:
    return Fault(column, rows, lambda _: f"the column {column!r} cannot be sent: {what}")


def _mask(values: Any) -> Any:
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False).astype(bool)


def _separated(texts: Any) -> Any:
    return _mask(pc.match_substring_regex(texts.cast(pa.string()), SEPARATORS))


def _no_text(column: Any) -> Any:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not _is_text(value) for value in column.cast(pa.binary()).to_pylist()])
    return np.zeros(len(column), bool)


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _key_faults(column: Any) -> Iterator[Fault]:
    problems: dict[int, str] = {}
    for row, keys in enumerate(column.to_pylist()):
        try:
            joined = " ".join(message_keys(key for key in keys or () if key is not None))
        except ValueError as error:
            problems[row] = str(error)
            continue
        if "\x01" in joined or "\x02" in joined:
            problems[row] = _SEPARATED
    mask = np.isin(np.arange(len(column)), list(problems))
    yield Fault("keys", mask, lambda row: f"the column 'keys' cannot be sent: {problems[row]}")


def _sizes(messages: Messages, rules: SinkRules) -> Iterator[Fault]:
    if messages.sizes.max(initial=0) <= PROPERTIES_SIZE_BYTES_MAX:
        return
    bodies = pc.binary_length(messages.body_bytes).to_numpy(zero_copy_only=False)
    properties = messages.sizes - bodies
    most = PROPERTIES_SIZE_BYTES_MAX
    yield Fault(
        "properties",
        properties > most,
        lambda row: (
            f"the properties, tags and keys have {properties[row]} bytes, but at most {most} "
            "are allowed"
        ),
    )
    large = bodies > BODY_SIZE_BYTES_MAX
    if rules.compress_over is not None:
        for row in np.flatnonzero(large).tolist():
            body = messages.body_bytes[row].as_py()
            large[row] = len(compress_zlib(body)) > BODY_SIZE_BYTES_MAX
    yield Fault(
        "body",
        large,
        lambda row: (
            f"the body has {bodies[row]} bytes, but a request holds at most {BODY_SIZE_BYTES_MAX}"
        ),
    )


def _texts(messages: Messages) -> Iterator[Fault]:
    wrong = _no_text(messages.property_texts)
    if wrong.any():
        yield Fault(
            "properties", wrong, lambda _: "the properties cannot be sent: they are no UTF-8"
        )


def _topics(messages: Messages, rules: SinkRules) -> Iterator[Fault]:
    if rules.topic:
        return
    problems: dict[str, str] = {}
    for topic in set(messages.topics):
        problem = None if is_light(topic) else sendable_error(topic)
        is_derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        if problem is None and is_derived and rules.is_exactly_once:
            problem = f"only brokers may write to topic {topic!r}"
        if problem is not None:
            problems[topic] = problem
    if problems:
        mask = np.array([topic in problems for topic in messages.topics])
        yield Fault("topic", mask, lambda row: problems[messages.topics[row]])


def _numbers(
    columns: dict[str, Any], name: str, least: int, most: int, rule: str
) -> Iterator[Fault]:
    if name not in columns:
        return
    values = milliseconds(columns[name])
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is None or least <= bounds["min"] <= bounds["max"] <= most:
        return
    wrong = _mask(pc.or_(pc.less(values, least), pc.greater(values, most)))
    yield Fault(
        name, wrong, lambda row: f"the column {name!r} is {values[row].as_py()}, and {rule}"
    )
