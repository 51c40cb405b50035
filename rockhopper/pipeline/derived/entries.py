"""The consume queue units and index entries that a part of the log expects, as arrays.

What a record expects is in protocol/store/expected.py. Records of a deleted topic are in neither
queues nor index.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.decoder import Records
from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.protocol.store.expected import Record, expect_keys, expect_tag_key, expect_units
from rockhopper.protocol.store.fast_walking import walk_plain
from rockhopper.protocol.store.light_queues import is_light
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN
from rockhopper.protocol.store.walking import PlainRun
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH

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

_PLAIN_UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
_TIMED_KEY = np.dtype([("hash", ">u4"), ("position", ">i8"), ("ms", ">i8")])
_HEAD_NAMES = ("physOffset", "size", "queueId", "queueOffset", "sysFlag", "storeTimestamp")

KIND_KEY, KIND_TAG, KIND_OPTIONAL = 0, 1, 2

Array: TypeAlias = npt.NDArray[Any]


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
        self._units: dict[QueueKey, list[Array]] = defaultdict(list)
        self._keys: list[Array] = []
        # Topics without configuration that have a batch: all of their queues are batch queues.
        self._batch_topics: set[str] = set()

    def append_records(self, records: Records, damaged_rows: Collection[int] = ()) -> None:
        """Add the units and entries of *records*, whose sizes must be right.

        The bodies in *damaged_rows* are damaged: no broker that recovers indexes these records.
        """
        window = _Window(records)
        row = 0
        while row < len(records):
            count, runs, keys = window.walk(row)
            # The keys of plain records come without those of their tags.
            needs_care = self._rules.has_tag_keys or any(map(self._needs_care, runs))
            if not needs_care:
                self._append_plain(runs, keys)
                row += count
            singles = count if needs_care else 0
            for at in range(row, min(row + singles + 1, len(records))):
                self._append(window.record(at), is_needed=at not in damaged_rows)
                row = at + 1

    def _append_plain(self, runs: list[PlainRun], keys: bytes) -> None:
        for topic, queue_id, first_offset, _, units, *_ in runs:
            plain = np.frombuffer(units, _PLAIN_UNIT)
            found = np.zeros(len(plain), UNIT)
            found["offset"] = np.arange(first_offset, first_offset + len(plain))
            for name in ("position", "size", "code"):
                found[name] = plain[name]
            found["n"] = 1
            self._units[QueueKey(topic, queue_id, False)].append(found)
        if self._with_keys and keys:
            timed = np.frombuffer(keys, _TIMED_KEY)
            entries = np.zeros(len(timed), KEY)
            for name in ("hash", "position", "ms"):
                entries[name] = timed[name]
            self._keys.append(entries)

    def _needs_care(self, run: PlainRun) -> bool:
        """Return whether the units of a run do not follow from its records alone."""
        topic, log_offset = run[0], run[5]
        is_batch = topic in self._rules.batch_topics or topic in self._batch_topics
        return is_batch or log_offset < self._rules.deleted_topics.get(topic, 0)

    def queues(self) -> dict[QueueKey, Array]:
        """Return the units (``UNIT``) of each queue, in log order; 0 for an unknown store time."""
        found = {key: np.concatenate(units) for key, units in self._units.items()}
        for key in filter(lambda key: is_light(key.topic), found):
            # Messages sent to a light queue and messages that name it were collected separately.
            found[key] = np.sort(found[key], order="position", kind="stable")
        return found

    def keys(self) -> Array:
        """Return the index entries (``KEY``), in log order."""
        return np.concatenate(self._keys) if self._keys else np.empty(0, KEY)

    def _append(self, record: Record, *, is_needed: bool) -> None:
        is_batch = self._is_batch(record)
        units = expect_units(record, is_batch=is_batch, delay_ms=self._rules.delay_ms)
        for number, unit in enumerate(units):
            topic, queue_id, first_offset, count = unit.place
            if self._is_deleted(topic, record) or not is_nameable(topic):
                continue
            key = QueueKey(topic, queue_id, is_batch and not number)
            fields = unit.log_offset, unit.size_bytes, unit.tags_code, unit.store_time_ms
            self._units[key].append(np.array([(first_offset, *fields, count)], UNIT))
        if self._with_keys:
            self._add_keys(record, is_needed=is_needed)

    def _is_batch(self, record: Record) -> bool:
        topic = record.topic.decode()
        if topic in self._rules.batch_topics or topic in self._batch_topics:
            return True
        is_known = topic in (self._rules.known_topics or ())
        if is_known or not record.sys_flag & SYS_FLAG_INNER_BATCH:
            return False
        self._batch_topics.add(topic)
        return True

    def _is_deleted(self, topic: str, record: Record) -> bool:
        return record.offset < self._rules.deleted_topics.get(topic, 0)

    def _add_keys(self, record: Record, *, is_needed: bool) -> None:
        kinds = [(key, KIND_KEY) for key in expect_keys(record)]
        if self._rules.has_tag_keys and (tag_key := expect_tag_key(record)) is not None:
            kinds.append((tag_key, KIND_TAG))
        if not kinds:
            return
        is_needed &= not self._is_deleted(record.topic.decode(), record)
        place = record.offset, record.store_time_ms
        rows = [(key, *place, kind if is_needed else KIND_OPTIONAL) for key, kind in kinds]
        self._keys.append(np.array(rows, KEY))


class _Window:
    """Records back to back in memory, in stretches without anything in between."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._data = records.data.tobytes()
        self._starts = records.offsets
        # The row behind each stretch.
        breaks = np.flatnonzero(records.offsets[1:] != records.ends[:-1]) + 1
        self._behind = [*breaks.tolist(), len(records)]

    def walk(self, row: int) -> tuple[int, list[PlainRun], bytes]:
        """Walk over the plain records from *row* on; return their number, runs and packed keys."""
        behind = self._behind[bisect_right(self._behind, row)]
        start, end = int(self._starts[row]), int(self._records.ends[behind - 1])
        base = int(self._records.heads["physOffset"][row]) - start
        _, count, _, runs, keys = walk_plain(self._data, start, end, base, True)
        return count, runs, keys

    def record(self, row: int) -> Record:
        """Return the record in *row*, without its body."""
        records = self._records
        head = (int(records.heads[name][row]) for name in _HEAD_NAMES)
        topic = self._data[int(records.topic_start[row]) : int(records.topic_end[row])]
        properties = self._data[int(records.properties_start[row]) : int(records.ends[row])]
        return Record._make((*head, topic, properties))


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
