"""Encode Arrow batches as messages, column by column, without row tuples."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.message import message_keys
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    SYSTEM_PROPERTIES,
)
from rockhopper.protocol.store.message_codec import BATCHED_SIZE_BYTES

# A column of its own overrides these properties; without it, the properties apply.
_OF_COLUMNS = {
    PROPERTY_KEYS: "keys",
    PROPERTY_TAGS: "tags",
    PROPERTY_SHARDING_KEY: "shardingKey",
}
# The delivery history of the source message: it would give the new message a wrong meaning.
HISTORY = (SYSTEM_PROPERTIES | {"RH_FINAL", "RH_SINK", "__STARTDELIVERTIME"}) - set(_OF_COLUMNS)
PROPERTIES_SIZE_BYTES_MAX = 32_767
SEPARATORS = "[\x01\x02]"


@dataclass
class Messages:
    """Messages, with one list for each of their parts."""

    topics: list[str]
    queue_ids: list[int | None] | None
    broker_names: list[str | None] | None
    sharding_keys: list[str | None] | None
    flags: list[int]
    born_ms: list[int]
    has_born: bool
    """Whether the frame has a column with the born times."""
    property_texts: pa.StringArray
    body_bytes: pa.BinaryArray
    sizes: Any
    """The sizes of body and properties, as a numpy array."""
    is_delayed: Any
    """A mask of the messages with delayed delivery; None if there are none."""

    def __len__(self) -> int:
        return len(self.body_bytes)

    @property
    def has_targets(self) -> bool:
        """Whether the frame has a column that chooses queues or brokers."""
        columns = (self.sharding_keys, self.queue_ids, self.broker_names)
        return any(column is not None for column in columns)

    def target(self, row: int) -> tuple[str | None, int | None, str | None]:
        """Return the sharding key, queue id and broker that a row names; None for each it omits."""
        keys, numbers, brokers = self.sharding_keys, self.queue_ids, self.broker_names
        return (
            None if keys is None else keys[row],
            None if numbers is None else numbers[row],
            None if brokers is None else brokers[row],
        )

    @cached_property
    def properties(self) -> list[str]:
        """The properties of each message."""
        found: list[str] = self.property_texts.to_pylist()
        return found

    @cached_property
    def bodies(self) -> list[bytes]:
        """The body of each message."""
        found: list[bytes] = self.body_bytes.to_pylist()
        return found

    def some(self, rows: Any) -> "Messages":
        """Return the messages at *rows*, an array of row numbers."""

        def pick(values: list[Any] | None) -> list[Any] | None:
            return None if values is None else [values[row] for row in rows]

        numbers = pa.array(rows)
        return Messages(
            [self.topics[row] for row in rows],
            pick(self.queue_ids),
            pick(self.broker_names),
            pick(self.sharding_keys),
            [self.flags[row] for row in rows],
            [self.born_ms[row] for row in rows],
            self.has_born,
            self.property_texts.take(numbers),
            self.body_bytes.take(numbers),
            self.sizes[rows],
            None if self.is_delayed is None else self.is_delayed[rows],
        )

    def body_sum(self, rows: Any) -> int:
        """Return the sum of the CRCs of some bodies; *rows* as for ``batch``."""
        bodies = self.body_bytes
        if isinstance(rows, slice):
            bodies = bodies.slice(rows.start, rows.stop - rows.start)
        else:
            bodies = bodies.take(pa.array(rows))
        return sum(map(crc32, bodies.to_pylist()))

    def batch(self, rows: Any) -> bytes:
        """Return a batch body (protocol.store.message_codec.batch) with some of the messages.

        *rows* is an array of row numbers, or a slice.
        """
        bodies, texts = self.body_bytes, self.property_texts
        if isinstance(rows, slice):
            count = rows.stop - rows.start
            bodies, texts = bodies.slice(rows.start, count), texts.slice(rows.start, count)
        else:
            bodies, texts = bodies.take(pa.array(rows)), texts.take(pa.array(rows))
            count = len(rows)
        texts = texts.cast(pa.binary())
        heads = np.zeros(count, _BATCH_HEAD)
        heads["body_size"] = pc.binary_length(bodies).to_numpy(zero_copy_only=False)
        sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        if sizes.max(initial=0) > PROPERTIES_SIZE_BYTES_MAX:
            raise PipelineError(
                f"a row has properties of {sizes.max()} bytes, but at most "
                f"{PROPERTIES_SIZE_BYTES_MAX} are allowed: shorten keys, tags or properties, "
                "or put such values into the body"
            )
        heads["size"] = heads["body_size"] + sizes + BATCHED_SIZE_BYTES
        flags = np.asarray(self.flags, np.int64)[rows]
        if count and not -(2**31) <= flags.min() <= flags.max() < 2**31:
            raise PipelineError(
                f"a row has a flag from {flags.min()} to {flags.max()}, and flags have 32 bits: "
                "correct the column 'flag'"
            )
        heads["flag"] = flags
        parts = (_fixed(heads), bodies, _fixed(sizes.astype(">i2")), texts)
        joined = pc.binary_join_element_wise(*parts, b"")
        _, _, data = joined.buffers()
        return bytes(memoryview(data)[: int(heads["size"].sum(dtype=np.int64))])


_BATCH_HEAD = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")]
)


def _fixed(values: Any) -> pa.BinaryArray:
    """Convert a numpy array to bytes, one value for each item."""
    kind = pa.binary(values.dtype.itemsize)
    whole = pa.FixedSizeBinaryArray.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
    return whole.cast(pa.binary())


def encode_messages(
    batch: pa.RecordBatch,
    topic: str,
    unique_keys: Callable[[int], Sequence[str]],
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Messages:
    """Encode the rows of *batch* as messages; ``unique_keys(n)`` returns n ids.

    Raises:
        PipelineError: a row has no body or no topic, or its properties cannot be stored.
    """
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    count = batch.num_rows
    bodies = columns["body"].cast(pa.binary())
    if bodies.null_count:
        raise PipelineError(
            f"{bodies.null_count} rows for {_topic_of(columns, topic, bodies)!r} have no body: "
            "leave them out with .where('body is not null'), or give them one with coalesce"
        )
    if topic:
        topics = [topic] * count
    else:
        column = columns["topic"]
        if column.null_count:
            raise PipelineError(
                f"{column.null_count} rows have no topic: leave them out with "
                ".where('topic is not null'), or set the option topic for all rows"
            )
        topics = column.to_pylist()
    properties = _properties(columns, count, unique_keys(count))
    born = columns.get("bornTimestamp")
    now = now_ms()
    delayed = None
    for name in ("delayTimeLevel", "deliverTimestamp"):
        if name in columns and columns[name].null_count < count:
            delayed = columns[name].is_valid().to_numpy(zero_copy_only=False)
    sizes = pc.add(pc.binary_length(bodies), pc.binary_length(properties))
    return Messages(
        topics,
        _listed(columns, "queueId"),
        _listed(columns, "brokerName"),
        _listed(columns, "shardingKey"),
        _flags(columns, count),
        [now] * count if born is None else pc.fill_null(milliseconds(born), now).to_pylist(),
        born is not None,
        properties,
        bodies,
        sizes.to_numpy(zero_copy_only=False).astype(np.int64),
        delayed,
    )


def _listed(columns: dict[str, Any], name: str) -> list[Any] | None:
    column = columns.get(name)
    if column is None or column.null_count == len(column):
        return None
    values: list[Any] = column.to_pylist()
    return values


def _flags(columns: dict[str, Any], count: int) -> list[int]:
    column = columns.get("flag")
    if column is None:
        return [0] * count
    flags: list[int] = pc.fill_null(column, 0).to_pylist()
    return flags


def milliseconds(column: Any) -> Any:
    """Return times as ms since the epoch; numbers are in ms already."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return column.cast(pa.int64())


