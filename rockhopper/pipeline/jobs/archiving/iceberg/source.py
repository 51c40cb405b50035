"""The messages of a run as a Spark source: ranges of queues, distributed over tasks.

Unlike the source ``rocketmq``, it reads only the planned ranges, identifies topics by their ids,
and has the column ``value``. Its single option is JSON.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.from_network import rules_for
from rockhopper.pipeline.jobs.archiving.selection import Selection
from rockhopper.pipeline.jobs.archiving.values import ValueDecoder, ValueFormat
from rockhopper.pipeline.network.planning import NetworkPartition, Range
from rockhopper.pipeline.network.reading import read_ranges
from rockhopper.pipeline.schema import COLUMNS, spark_schema

SOURCE = "rockhopper-archive"


def work_document(
    nameserver: str,
    shares: Iterable[Sequence[Range]],
    value: ValueFormat | None,
    *,
    allow_gaps: bool,
    refuses_bad_values: bool,
) -> str:
    """Return the value of the option ``work``."""
    return json.dumps(
        {
            "nameserver": nameserver,
            "shares": [[_as_list(each) for each in share] for share in shares],
            "value": None if value is None else asdict(value),
            "allowGaps": allow_gaps,
            "refusesBadValues": refuses_bad_values,
        }
    )


def _as_list(each: Range) -> list[Any]:
    return [*each.queue, each.begin, each.end, each.topic_id]


def _range(given: Sequence[Any]) -> Range:
    *queue, begin, end, topic_id = given
    return Range(MessageQueue(*queue), begin, end, topic_id)


def table_schema(value: ValueFormat | None) -> StructType:
    """Return the columns of the sources, and ``value``. Raises PipelineError."""
    schema = spark_schema(COLUMNS)
    if value is None:
        return schema
    from pyspark.sql.pandas.types import from_arrow_type

    return schema.add("value", from_arrow_type(value.arrow_type()))


class ArchiveSource(DataSource):
    """A source that only the job's session knows."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SOURCE

    def schema(self) -> StructType:
        """See table_schema."""
        return table_schema(RangesReader(self.options["work"]).value)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of all ranges."""
        return RangesReader(self.options["work"])


class RangesReader(DataSourceReader):
    """Reads the ranges in the document *work*."""

    def __init__(self, work: str) -> None:
        self._work = json.loads(work)
        value = self._work["value"]
        self.value = None if value is None else ValueFormat(**value)

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each share."""
        return [NetworkPartition(tuple(map(_range, share))) for share in self._work["shares"]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a share. Raises PipelineError."""
        assert isinstance(partition, NetworkPartition)
        decoder = None if self.value is None else ValueDecoder(self.value)
        rules = rules_for(
            self._work["nameserver"],
            Selection(tuple({each.queue.topic for each in partition.ranges})),
            allow_gaps=self._work["allowGaps"],
            columns=COLUMNS,
        )
        for batch in read_ranges(partition.ranges, rules):
            if batch.num_rows:
                yield batch if decoder is None else self._with_value(batch, decoder)

    def _with_value(self, batch: pa.RecordBatch, decoder: ValueDecoder) -> pa.RecordBatch:
        assert self.value is not None
        value, undecoded = decoder.decode(batch.column("body"))
        if undecoded and self._work["refusesBadValues"]:
            row = value.is_null().index(True).as_py()
            topic, queue, offset = (
                batch.column(name)[row].as_py() for name in ("topic", "queueId", "queueOffset")
            )
            raise PipelineError(
                f"the body at offset {offset} of queue {queue} of {topic!r} does not decode as "
                f"{self.value.format} by the schema: correct the schema, or archive with "
                "--bad-values null, which keeps such bodies, and counts them"
            )
        return pa.RecordBatch.from_arrays(
            [*batch.columns, value], names=[*batch.schema.names, "value"]
        )
