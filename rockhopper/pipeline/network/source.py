"""The data source ``rocketmq``: topics over the network, for Rockhopper and Apache brokers.

Spark runs all methods but ``read`` in Python workers on the driver's host. streaming.py reads
streams, which need a newer Spark.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.planning import NetworkPartition, Range, plan
from rockhopper.pipeline.network.reading import may_hold, read_partition
from rockhopper.pipeline.network.rules import SOURCE, TopicReadRules, read_rules
from rockhopper.pipeline.network.stream_offset import place_of
from rockhopper.pipeline.schema import spark_schema


class RocketMQSource(DataSource):
    """The data source; docs/spark.md describes its options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SOURCE

    def schema(self) -> StructType:
        """Return the columns that the options choose, without a request to a broker."""
        from rockhopper.pipeline.schema import choose_columns

        return spark_schema(choose_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch. Raises PipelineError."""
        rules = read_rules(self.options, streaming=False)
        _check_schema(schema, rules)
        return NetworkReader(rules)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of a stream. Raises PipelineError."""
        rules = read_rules(self.options, streaming=True)
        _check_schema(schema, rules)
        try:
            from rockhopper.pipeline.network.streaming import NetworkStreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            raise PipelineError(
                f"streams need pyspark 4.2 or newer, and {pyspark.__version__} is installed: "
                "install a newer one, or read batches"
            ) from None
        return NetworkStreamReader(rules)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of a frame. Raises PipelineError."""
        from rockhopper.pipeline.sink.rules import read_rules as read_sink_rules
        from rockhopper.pipeline.sink.writer import make_writer

        return make_writer(schema, read_sink_rules(self.options, streaming=False), overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a writer of a stream. Raises PipelineError."""
        from rockhopper.pipeline.sink.rules import read_rules as read_sink_rules
        from rockhopper.pipeline.sink.writer import make_stream_writer

        return make_stream_writer(schema, read_sink_rules(self.options, streaming=True), overwrite)


def _check_schema(schema: StructType, rules: TopicReadRules) -> None:
    if tuple(schema.fieldNames()) != rules.columns:
        raise PipelineError(
            f"{SOURCE} has a schema of its own: leave .schema(...) out, and choose columns with "
            "the option columns"
        )


class NetworkReader(DataSourceReader):
    """Reads the messages between two positions."""

    def __init__(self, rules: TopicReadRules) -> None:
        self._rules = rules

    def partitions(self) -> Sequence[InputPartition]:
        """Fix the offsets, and distribute them over tasks."""
        discovery = Discovery(self._rules)
        discovery.read_in = self._rules.read_in
        held = discovery.ranges()
        if not held and (problem := discovery.nothing_matches()):
            raise PipelineError(problem)
        starts, ends = discovery.starts(held), discovery.ends(held)
        ranges = []
        for queue, (low, high) in held.items():
            if not may_hold(queue, self._rules):
                continue
            begin, end = starts[queue], ends[queue]
            # If a log was truncated since, read again from its end at that time.
            begin = min(begin, discovery.past.ends.get(queue, begin))
            if begin > end and self._rules.ending.offsets:
                raise PipelineError(
                    f"{queue} is to be read from offset {begin} to {end}, which is before it: "
                    "correct endingOffsets, or where to start"
                )
            topic_id = discovery.ids.get(place_of(queue), "")
            if self._is_another(queue, topic_id):
                begin = low
            if self._rules.fail_on_data_loss:
                _check_held(queue, begin, end, low, high)
            ranges.append(Range(queue, max(begin, low), min(end, high), topic_id))
        planned = plan(ranges, self._rules.min_partitions, self._rules.max_records)
        return planned or [NetworkPartition(())]

    def _is_another(self, queue: MessageQueue, topic_id: str) -> bool:
        """Return whether the topic was recreated since its offsets were read.

        Raises PipelineError.
        """
        meant = self._rules.topic_ids.get(queue.topic, {}).get(queue.broker_name, topic_id)
        if not topic_id or meant == topic_id:
            return False
        if self._rules.fail_on_data_loss:
            raise PipelineError(
                f"the topic {queue.topic!r} on {queue.broker_name} was deleted and recreated, "
                "so these offsets are not of its messages: set failOnDataLoss=false to read "
                "the new one from its beginning"
            )
        return True

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of one task."""
        return read_partition(partition, self._rules)


def _check_held(queue: MessageQueue, begin: int, end: int, low: int, high: int) -> None:
    if begin < low or begin > high or end > high:
        raise PipelineError(
            f"{queue} goes from offset {low} to {high}, and {begin} to {end} is asked for: correct "
            "startingOffsets and endingOffsets, or set failOnDataLoss=false to read what is there"
        )