def _properties(columns: dict[str, Any], count: int, unique_keys: Sequence[str]) -> Any:
    """Return the property text of each row."""
    parts: list[Any] = []
    for name in ("properties", "rawProperties"):
        if name in columns:
            parts.append(_carried(columns, name, count))
    for name, source in (
        (PROPERTY_KEYS, "keys"),
        (PROPERTY_SHARDING_KEY, "shardingKey"),
        (PROPERTY_TAGS, "tags"),
    ):
        if source in columns:
            texts = _joined(columns[source]) if source == "keys" else columns[source]
            parts.append(_pairs(name, _checked(texts.cast(pa.string()), source)))
    if "delayTimeLevel" in columns:
        parts.append(_pairs(PROPERTY_DELAY_LEVEL, columns["delayTimeLevel"].cast(pa.string())))
    if "deliverTimestamp" in columns:
        times = milliseconds(columns["deliverTimestamp"]).cast(pa.string())
        parts.append(_pairs(PROPERTY_TIMER_DELIVER_MS, times))
    parts.append(_pairs(PROPERTY_UNIQUE_KEY, pa.array(unique_keys, pa.string())))
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="")


def _joined(keys: Any) -> Any:
    """Join the keys of each row with spaces; a row may hold a list of keys."""
    if not (pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type)):
        return keys
    rows = keys.to_pylist()
    try:
        texts = [
            None if row is None else " ".join(message_keys(key for key in row if key is not None))
            for row in rows
        ]
    except ValueError as error:
        raise PipelineError(f"the column 'keys': {error}") from None
    return pa.array(texts, pa.string())


