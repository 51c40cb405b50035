"""The work of a task: read its ranges, detect missing messages, decode the others."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.decoder import Offsets, are_in_row, decode, holding, walk
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.planning import NetworkPartition, Range
from rockhopper.pipeline.network.rules import TopicReadRules
from rockhopper.pipeline.pulls import BulkRead, QueuePull
from rockhopper.pipeline.remote import connect, result
from rockhopper.pipeline.retrying import is_unknown_topic
from rockhopper.pipeline.schema import arrow_schema
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP

_log = logging.getLogger(__name__)

TOGETHER_MAX = 1000
TOGETHER_COUNT_MAX = 20_000
"""The limits of one combined request: ranges and messages."""
ONE_OF_FEW_SIZE_BYTES_MAX = 1 << 16
FEW_SIZE_BYTES_MAX = 1 << 20
"""A larger read is decoded alone; smaller reads are decoded together up to this size."""

_FAIL = (
    "if that is expected, set failOnDataLoss=false to continue without them; otherwise make "
    "the broker keep messages longer (fileReservedTime) than this query may fall behind"
)


def read_ranges(ranges: tuple[Range, ...], rules: TopicReadRules) -> Iterator[pa.RecordBatch]:
    """Yield the messages of *ranges*, in the order of each queue.

    Raises:
        PipelineError: a broker does not answer, messages are missing, or some cannot be decoded.
    """
    wanted = rules.wanted
    for batch in _read_all(ranges, rules):
        found = batch if wanted is None else wanted.matching(batch)
        if found.num_rows:
            yield found if wanted is None else found.select(list(rules.columns))


def may_hold(queue: MessageQueue, rules: TopicReadRules) -> bool:
    """Return whether a queue may have rows that match the query's condition."""
    wanted = rules.wanted
    return wanted is None or wanted.may_hold(queue.topic, queue.broker_name, queue.queue_id)


def read_partition(partition: InputPartition, rules: TopicReadRules) -> Iterator[Any]:
    """Yield the batches of one task. Raises PipelineError."""
    if not isinstance(partition, NetworkPartition) or not partition.ranges:
        return empty(rules)
    return read_ranges(partition.ranges, rules)


def _read_all(ranges: tuple[Range, ...], rules: TopicReadRules) -> Iterator[pa.RecordBatch]:
    few = Few(rules)
    for wanted, read in _RangeReader(ranges, rules):
        if few.try_add(wanted, read):
            continue
        yield from few.batches()
        if not few.try_add(wanted, read):
            yield from _batches(wanted, read, rules)
    yield from few.batches()


class _RangeReader:
    """Reads ranges in order; reads the next one while the caller decodes the current one.

    Short ranges of one topic are read together.
    """

    def __init__(self, ranges: tuple[Range, ...], rules: TopicReadRules) -> None:
        self._rules = rules
        self._remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
        self._left = list(reversed(ranges))
        self._reads_many = not rules.is_filtered and rules.pull_count is None

    def __iter__(self) -> Iterator[tuple[Range, BulkRead]]:
        """Yield each read with the range that it covers the start of."""
        wanted = self._next()
        under_way = self._begin(wanted) if wanted else None
        while wanted:
            found: list[tuple[Range, BulkRead]] = []
            reads = self._finish(wanted, under_way)
            rest = list(wanted[len(reads) :])
            for each, read in zip(wanted, reads, strict=False):
                if read.has_moved or read.next_offset <= each.begin:
                    behind = _skip(each, read, self._rules)
                else:
                    found.append((each, read))
                    behind = read.next_offset
                if behind < each.end:
                    rest.insert(0, replace(each, begin=behind))
            self._left += reversed(rest)
            wanted = self._next()
            under_way = self._begin(wanted) if wanted else None
            yield from found

    def _next(self) -> tuple[Range, ...]:
        """Return the ranges of the next request; empty at the end."""
        if not self._left:
            return ()
        first = self._left.pop()
        found, count = [first], first.count
        while self._reads_many and self._left and len(found) < TOGETHER_MAX:
            other = self._left[-1]
            count += other.count
            if count > TOGETHER_COUNT_MAX or _place(other) != _place(first):
                break
            found.append(self._left.pop())
        return tuple(found)

    def _begin(self, wanted: tuple[Range, ...]) -> Future[list[BulkRead]]:
        return self._remote.begin_reads([self._pull(each) for each in wanted])

    def _pull(self, wanted: Range) -> QueuePull:
        rules = self._rules
        end = wanted.end
        if rules.pull_count is not None:
            end = min(end, wanted.begin + rules.pull_count)
        return QueuePull(
            wanted.queue,
            wanted.begin,
            end,
            rules.pull_bytes,
            rules.reading_group or TOOLS_CONSUMER_GROUP,
            rules.expression,
            rules.expression_type,
            wanted.topic_id,
        )

    def _finish(
        self, wanted: tuple[Range, ...], under_way: Future[list[BulkRead]] | None
    ) -> list[BulkRead]:
        first = [under_way]

        def attempt() -> list[BulkRead]:
            return result((first.pop() if first else None) or self._begin(wanted))

        what = f"{wanted[0].queue} could not be read from offset {wanted[0].begin} on"
        try:
            return self._rules.patience(what, attempt)
        except PipelineError as error:
            if not is_unknown_topic(error):
                raise
            return [_drop_topic(each, error, self._rules) for each in wanted]


