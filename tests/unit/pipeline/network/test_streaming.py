"""A stream of the network source is refused with a sentence where PySpark is too old for it."""

import sys
from typing import Any

import pyspark
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.rules import read_rules
from rockhopper.pipeline.network.source import RocketMQSource
from rockhopper.pipeline.network.stream_offset import StreamOffset
from rockhopper.pipeline.network.streaming import NetworkStreamReader

OPTIONS = {"nameServer": "127.0.0.1:1", "subscribe": "orders"}


def test_a_stream_needs_a_newer_pyspark_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "rockhopper.pipeline.network.streaming", raising=False)
    source = RocketMQSource(OPTIONS)
    schema = source.schema()

    source.reader(schema)
    with pytest.raises(PipelineError, match=r"4.2 or newer, and 4.1.4 is installed.* read batches"):
        source.streamReader(schema)


def make_reader(**options: str) -> NetworkStreamReader:
    return NetworkStreamReader(read_rules(OPTIONS | options, streaming=True))


def test_a_stream_reads_as_much_at_a_time_as_its_options_say() -> None:
    for options, limit in (
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
    ):
        found = make_reader(**options).getDefaultReadLimit()
        assert (type(found), vars(found)) == (type(limit), vars(limit))


def test_a_batch_that_is_repeated_reads_the_same_ranges() -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    start = StreamOffset({queues[0]: 3, queues[1]: 4}, dict.fromkeys(queues, 0)).document()
    end = StreamOffset({queues[0]: 9, queues[1]: 4}, dict.fromkeys(queues, 0)).document()
    planned: Any = make_reader().partitions(start, end)
    ranges = [(each.queue, each.begin, each.end) for part in planned for each in part.ranges]
    assert ranges == [(queues[0], 3, 9)]
    assert make_reader().partitions(start, end) == planned


def test_a_batch_of_nothing_has_one_task_that_reads_nothing() -> None:
    at = StreamOffset({}, {}).document()
    (partition,) = make_reader().partitions(at, at)
    assert sum(batch.num_rows for batch in make_reader().read(partition)) == 0
