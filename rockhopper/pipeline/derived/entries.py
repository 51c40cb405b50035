"""Compute the expected consume queue units and index entries of a part of the log.

Prepared and rolled back messages are in no queue, and rolled back ones are not in the index.
Records of a deleted topic are in neither. RocketMQ's multi-dispatch stores a message in the light
queues (LMQ) that it names, in addition to its own queue.
"""

from collections import defaultdict
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockhopper.pipeline.decoder import Records
from rockhopper.pipeline.decoder.decode import topics
from rockhopper.pipeline.decoder.properties import Properties
from rockhopper.pipeline.decoder.strings import buffers_of, gather
from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.pipeline.derived.hashes import as_index_hash, combine_hashes, hash_spans
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
)
from rockhopper.protocol.store.light_queues import LIGHT_QUEUE_ID, is_light, light_places
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)

UNIT = np.dtype(
    [
        ("offset", "i8"),
        ("position", "i8"),
        ("size", "i4"),
        ("code", "i8"),
        ("ms", "i8"),
        ("n", "i4"),
    ]
)
"""A queue's unit: queue offset, commit log offset, size, tags code, store time, message count."""

KEY = np.dtype([("hash", "i4"), ("position", "i8"), ("ms", "i8"), ("kind", "u1")])
"""An index entry: key hash, commit log offset, store time, and one of the kinds."""

KIND_KEY, KIND_TAG, KIND_DELETED = 0, 1, 2

Array: TypeAlias = npt.NDArray[Any]

_BATCH_COUNT_MAX = 32_767
_LIGHT_QUEUES = f"{PROPERTY_INNER_MULTI_DISPATCH}\x01".encode()
_SPACE = ord(" ")
_TAG_KEY = "#T#"


class QueueKey(NamedTuple):
    """A queue and the kind of its files."""

    topic: str
    queue_id: int
    is_batch: bool

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic}"


class Entries:
    """Collects the expected units and entries of the records appended, in log order."""

    def __init__(self, rules: DispatchRules, *, with_keys: bool = True) -> None:
        """Without *with_keys*, no index entries are computed."""
        self._rules = rules
        self._with_keys = with_keys
        self._parts: dict[QueueKey, list[Array]] = defaultdict(list)
        self._key_parts: list[Array] = []
        self.record_count = 0
        self.undispatched_count = 0
        """Records without a place in a queue: prepared, rolled back, or of a deleted topic."""

    def append_records(self, records: Records) -> None:
        """Add the units and entries of *records*, which must be sound."""
        count = len(records)
        self.record_count += count
        raw = gather(records.data, records.properties_start, records.ends, pa.binary())
        window = _RecordWindow(records, raw, self._rules)
        self._add_units(window)
        if self._with_keys:
            self._add_keys(window)

    def queues(self) -> dict[QueueKey, Array]:
        """Return the units (``UNIT``) of each queue, in log order."""
        found = {
            key: parts[0] if len(parts) == 1 else np.concatenate(parts)
            for key, parts in self._parts.items()
        }
        for key in filter(lambda key: is_light(key.topic), found):
            # Messages sent to a light queue and messages that name it were collected separately.
            found[key] = np.sort(found[key], order="position", kind="stable")
        return found

    def keys(self) -> Array:
        """Return the index entries (``KEY``), in log order."""
        return np.concatenate(self._key_parts) if self._key_parts else np.empty(0, KEY)

    def _add_units(self, window: "_RecordWindow") -> None:
        dispatched = window.dispatched
        self.undispatched_count += len(dispatched) - int(dispatched.sum())
        units = window.units()
        queue_ids = window.records.heads["queueId"].astype(np.int64)
        codes = window.topic_codes.astype(np.int64) << 32 | queue_ids
        rows = np.flatnonzero(dispatched)
        self._add_light_units(window, units)
        if not len(rows):
            return
        order = rows[np.argsort(codes[rows], kind="stable")]
        ordered = codes[order]
        edges = np.flatnonzero(np.diff(ordered)) + 1
        for group in np.split(order, edges):
            first = int(group[0])
            topic = window.topics[window.topic_codes[first]]
            if not is_nameable(topic):
                self.undispatched_count += len(group)
                continue
            queue_id = int(queue_ids[first])
            part = units[group]
            is_batch = topic in self._rules.batch_topics or (
                topic not in (self._rules.known_topics or ())
                and bool((window.sys_flags[group] & SYS_FLAG_INNER_BATCH).any())
            )
            self._parts[QueueKey(topic, queue_id, is_batch)].append(part)

    def _add_light_units(self, window: "_RecordWindow", units: Array) -> None:
        if _LIGHT_QUEUES not in window.properties_bytes:
            return
        for row in np.flatnonzero(~window.prepared).tolist():
            text = window.raw[row].as_py()
            if _LIGHT_QUEUES not in text:
                continue
            topic = window.topics[window.topic_codes[row]]
            position = int(units["position"][row])
            for name, offset in light_places(topic, decode_properties(text)):
                if position >= self._rules.deleted_topics.get(name, 0):
                    unit = units[row : row + 1].copy()
                    unit["offset"] = offset
                    unit["n"] = 1
                    self._parts[QueueKey(name, LIGHT_QUEUE_ID, False)].append(unit)

    def _add_keys(self, window: "_RecordWindow") -> None:
        wanted = window.transaction != SYS_FLAG_TRANSACTION_ROLLBACK
        found = [window.whole_keys(PROPERTY_UNIQUE_KEY, KIND_KEY), window.pieces_of_keys()]
        if self._rules.has_tag_keys:
            found.append(window.tag_keys())
        rows = np.concatenate([part[0] for part in found])
        hashes = np.concatenate([part[1] for part in found])
        kinds = np.concatenate([np.full(len(part[0]), part[2], np.uint8) for part in found])
        # Stable: for each message the unique key comes first, then its keys, then its tags.
        order = np.argsort(rows, kind="stable")
        order = order[wanted[rows[order]]]
        rows = rows[order]
        keys = np.empty(len(rows), KEY)
        keys["hash"] = hashes[order]
        keys["position"] = window.records.heads["physOffset"][rows]
        keys["ms"] = window.records.heads["storeTimestamp"][rows]
        keys["kind"] = np.where(window.deleted[rows], KIND_DELETED, kinds[order])
        self._key_parts.append(keys)


