"""Making a writer: what would overwrite a topic is refused before anything is sent."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.bad_rows import BadRows
from rockhopper.pipeline.sink.rules import read_rules
from rockhopper.pipeline.sink.staging import TaskPart
from rockhopper.pipeline.sink.writer import (
    StreamWriter,
    Task,
    TaskResult,
    _Writing,
    make_stream_writer,
    make_writer,
)

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}
FRAME = StructType([StructField("body", StringType())])


def test_topics_are_not_overwritten() -> None:
    with pytest.raises(PipelineError, match=r"mode\('append'\)"):
        make_writer(FRAME, read_rules(BASE, streaming=False), True)
    with pytest.raises(PipelineError, match=r"outputMode\('append'\)"):
        make_stream_writer(FRAME, read_rules(BASE, streaming=True), True)


@pytest.fixture
def writing() -> _Writing:
    exactly = {"delivery": "exactly-once", "checkpointLocation": "/tmp/none"}
    return _Writing(read_rules(BASE | exactly, streaming=True))


def test_a_spark_that_does_not_tell_the_batch_cannot_write_exactly_once(writing: _Writing) -> None:
    for task in (Task(0, 0, "query", -1), Task(0, 0, "", 4)):
        with pytest.raises(PipelineError, match="set delivery=at-least-once"):
            writing.write_task(iter(()), task, task.batch_id)


def test_tasks_that_staged_nothing_publish_and_abort_nothing(writing: _Writing) -> None:
    sent = [TaskResult(3), None]
    writing.commit_parts(sent)
    writing.abort_parts(sent)


def test_rows_that_were_dropped_are_counted_over_all_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writing = _Writing(read_rules(BASE | {"onBadRow": "drop"}, streaming=True))
    fine, bad = TaskResult(3), TaskResult(1, bad=BadRows(count=2, first="the body is null"))
    writing.commit_parts([fine, bad, bad], 7)
    assert caplog.messages == [
        "4 rows of batch 7 could not be sent and were dropped; the first of them: the body is null"
    ]
    caplog.clear()
    writing.commit_parts([fine, None], 8)
    assert caplog.messages == []


def test_parts_of_another_batch_are_never_published(writing: _Writing) -> None:
    writer = StreamWriter(writing.rules)
    with pytest.raises(AssertionError, match="tasks of batch 2 said that they were of"):
        writer.commit([TaskResult(1, TaskPart("s", 1, "0.1", 0, {"a": 1}))], 2)
