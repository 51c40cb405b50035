"""A stream of the data source ``rocketmq``.

All methods of a reader share one instance in a Python worker on the driver's host. A restart of the
query creates a new instance. The offset is a document (stream_offset.py); going_on.py adjusts it to
changed queues. This needs PySpark 4.2 or newer.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.going_on import GoingOn
from rockhopper.pipeline.network.group_commits import GroupCommits
from rockhopper.pipeline.network.pace import Pace
from rockhopper.pipeline.network.planning import (
    NetworkPartition,
    Range,
    limited,
    limited_by_bytes,
    plan,
)
from rockhopper.pipeline.network.positions import Offsets
from rockhopper.pipeline.network.reading import may_hold, read_partition
from rockhopper.pipeline.network.rules import TopicReadRules
from rockhopper.pipeline.network.stream_offset import Document, StreamOffset

_log = logging.getLogger(__name__)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class NetworkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new messages continuously; a restart from a checkpoint continues exactly."""

    def __init__(
        self,
        rules: TopicReadRules,
        now_ms: Callable[[], int] = _wall_clock_ms,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """*now_ms* is the time of day; *now_s* is a monotonic clock."""
        self._rules = rules
        self._pace = Pace(rules.min_offsets, rules.delay_max_ms, now_s)
        self._now_ms = now_ms
        self._discovery = Discovery(rules)
        self._going_on = GoingOn(rules, self._discovery)
        self._initial: StreamOffset | None = None
        self._is_bounded = False
        self._target: Offsets | None = None
        self._newest: Document | None = None
        self._commits = GroupCommits(rules, self._discovery)

    def initialOffset(self) -> Document:  # noqa: N802
        """Return the start of a new query; constant during the life of this instance."""
        if self._initial is None:
            started_ms, brokers = self._now_ms(), self._discovery.brokers()
            held = self._discovery.ranges()
            if not held and (problem := self._discovery.nothing_matches()):
                _log.warning("%s; until then the query waits for topics", problem)
            starts = self._discovery.starts(held)
            # A broker that starts or stops at this moment does not count as known.
            brokers &= self._discovery.brokers()
            self._initial = StreamOffset(
                starts,
                starts,
                ids={place: name for place, name in self._discovery.ids.items() if name},
                logs=dict(self._discovery.past.epochs),
                brokers=tuple(sorted(brokers)),
                started_ms=started_ms,
                is_fresh=True,
            )
        return self._initial.document()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query at the queue ends at the time its first batch is planned."""
        self._is_bounded = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set; if they limit both, bytes."""
        if self._rules.max_bytes is not None:
            return ReadMaxBytes(self._rules.max_bytes)
        if self._rules.max_offsets is not None:
            return ReadMaxRows(self._rules.max_offsets)
        if self._rules.min_offsets is not None:
            return ReadMinRows(self._rules.min_offsets)
        return ReadAllAvailable()

    def _is_too_soon(self, begin: Offsets, ends: Offsets) -> bool:
        """Whether a stream should wait for more messages."""
        waiting = sum(ends[queue] - begin[queue] for queue in ends)
        return not self._is_bounded and self._pace.is_too_soon(waiting)

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        """Return the end of the next batch; commit everything up to *start*."""
        at = StreamOffset.read(start)
        before = at.document()
        self._discovery.read_in = at.logs
        held = self._discovery.ranges(at.places)
        self._commits.advance(at)
        if self._is_bounded and self._target is None:
            self._target = {queue: high for queue, (_, high) in held.items()}
        self._going_on.adjust(at, held, self._target)
        begin = at.offsets
        ends = {queue: self._end(queue, begin, held) for queue in begin}
        is_as_before = not at.is_fresh and at.document() == before
        at.is_fresh = False
        self._newest = at.document(ends)
        if not isinstance(limit, ReadAllAvailable):
            # Changes of queues and topics are recorded at once.
            if self._is_too_soon(begin, ends) and is_as_before:
                return start
            ends = self._limit(begin, ends)
        self._going_on.mark(at, ends, held)
        return at.document(ends)

    def _end(
        self, queue: MessageQueue, begin: Offsets, held: dict[MessageQueue, tuple[int, int]]
    ) -> int:
        """Return the end of a queue: its current end or, for a bounded query, its target.

        If the broker is offline, the offset stays unchanged.
        """
        if queue not in held:
            return begin[queue]
        low, high = held[queue]
        if self._target is not None:
            high = max(min(high, self._target.get(queue, begin[queue])), begin[queue])
        if self._rules.fail_on_data_loss and not low <= begin[queue] <= held[queue][1]:
            raise PipelineError(
                f"{queue} goes from offset {low} to {held[queue][1]}, and this query stands at "
                f"{begin[queue]}: messages were deleted, or the topic was recreated; set "
                "failOnDataLoss=false to continue with the remaining data, or start with a new "
                "checkpoint"
            )
        return high

    def _limit(self, begin: Offsets, ends: Offsets) -> Offsets:
        rules = self._rules
        if rules.max_offsets is not None:
            ends = limited(begin, ends, rules.max_offsets)
        if rules.max_bytes is not None:
            waiting = {queue: begin[queue] for queue in ends if ends[queue] > begin[queue]}
            sizes = self._discovery.record_bytes(waiting)
            ends = limited_by_bytes(begin, ends, rules.max_bytes, sizes)
        return ends

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        """Return the newest offsets of the queues; Spark derives the lag from them."""
        return self._newest

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """Distribute a batch over tasks; a repeated batch gets the same ranges."""
        until = StreamOffset.read(end)
        ranges = [
            Range(queue, first, until.offsets[queue], until.topic_id(queue))
            for queue, first in StreamOffset.read(start).begins(until).items()
            if may_hold(queue, self._rules)
        ]
        planned = plan(ranges, self._rules.min_partitions, self._rules.max_records)
        return planned or [NetworkPartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of one task."""
        return read_partition(partition, self._rules)

    def commit(self, end: Document) -> None:
        """Commit everything up to *end*; Spark calls this one batch late, or never."""
        self._commits.advance(StreamOffset.read(end))