def impossible_rows(units: Array) -> list[int]:
    """Return the rows of a queue's units whose queue offsets are too high.

    The log has no room for that many messages between two units. Such offsets occur because no CRC
    covers the heads of records.
    """
    ahead = units["offset"][1:] - (units["offset"][:-1] + units["n"][:-1])
    room = np.diff(units["position"]) // RECORD_SIZE_BYTES_MIN
    if not (ahead > room).any():
        return []
    found = []
    last = 0
    for row in range(1, len(units)):
        missing = int(units["offset"][row] - units["offset"][last] - units["n"][last])
        between = int(units["position"][row] - units["position"][last]) // RECORD_SIZE_BYTES_MIN
        if missing > between:
            found.append(row)
        else:
            last = row
    return found


def is_nameable(topic: str) -> bool:
    """Return whether *topic* is a valid directory name."""
    return topic not in ("", ".", "..") and not any(char in topic for char in "/\\\0")


class _RecordWindow:
    """A group of records that is processed together, with shared intermediate results."""

    def __init__(self, records: Records, raw: Any, rules: DispatchRules) -> None:
        self.records = records
        self.raw = raw
        self._rules = rules
        self._properties = Properties(records.data, records.properties_start, records.ends)
        self.properties_bytes = buffers_of(raw)[1].tobytes()
        coded = topics(records).dictionary_encode()
        self.topics: list[str] = coded.dictionary.to_pylist()
        self.topic_codes: Array = coded.indices.to_numpy()
        self.sys_flags: Array = records.heads["sysFlag"].astype(np.int32)
        self.transaction = self.sys_flags & SYS_FLAG_TRANSACTION_MASK
        self.deleted = self._deleted()
        self.prepared = (self.transaction & SYS_FLAG_TRANSACTION_PREPARED) != 0
        self.dispatched = ~(self.deleted | self.prepared)

    def _deleted(self) -> npt.NDArray[np.bool_]:
        deleted = np.zeros(len(self.records), np.bool_)
        for code, topic in enumerate(self.topics):
            end = self._rules.deleted_topics.get(topic)
            if end is not None:
                in_front = self.records.heads["physOffset"] < end
                deleted |= (self.topic_codes == code) & in_front
        return deleted

    def units(self) -> Array:
        """Return the unit of every record."""
        heads = self.records.heads
        units = np.empty(len(self.records), UNIT)
        units["offset"] = heads["queueOffset"]
        units["position"] = heads["physOffset"]
        units["size"] = heads["size"]
        units["code"] = self._tags_codes()
        units["ms"] = heads["storeTimestamp"]
        units["n"] = 1
        for row in np.flatnonzero(self.sys_flags & SYS_FLAG_INNER_BATCH).tolist():
            found = decode_properties(self.raw[row].as_py())
            count, base = found.get(PROPERTY_INNER_NUM, ""), found.get(PROPERTY_INNER_BASE, "")
            if (
                count.isdecimal()
                and base.isdecimal()
                and 0 < int(count) <= _BATCH_COUNT_MAX
                and len(base) < 19
            ):
                units["offset"][row] = int(base)
                units["n"][row] = int(count)
        return units

    def _tags_codes(self) -> Array:
        tags = self._properties.values_of(PROPERTY_TAGS).dictionary_encode()
        hashes = [java_string_hash(text) for text in tags.dictionary.to_pylist()]
        table = np.array([*hashes, 0], dtype=np.int64)
        codes: Array = table[tags.indices.fill_null(len(hashes)).to_numpy()]
        if SCHEDULE_TOPIC in self.topics:
            code = self.topics.index(SCHEDULE_TOPIC)
            levels = self._properties.values_of(PROPERTY_DELAY_LEVEL)
            times = self.records.heads["storeTimestamp"]
            for row in np.flatnonzero(self.topic_codes == code).tolist():
                level = levels[row].as_py() or ""
                if level.isdecimal() and int(level) > 0:
                    codes[row] = int(times[row]) + self._rules.delay_ms(int(level))
        return codes

    def _seeds(self, suffix: str) -> npt.NDArray[np.uint32]:
        """Return the hash of each record's index key prefix, which depends on the topic."""
        hashes = [java_string_hash(topic + suffix) & 0xFFFFFFFF for topic in self.topics]
        table = np.array(hashes, dtype=np.uint32)
        seeds: npt.NDArray[np.uint32] = table[self.topic_codes]
        return seeds

    def whole_keys(self, name: str, kind: int, suffix: str = "#") -> tuple[Array, Array, int]:
        """Return rows, hashes and kind of the keys that are a whole property value."""
        values = self._properties.values_of(name)
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        if not len(rows):
            return rows, np.empty(0, np.int32), kind
        edges, data = buffers_of(values.drop_null())
        return rows, self._hashes(data, edges[:-1], edges[1:], rows, suffix), kind

    def tag_keys(self) -> tuple[Array, Array, int]:
        """Return rows, hashes and kind of the tags."""
        return self.whole_keys(PROPERTY_TAGS, KIND_TAG, _TAG_KEY)

    def pieces_of_keys(self) -> tuple[Array, Array, int]:
        """Return rows, hashes and kind of the keys in KEYS, which spaces separate."""
        values = self._properties.values_of(PROPERTY_KEYS)
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        if not len(rows):
            return rows, np.empty(0, np.int32), KIND_KEY
        edges, data = buffers_of(values.drop_null())
        blanks = np.flatnonzero(data == _SPACE)
        if len(blanks):
            starts = np.sort(np.concatenate((edges[:-1], blanks + 1)))
            ends = np.sort(np.concatenate((edges[1:], blanks)))
            keep = ends > starts
            starts, ends = starts[keep], ends[keep]
            rows = rows[np.searchsorted(edges, starts, side="right") - 1]
        else:
            starts, ends = edges[:-1], edges[1:]
        return rows, self._hashes(data, starts, ends, rows, "#"), KIND_KEY

    def _hashes(self, data: Array, starts: Array, ends: Array, rows: Array, suffix: str) -> Array:
        starts, ends = starts.astype(np.int64), ends.astype(np.int64)
        hashes = hash_spans(data, starts, ends)
        sizes = ends - starts
        if len(data) and data.max() >= 0x80:
            sizes = _unit_counts(data, starts, ends)
        return as_index_hash(combine_hashes(self._seeds(suffix)[rows], hashes, sizes))


def _unit_counts(data: Array, starts: Array, ends: Array) -> Array:
    """Count the UTF-16 units that each piece has in Java."""
    weights = (data & 0xC0 != 0x80).astype(np.int64) + (data >= 0xF0)
    sums = np.zeros(len(data) + 1, np.int64)
    np.cumsum(weights, out=sums[1:])
    counts: Array = sums[ends] - sums[starts]
    return counts
