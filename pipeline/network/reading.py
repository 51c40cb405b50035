"""What a task does: read its ranges, notice what is missing, decode the rest."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rockhopper.pipeline.decoder import decode, walk
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.planning import Range
from rockhopper.pipeline.network.rules import Rules
from rockhopper.pipeline.pulls import BulkRead, Pull
from rockhopper.pipeline.remote import connect, result
from rockhopper.pipeline.retrying import is_unknown_topic
from rockhopper.pipeline.schema import arrow_schema
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP

_log = logging.getLogger(__name__)

_FAIL = (
    "if that is expected, set failOnDataLoss=false to go on without them; otherwise see that the "
    "broker keeps messages for longer (fileReservedTime) than this query may fall behind"
)


def read_ranges(ranges: tuple[Range, ...], rules: Rules) -> Iterator[pa.RecordBatch]:
    """The messages of *ranges*, in the order of each queue.

    Raises:
        PipelineError: a broker stays away, messages are missing, or some cannot be decoded.
    """
    reading = _Reading(ranges, rules)
    for wanted, read in reading:
        yield from _batches(wanted, read, rules)


class _Reading:
    """Reads ranges one after the other, with one read under way while another is decoded."""

    def __init__(self, ranges: tuple[Range, ...], rules: Rules) -> None:
        self._rules = rules
        self._remote = connect(rules.nameserver, timeout_s=rules.timeout_s)
        self._left = list(reversed(ranges))

    def __iter__(self) -> Iterator[tuple[Range, BulkRead]]:
        """What was read, and the rest of the range that it is the start of."""
        wanted = self._next(None)
        under_way = self._begin(wanted) if wanted else None
        while wanted is not None:
            read = self._finish(wanted, under_way)
            if read.has_moved or read.next_offset <= wanted.begin:
                found = None
                behind = _skipped(wanted, read, self._rules)
            else:
                found = (wanted, read)
                behind = read.next_offset
            wanted = self._next(replace(wanted, begin=behind))
            under_way = self._begin(wanted) if wanted else None
            if found is not None:
                yield found

    def _next(self, rest: Range | None) -> Range | None:
        if rest is not None and rest.count > 0:
            return rest
        return self._left.pop() if self._left else None

    def _begin(self, wanted: Range) -> Future[BulkRead]:
        rules = self._rules
        end = wanted.end
        if rules.pull_count is not None:
            end = min(end, wanted.begin + rules.pull_count)
        pull = Pull(
            wanted.queue,
            wanted.begin,
            end,
            rules.pull_bytes,
            rules.reading_group or TOOLS_CONSUMER_GROUP,
            rules.expression,
            rules.expression_type,
            wanted.topic_id,
        )
        return self._remote.begin_read(pull)

    def _finish(self, wanted: Range, under_way: Future[BulkRead] | None) -> BulkRead:
        first = [under_way]

        def attempt() -> BulkRead:
            return result((first.pop() if first else None) or self._begin(wanted))

        what = f"{wanted.queue} could not be read from offset {wanted.begin} on"
        try:
            return self._rules.patience(what, attempt)
        except PipelineError as error:
            if not is_unknown_topic(error):
                raise
            return _without_topic(wanted, error, self._rules)


def _without_topic(wanted: Range, error: PipelineError, rules: Rules) -> BulkRead:
    """Nothing of a topic that is not there, or is another one, if that may be."""
    said = f"{wanted.queue} cannot be read from offset {wanted.begin} to {wanted.end}"
    if rules.fail_on_data_loss:
        raise PipelineError(
            f"{said}: the topic was deleted since, and perhaps made anew ({error.sentence}); set "
            "failOnDataLoss=false to go on without these messages"
        ) from error
    _log.warning("%s: the topic was deleted since, and perhaps made anew", said)
    return BulkRead(b"", wanted.end, wanted.end, wanted.end, False)


def _batches(wanted: Range, read: BulkRead, rules: Rules) -> Iterator[pa.RecordBatch]:
    queue, offset = wanted.queue, wanted.begin
    columns = rules.columns
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
        for batch in decode(
            read.body,
            found.offsets,
            columns,
            broker_name=queue.broker_name,
            decompress=rules.decompress,
            crc=rules.crc,
        ):
            batch = _within(batch, offset, wanted.end)
            rows += batch.num_rows
            if len(columns) > len(rules.columns):
                batch = batch.select(list(rules.columns))
            if batch.num_rows:
                yield batch
    end = min(read.next_offset, wanted.end)
    if not rules.is_filtered and rows < end - offset and rules.fail_on_data_loss:
        raise PipelineError(
            f"{queue} should have {end - offset} messages from offset {offset} on and the "
            f"broker has only {rows} of them (damaged or deleted): {_FAIL}"
        )


def _within(batch: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
    """Only the messages of [begin, end): batches come whole, filtered reads go further."""
    offsets = batch.column("queueOffset").to_numpy(zero_copy_only=False)
    if len(offsets) and offsets[0] >= begin and offsets.max() < end:
        return batch
    return batch.filter(pa.array(np.logical_and(offsets >= begin, offsets < end)))


def _skipped(wanted: Range, read: BulkRead, rules: Rules) -> int:
    """Where to go on when the queue does not hold the offset asked for."""
    if rules.fail_on_data_loss:
        raise PipelineError(
            f"{wanted.queue} does not hold the messages from offset {wanted.begin} to "
            f"{wanted.end} any more (it goes from {read.min_offset} to {read.max_offset}): {_FAIL}"
        )
    if read.next_offset > wanted.begin:
        return read.next_offset
    return wanted.end


def empty(rules: Rules) -> Iterator[pa.RecordBatch]:
    """No messages."""
    yield pa.RecordBatch.from_pylist([], schema=arrow_schema(rules.columns))
