"""Rows for the sink, written like Spark's tasks write them."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rockhopper.pipeline.sink.rules import SinkRules, read_rules
from rockhopper.pipeline.sink.writer import Task, TaskResult, _Writing
from tests.support.pipeline_broker import PipelineBroker


def rules(served: PipelineBroker, topic: str, /, **given: Any) -> SinkRules:
    base = {"nameServer": served.nameserver, "topic": topic, "retryIntervalMs": "1"}
    texts = {name: str(value) for name, value in given.items()}
    return read_rules(base | texts, streaming=True)


def batches(*bodies: list[str], **columns: Any) -> Iterator[pa.RecordBatch]:
    for each in bodies:
        arrays: dict[str, Any] = {"body": pa.array(each, pa.string())}
        for name, values in columns.items():
            arrays[name] = values if isinstance(values, pa.Array) else pa.array(values)
        yield pa.RecordBatch.from_pydict(arrays)


def numbered(start: int, end: int) -> list[str]:
    return [f"{number:05d}" for number in range(start, end)]


def write(rules: SinkRules, *bodies: list[str], partition: int = 0, batch: int = 0) -> TaskResult:
    task = Task(partition, 0, "query-of-the-test", batch)
    return _Writing(rules).write_task(batches(*bodies), task, batch)


def exact(served: PipelineBroker, topic: str, /, **given: Any) -> _Writing:
    given.setdefault("sinkId", topic)
    return _Writing(rules(served, topic, delivery="exactly-once", batchBytes=500, **given))


def send(rules: SinkRules, *bodies: list[str], **columns: Any) -> int:
    task = Task(0, 0, "", 0)
    return _Writing(rules).write_task(batches(*bodies, **columns), task, 0).message_count
