"""The consume queue units and index entries that a part of the log expects, as arrays.

What a record expects is in protocol/store/expected.py. Records of a deleted topic are in neither
queues nor index.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.decoder import Records
from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.protocol.store.expected import Record, expect_keys, expect_tag_key, expect_units
from rockhopper.protocol.store.light_queues import is_light
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN
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
        self._units: dict[QueueKey, list[tuple[int, ...]]] = defaultdict(list)
        self._keys: list[tuple[int, ...]] = []
        # Topics without configuration that have a batch: all of their queues are batch queues.
        self._batch_topics: set[str] = set()

    def append_records(self, records: Records, damaged_rows: Collection[int] = ()) -> None:
        """Add the units and entries of *records*, whose sizes must be right.

        The bodies in *damaged_rows* are damaged: no broker that recovers indexes these records.
        """
        for row, record in enumerate(_iterate_records(records)):
            self._add_units(record)
            if self._with_keys:
                self._add_keys(record, is_needed=row not in damaged_rows)

    def queues(self) -> dict[QueueKey, Array]:
        """Return the units (``UNIT``) of each queue, in log order."""
        found = {key: np.array(units, UNIT) for key, units in self._units.items()}
        for key in filter(lambda key: is_light(key.topic), found):
            # Messages sent to a light queue and messages that name it were collected separately.
            found[key] = np.sort(found[key], order="position", kind="stable")
        return found

    def keys(self) -> Array:
        """Return the index entries (``KEY``), in log order."""
        return np.array(self._keys, KEY)

    def _add_units(self, record: Record) -> None:
        is_batch = self._is_batch(record)
        units = expect_units(record, is_batch=is_batch, delay_ms=self._rules.delay_ms)
        for number, unit in enumerate(units):
            topic, queue_id, first_offset, count = unit.place
            if self._is_deleted(topic, record) or not is_nameable(topic):
                continue
            key = QueueKey(topic, queue_id, is_batch and not number)
            fields = unit.log_offset, unit.size_bytes, unit.tags_code, unit.store_time_ms
            self._units[key].append((first_offset, *fields, count))

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
        is_needed &= not (kinds and self._is_deleted(record.topic.decode(), record))
        for key, kind in kinds:
            kind = kind if is_needed else KIND_OPTIONAL
            self._keys.append((key, record.offset, record.store_time_ms, kind))


def _iterate_records(records: Records) -> Iterator[Record]:
    """Yield the records, without their bodies."""
    heads = records.heads
    names = ("physOffset", "size", "queueId", "queueOffset", "sysFlag", "storeTimestamp")
    fields = zip(*(heads[name].tolist() for name in names), strict=True)
    spans = (records.topic_start, records.topic_end, records.properties_start, records.ends)
    data = records.data.tobytes()
    for head, (topic_start, topic_end, start, end) in zip(
        fields, zip(*(span.tolist() for span in spans), strict=True), strict=True
    ):
        yield Record._make((*head, data[topic_start:topic_end], data[start:end]))


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
