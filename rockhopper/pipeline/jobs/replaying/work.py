"""The work of a replay task: read rows, turn them into messages, stage or send them."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.replaying.parquet_files import read_rows
from rockhopper.pipeline.jobs.replaying.plan import ReplayRequest, Slice
from rockhopper.pipeline.sink.encoding import milliseconds, valueless
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.pipeline.sink.sending import RowSender
from rockhopper.pipeline.sink.staging import PartWriter, TaskPart

ORIGIN_PREFIX = "RH_ORIGIN_"
ORIGINS = {
    "topic": "RH_ORIGIN_TOPIC",
    "brokerName": "RH_ORIGIN_BROKER",
    "queueId": "RH_ORIGIN_QUEUE_ID",
    "queueOffset": "RH_ORIGIN_QUEUE_OFFSET",
    "msgId": "RH_ORIGIN_MSG_ID",
    "bornTimestamp": "RH_ORIGIN_BORN_TIME",
    "storeTimestamp": "RH_ORIGIN_STORE_TIME",
}
"""Column -> the property that stores its value; times are in ms since 1970."""

_PASSED = ("body", "flag", "tags", "keys", "shardingKey", "delayTimeLevel", "deliverTimestamp")
_READ = (*_PASSED, "properties", *ORIGINS)
_PROPERTIES = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True)
class ReplayWork:
    """The work of the tasks of a batch; Spark sends it to the workers."""

    batch_id: int
    selection: str
    """The location of the selected rows of files that are replayed partly."""
    request: ReplayRequest
    queue_counts: Mapping[str, int]
    rules: SinkRules
    owner: str

    def __call__(self, task: tuple[int, Sequence[Slice]]) -> TaskPart | int:
        """Stage the messages of a task, or send and count them. Raises PipelineError."""
        partition, slices = task
        rules = self.rules
        exactly = rules.is_exactly_once
        messages = (
            as_messages(batch, each.file.topic, self.request, self.queue_counts, exactly)
            for each in slices
            for batch in read_rows(each.file.path, _READ, find_selected_rows(self.selection, each))
        )
        if not exactly:
            return RowSender(rules).write(messages)
        attempt, owner = secrets.token_hex(8), self.owner
        part = PartWriter(rules, rules.sink_id, self.batch_id, partition, attempt, owner=owner)
        return part.write(messages)


def find_selected_rows(selection: str, part: Slice) -> Any:
    """Return the row numbers of a slice, ascending."""
    name = part.file.selected_as
    if not name:
        return np.arange(part.first, part.end)
    table = pq.read_table(selection, columns=["row"], filters=[("path", "=", name)])
    rows = np.sort(table["row"].to_numpy())
    if len(rows) != part.file.rows:
        raise PipelineError(
            f"{selection} lists {len(rows)} rows of {part.file.path} and not {part.file.rows}: "
            "it was changed, so restore it, or start over with another --id"
        )
    return rows[part.first : part.end]


def as_messages(
    batch: pa.RecordBatch,
    topic: str | None,
    request: ReplayRequest,
    queue_counts: Mapping[str, int],
    keeps_birth: bool,
) -> pa.RecordBatch:
    """Return rows with the columns of the sink; *topic*, if not None, is that of all rows."""
    given = {name: batch.column(name) for name in batch.schema.names}
    if topic is not None:
        given["topic"] = pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows)
    columns: dict[str, Any] = {name: given[name] for name in _PASSED if name in given}
    columns["properties"] = _add_origins(given, batch.num_rows)
    if "properties" in given:
        # The properties contain them exactly.
        columns.pop("tags", None)
        columns.pop("keys", None)
    columns["topic"] = targets = _targets(given, request, batch.num_rows)
    # Sent at least once, a message with its own born time would need a request of its own.
    if keeps_birth and "bornTimestamp" in given:
        # A sink accepts no times before 1970.
        born_ms = milliseconds(given["bornTimestamp"])
        columns["bornTimestamp"] = pc.max_element_wise(born_ms, 0, skip_nulls=False)
    if "queueId" in given and "shardingKey" not in columns:
        columns["queueId"] = _queues(given["queueId"], targets, queue_counts)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _targets(given: Mapping[str, Any], request: ReplayRequest, count: int) -> Any:
    if "topic" not in given:
        return pa.repeat(pa.scalar(request.to["*"], pa.string()), count)
    found = given["topic"].dictionary_encode()
    names = [
        None if name is None else request.target(name) for name in found.dictionary.to_pylist()
    ]
    return pa.array(names, pa.string()).take(found.indices)


def _queues(numbers: Any, targets: Any, queue_counts: Mapping[str, int]) -> Any:
    """Keep the queue number if that queue exists, so the order within a queue stays."""
    found = targets.dictionary_encode()
    counts = [queue_counts.get(name, 0) for name in found.dictionary.to_pylist()]
    modulus = np.array([*counts, 0], np.int64)[found.indices.fill_null(-1).to_numpy()]
    old = numbers.fill_null(0).to_numpy().astype(np.int64)
    new = np.where(modulus > 0, old % np.maximum(modulus, 1), -1).astype(np.int32)
    return pa.array(new, mask=(new < 0) | numbers.is_null().to_numpy(zero_copy_only=False))


def _add_origins(given: Mapping[str, Any], count: int) -> Any:
    """Return the properties of each row, followed by its origin."""
    values = [(name, _text(given[column])) for column, name in ORIGINS.items() if column in given]
    keys, items, ends = _keep(given.get("properties"), count)
    extra = len(values)
    rows = np.repeat(np.arange(count), np.diff(ends))
    at = np.arange(len(keys)) + extra * rows
    new_ends = ends + extra * np.arange(count + 1)
    order = np.empty(int(new_ends[-1]), np.int64)
    order[at] = np.arange(len(keys))
    for number in range(extra):
        where = new_ends[1:] - extra + number
        order[where] = len(keys) + number * count + np.arange(count)
    names = [pa.repeat(pa.scalar(name, pa.string()), count) for name, _ in values]
    all_keys = pa.concat_arrays([keys, *names]).take(pa.array(order))
    all_items = pa.concat_arrays([items, *(value for _, value in values)]).take(pa.array(order))
    # The sink refuses empty values, for example a store's broker without a name.
    keep = pc.invert(valueless(all_keys, all_items))
    row_of = np.repeat(np.arange(count), np.diff(new_ends))
    kept = np.bincount(row_of[keep.to_numpy(zero_copy_only=False)], minlength=count)
    offsets = pa.array(np.concatenate(([0], np.cumsum(kept))).astype(np.int32))
    return pa.MapArray.from_arrays(offsets, all_keys.filter(keep), all_items.filter(keep))


def _keep(properties: Any, count: int) -> tuple[Any, Any, Any]:
    """Return names, values and ends of the properties, without the origin of an earlier replay."""
    if properties is None:
        nothing = pa.array([], pa.string())
        return nothing, nothing, np.zeros(count + 1, np.int64)
    properties = pa.concat_arrays([properties.cast(_PROPERTIES)])
    edges = properties.offsets.to_numpy().astype(np.int64)
    first, last = int(edges[0]), int(edges[-1])
    keys = properties.keys.slice(first, last - first)
    items = properties.items.slice(first, last - first)
    counts = np.diff(edges)
    keep = pc.invert(pc.starts_with(keys, ORIGIN_PREFIX)).to_numpy(zero_copy_only=False)
    if properties.null_count:
        valid = properties.is_valid().to_numpy(zero_copy_only=False)
        keep &= np.repeat(valid, counts)
    rows = np.repeat(np.arange(count), counts)
    ends = np.concatenate(([0], np.cumsum(np.bincount(rows[keep], minlength=count))))
    mask = pa.array(keep)
    return keys.filter(mask), items.filter(mask), ends.astype(np.int64)


def _text(values: Any) -> Any:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ms", values.type.tz), safe=False).cast(pa.int64())
    return values.cast(pa.string())
