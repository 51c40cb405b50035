"""Count messages: in each task, then all tasks together.

A tally is a few small tables. Their row counts depend on the number of topics, tags, hosts and so
on, not on the number of messages.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.jobs.reporting.inputs import Task
from rockhopper.protocol.names import is_system_topic

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
TIMES_MAX = 20_000
"""The maximum number of rows of topic and minute; beyond it, counts are by the hour."""
TAGS_MAX = 20_000
_ROWS_AT_ONCE = 200_000
_SUM = [("messages", "sum"), ("bytes", "sum")]

KEYS: dict[str, tuple[str, ...]] = {
    "times": ("topic", "timeMs"),
    "tags": ("topic", "tag"),
    "sizes": ("topic", "size"),
    "producers": ("topic", "host", "pid"),
    "queues": ("topic", "broker", "queueId"),
}
Tables = dict[str, pa.Table]


class Tally:
    """Adds up batches."""

    def __init__(self) -> None:
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._tables: dict[str, list[pa.Table]] = {name: [] for name in KEYS}

    def count_batch(self, batch: pa.RecordBatch) -> None:
        """Count the messages of a batch with inputs.COLUMNS."""
        if batch.num_rows:
            self._waiting.append(_thin(batch))
            self._rows += batch.num_rows
            if self._rows >= _ROWS_AT_ONCE:
                self._count()

    def tables(self) -> Tables:
        """Return the counts."""
        self._count()
        return {name: merge_tables(name, parts) for name, parts in self._tables.items()}

    def _count(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._rows = [], 0
        for name, keys in KEYS.items():
            aggregates: list[tuple[str, str]] = list(_SUM)
            if name == "queues":
                aggregates += [("firstOffset", "min"), ("lastOffset", "max"), ("lastMs", "max")]
            counted = _rename(rows.group_by(list(keys)).aggregate(aggregates))
            self._tables[name].append(counted)


def tally(task: Task) -> Tables:
    """Count the messages of one task."""
    counted = Tally()
    for batch in task.batches():
        counted.count_batch(batch)
    return counted.tables()


def combine_tallies(tallies: Iterable[Tables]) -> Tables:
    """Return the sum of all tallies; times are as coarse as the coarsest of them."""
    collected = list(tallies)
    return {
        name: merge_tables(name, [each[name] for each in collected if each[name].num_rows])
        for name in KEYS
    }


def merge_tables(name: str, parts: list[pa.Table]) -> pa.Table:
    """Merge several tables of the same name."""
    if not parts:
        return _nothing(name)
    whole = pa.concat_tables(parts)
    aggregates: list[tuple[str, str]] = list(_SUM)
    if name == "queues":
        aggregates += [("firstOffset", "min"), ("lastOffset", "max"), ("lastMs", "max")]
    whole = _rename(whole.group_by(list(KEYS[name])).aggregate(aggregates))
    if name == "times" and whole.num_rows > TIMES_MAX:
        hours = pc.multiply(pc.divide(whole["timeMs"], HOUR_MS), HOUR_MS)
        whole = whole.set_column(whole.schema.get_field_index("timeMs"), "timeMs", hours)
        whole = _rename(whole.group_by(list(KEYS[name])).aggregate(aggregates))
    if name == "tags" and whole.num_rows > TAGS_MAX:
        whole = whole.sort_by([("messages", "descending")]).slice(0, TAGS_MAX)
    return whole


def _thin(batch: pa.RecordBatch) -> pa.Table:
    """Return the counted columns of a batch: no bodies, no ids."""
    topic = batch.column("topic").dictionary_encode()
    kept = [not is_system_topic(name) for name in topic.dictionary.to_pylist()]
    if not all(kept):
        batch = batch.filter(pc.take(pa.array(kept), topic.indices))
    size = pc.fill_null(pc.binary_length(batch.column("body")), 0).cast(pa.int64())
    ms = pc.divide(batch.column("storeTimestamp").cast(pa.int64()), 1000)
    offset = batch.column("queueOffset")
    return pa.table(
        {
            "topic": batch.column("topic"),
            "timeMs": pc.multiply(pc.divide(ms, MINUTE_MS), MINUTE_MS),
            "tag": batch.column("tags"),
            "size": _round(size),
            "host": _host(batch.column("bornHost")),
            "pid": _process_id(batch.column("msgId")),
            "broker": batch.column("brokerName"),
            "queueId": batch.column("queueId"),
            "messages": pa.array(np.ones(batch.num_rows, np.int64)),
            "bytes": size,
            "firstOffset": offset,
            "lastOffset": offset,
            "lastMs": ms,
        }
    )


def _round(size: Any) -> Any:
    """Round sizes to three digits, so that a table of them stays small."""
    values = size.to_numpy(zero_copy_only=False)
    step = 10 ** np.maximum(np.log10(np.maximum(values, 1)).astype(np.int64) - 2, 0)
    return pa.array((values + step // 2) // step * step)


def _host(born_host: Any) -> Any:
    """Return addresses without ports: a client has one port for each connection."""
    found = born_host.dictionary_encode()
    hosts = [
        None if text is None else text.rpartition(":")[0].strip("[]")
        for text in found.dictionary.to_pylist()
    ]
    return pc.take(pa.array(hosts, pa.string()), found.indices)


def _process_id(message_id: Any) -> Any:
    """Return four hex digits of the producer's process id, for known kinds of unique ids.

    Ids of Java clients and of this client hold it after the address; those of RocketMQ 5 hold it
    after a prefix and a MAC address. Ids of an exactly-once sink look like Java's, but with a hash
    in its place and no time.
    """
    length = pc.utf8_length(message_id)
    digits = pc.case_when(
        pc.make_struct(pc.equal(length, 32), pc.equal(length, 34), pc.equal(length, 56)),
        pc.utf8_slice_codeunits(message_id, 8, 12),
        pc.utf8_slice_codeunits(message_id, 14, 18),
        pc.utf8_slice_codeunits(message_id, 32, 36),
    )
    # The offset id has zeros there; a message without a unique id has an offset id instead.
    is_unknown = pc.fill_null(pc.equal(digits, "0000"), True)
    time = pc.utf8_slice_codeunits(message_id, 20, 28)
    is_hashed = pc.and_(pc.equal(length, 32), pc.fill_null(pc.equal(time, "00000000"), False))
    return pc.if_else(pc.or_kleene(is_unknown, is_hashed), None, digits)


def _rename(counted: pa.Table) -> pa.Table:
    names = [name.removesuffix("_sum").removesuffix("_min") for name in counted.column_names]
    return counted.rename_columns([name.removesuffix("_max") for name in names])


def _nothing(name: str) -> pa.Table:
    types = {"timeMs": pa.int64(), "size": pa.int64(), "queueId": pa.int32()}
    fields = [(key, types.get(key, pa.string())) for key in KEYS[name]]
    fields += [("messages", pa.int64()), ("bytes", pa.int64())]
    if name == "queues":
        fields += [(column, pa.int64()) for column in ("firstOffset", "lastOffset", "lastMs")]
    return pa.schema(fields).empty_table()