def _place(wanted: Range) -> tuple[str, str, str]:
    return wanted.queue.broker_name, wanted.queue.topic, wanted.topic_id


class Few:
    """Decodes small reads together: a batch of one message costs as much as a larger one."""

    def __init__(self, rules: TopicReadRules) -> None:
        self._rules = rules
        self._bodies: list[bytes] = []
        self._offsets: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self._size_bytes = 0
        self._broker = ""

    def try_add(self, wanted: Range, read: BulkRead) -> bool:
        """Add a read; return False if it cannot be added, or only after ``batches``.

        A read is added only if its records are exactly the requested ones, in order.
        """
        if self._bodies and (
            wanted.queue.broker_name != self._broker or self._size_bytes > FEW_SIZE_BYTES_MAX
        ):
            return False
        if len(read.body) > ONE_OF_FEW_SIZE_BYTES_MAX or self._rules.is_filtered:
            return False
        found = walk(read.body, 0, len(read.body))
        end = min(read.next_offset, wanted.end)
        if found.problem is not None or not are_in_row(read.body, found.offsets, wanted.begin, end):
            return False
        self._broker = wanted.queue.broker_name
        self._bodies.append(read.body)
        self._offsets.append(found.offsets + self._size_bytes)
        self._size_bytes += len(read.body)
        return True

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of all added reads, and forget the reads. Raises PipelineError."""
        if not self._bodies:
            return
        body, offsets = b"".join(self._bodies), np.concatenate(self._offsets)
        self._bodies, self._offsets, self._size_bytes = [], [], 0
        rules = self._rules
        yield from decode(
            body,
            offsets,
            rules.decoded_columns,
            broker_name=self._broker,
            decompress=rules.decompress,
            crc=rules.crc,
        )


def _drop_topic(wanted: Range, error: PipelineError, rules: TopicReadRules) -> BulkRead:
    """Return an empty read for a topic that was deleted or recreated, if options allow it."""
    said = f"{wanted.queue} cannot be read from offset {wanted.begin} to {wanted.end}"
    if rules.fail_on_data_loss:
        raise PipelineError(
            f"{said}: the topic was deleted since, and perhaps recreated ({error.sentence}); "
            "set failOnDataLoss=false to continue without these messages"
        ) from error
    _log.warning("%s: the topic was deleted since, and perhaps recreated", said)
    return BulkRead(b"", wanted.end, wanted.end, wanted.end, False)


def _batches(wanted: Range, read: BulkRead, rules: TopicReadRules) -> Iterator[pa.RecordBatch]:
    queue, offset = wanted.queue, wanted.begin
    columns = rules.decoded_columns
    if "queueOffset" not in columns:
        columns = (*columns, "queueOffset")
    rows = 0
    if read.body:
        found = walk(read.body, 0, len(read.body))
        if found.problem is not None:
            raise PipelineError(
                f"the broker sent something for {queue} from offset {offset} on that is no "
                f"message ({found.problem}): look at the broker's log"
            )
        offsets = _worth_decoding(wanted, read, found.offsets, rules)
        rows += len(found.offsets) - len(offsets)
        for batch in decode(
            read.body,
            offsets,
            columns,
            broker_name=queue.broker_name,
            decompress=rules.decompress,
            crc=rules.crc,
        ):
            batch = _cut_to_range(batch, offset, wanted.end)
            rows += batch.num_rows
            if len(columns) > len(rules.decoded_columns):
                batch = batch.select(list(rules.decoded_columns))
            if batch.num_rows:
                yield batch
    end = min(read.next_offset, wanted.end)
    if not rules.is_filtered and rows < end - offset and rules.fail_on_data_loss:
        raise PipelineError(
            f"{queue} should have {end - offset} messages from offset {offset} on and the "
            f"broker has only {rows} of them (damaged or deleted): {_FAIL}"
        )


def _worth_decoding(
    wanted: Range, read: BulkRead, offsets: Offsets, rules: TopicReadRules
) -> Offsets:
    """Drop records that cannot match the condition.

    This applies only if the records are exactly the requested ones.
    """
    needles = rules.wanted.needles if rules.wanted is not None else ()
    end = min(read.next_offset, wanted.end)
    if not needles or not are_in_row(read.body, offsets, wanted.begin, end):
        return offsets
    ends = np.append(offsets[1:], len(read.body))
    return offsets[np.logical_and.reduce([holding(read.body, offsets, ends, n) for n in needles])]


def _cut_to_range(batch: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
    """Keep only the messages of [begin, end): batches come whole, and filtered reads go further."""
    offsets = batch.column("queueOffset").to_numpy(zero_copy_only=False)
    if len(offsets) and offsets[0] >= begin and offsets.max() < end:
        return batch
    return batch.filter(pa.array(np.logical_and(offsets >= begin, offsets < end)))


def _skip(wanted: Range, read: BulkRead, rules: TopicReadRules) -> int:
    """Return the offset at which to continue if the queue does not hold the requested offset."""
    if rules.fail_on_data_loss:
        raise PipelineError(
            f"{wanted.queue} does not hold the messages from offset {wanted.begin} to "
            f"{wanted.end} any more (it goes from {read.min_offset} to {read.max_offset}): {_FAIL}"
        )
    if read.next_offset > wanted.begin:
        return read.next_offset
    return wanted.end


def empty(rules: TopicReadRules) -> Iterator[pa.RecordBatch]:
    """Yield one batch without messages."""
    yield pa.RecordBatch.from_pylist([], schema=arrow_schema(rules.columns))