def _pairs(name: str, values: Any) -> Any:
    """Return the property *name* of each row; null if the value is null or empty."""
    texts = pc.binary_join_element_wise(f"{name}\x01", values, "\x02", "")
    return pc.if_else(pc.equal(values, ""), None, texts)


def _checked(values: Any, column: str) -> Any:
    if pc.any(pc.match_substring_regex(values, SEPARATORS)).as_py():
        raise PipelineError(
            f"the column {column!r} holds the character 1 or 2, which separate properties: remove "
            "them with translate, or put such values into the body"
        )
    return values


def _carried(columns: dict[str, Any], name: str, count: int) -> Any:
    """Return the properties from a map or from stored properties, as one text for each row."""
    dropped = sorted(HISTORY | {key for key, own in _OF_COLUMNS.items() if own in columns})
    column = columns[name]
    if name == "properties":
        keys, values, counts = map_entries(column)
        if pc.any(valueless(keys, values)).as_py():
            raise PipelineError(
                "the column 'properties' holds a name or a value that is empty or null, which no "
                "message carries: leave them out with map_filter(properties, (k, v) -> k != '' "
                "and v != '')"
            )
        keep = pc.invert(pc.is_in(keys, value_set=pa.array(dropped, pa.string())))
        texts = pc.binary_join_element_wise(
            _checked(keys, name), _checked(values, name), "\x01", null_handling="skip"
        )
    else:
        lists = pc.split_pattern(_as_text(pc.fill_null(column, b"")), "\x02")
        texts = lists.flatten()
        counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        names = "|".join(dropped).replace("#", r"\#").replace(".", r"\.")
        keep = pc.and_(
            pc.match_substring_regex(texts, "(?s)^[^\x01]+\x01."),
            pc.invert(pc.match_substring_regex(texts, f"^(?:{names})\x01")),
        )
    rows = np.repeat(np.arange(count), counts)
    kept = keep.to_numpy(zero_copy_only=False).astype(bool)
    texts = pc.binary_join_element_wise(texts.filter(keep), "", "\x02")
    ends = np.cumsum(np.bincount(rows[kept], minlength=count))
    offsets = np.concatenate((np.zeros(1, np.int64), ends)).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), "")


def valueless(keys: Any, values: Any) -> Any:
    """Return a mask of the map entries without a name or a value."""
    return pc.or_(pc.equal(keys, ""), pc.fill_null(pc.equal(values, ""), True))


def map_entries(column: Any) -> tuple[Any, Any, Any]:
    """Return the names and values of all maps of a column, and the entry count of each row."""
    ends = column.offsets.to_numpy()
    counts = np.diff(ends)
    keys, values = column.keys, column.items
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        chosen = pa.array(np.repeat(valid, counts))
        keys, values = (
            each.slice(ends[0], ends[-1] - ends[0]).filter(chosen) for each in (keys, values)
        )
        counts = np.where(valid, counts, 0)
    else:
        keys, values = (each.slice(ends[0], ends[-1] - ends[0]) for each in (keys, values))
    return keys.cast(pa.string()), values.cast(pa.string()), counts


def _as_text(values: Any) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def _topic_of(columns: dict[str, Any], topic: str, bodies: Any) -> str:
    if topic:
        return topic
    found = columns["topic"].filter(bodies.is_null())
    return str(found[0].as_py())


def pieces(sizes: Any, bytes_max: int, overhead_bytes: int) -> list[tuple[int, int]]:
    """Split into runs [start, end) of at most *bytes_max* bytes.

    A single message larger than that is a run of its own.
    """
    ends = np.cumsum(sizes + overhead_bytes)
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = max(int(np.searchsorted(ends, before + bytes_max, side="right")), start + 1)
        found.append((start, end))
        start = end
    return found
