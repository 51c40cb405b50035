"""The messages of a run as a source: what was planned, and nothing else."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg.source import (
    ArchiveSource,
    RangesReader,
    table_schema,
    work_document,
)
from rockhopper.pipeline.jobs.archiving.values import ValueFormat
from rockhopper.pipeline.network.planning import Range
from tests.support.pipeline_broker import PipelineBroker

VALUE = ValueFormat(
    "json",
    json.dumps(
        {
            "properties": {
                "id": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "at": {"type": "string", "format": "date-time"},
            }
        }
    ),
)


def batches(broker: PipelineBroker, ranges: list[Range], **rules: Any) -> list[pa.RecordBatch]:
    given = {"value": None, "allow_gaps": False, "refuses_bad_values": False, **rules}
    work = work_document(broker.nameserver, [ranges], **given)
    reader = RangesReader(work)
    return [batch for part in reader.partitions() for batch in reader.read(part)]


def test_just_the_planned_ranges_are_read_with_the_columns_that_spark_was_told() -> None:
    with PipelineBroker() as broker:
        broker.create("orders", 1)
        broker.send("orders", ['{"id": 1, "tags": ["a"]}', "no JSON", '{"id": 3}', '{"id": 4}'])
        queue = MessageQueue("orders", broker.broker.config.broker_name, 0)

        (batch,) = batches(broker, [Range(queue, 1, 3)], value=VALUE)

        wanted = to_arrow_schema(table_schema(VALUE), timezone="UTC")
        assert batch.schema.equals(wanted)
        assert batch.column("queueOffset").to_pylist() == [1, 2]
        assert batch.column("value").to_pylist() == [None, {"id": 3, "tags": None, "at": None}]
        (plain,) = batches(broker, [Range(queue, 0, 4)])
        assert plain.schema.equals(to_arrow_schema(table_schema(None), timezone="UTC"))
        with pytest.raises(PipelineError, match="offset 1 of queue 0 of 'orders' does not decode"):
            batches(broker, [Range(queue, 0, 4)], value=VALUE, refuses_bad_values=True)


def test_the_queue_of_a_topic_that_was_created_again_is_not_read() -> None:
    with PipelineBroker() as broker:
        broker.create("orders", 1)
        broker.send("orders", ["sent to the second topic"])
        queue = MessageQueue("orders", broker.broker.config.broker_name, 0)

        with pytest.raises(PipelineError, match="deleted since, and perhaps recreated"):
            batches(broker, [Range(queue, 0, 1, "the first topic's id")])


def test_spark_is_told_the_columns() -> None:
    work = work_document("n:1", [], VALUE, allow_gaps=False, refuses_bad_values=False)

    assert ArchiveSource({"work": work}).schema() == table_schema(VALUE)
    assert RangesReader(work).partitions() == []
