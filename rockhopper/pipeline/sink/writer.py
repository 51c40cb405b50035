"""The writers that Spark calls: one class for a frame, one for a stream.

``write`` runs in the tasks, and everything else in Python workers on the driver's host. Spark
creates new workers for every batch of a stream. So the messages of the tasks carry all that is
needed to publish a batch.
"""

import contextlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import connect
from rockhopper.pipeline.sink.bad_rows import BadRows
from rockhopper.pipeline.sink.choice import choose_broker, sink_state
from rockhopper.pipeline.sink.columns import check_columns
from rockhopper.pipeline.sink.publishing import publish
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.pipeline.sink.sending import RowSender
from rockhopper.pipeline.sink.staging import PartWriter, TaskPart, abort

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_PROBE = "rockhopper"


@dataclass
class TaskResult(WriterCommitMessage):
    """The result of a task: the number of messages that it sent, or the part that it staged."""

    message_count: int
    part: TaskPart | None = None
    bad: BadRows = field(default_factory=BadRows)
    """The rows that could not be sent."""


@dataclass(frozen=True)
class Task:
    """The identity of a task attempt; for a stream, also its query and batch."""

    partition: int
    attempt: int
    query_id: str
    """Blank if there is none."""
    batch_id: int
    """−1 if there is none."""

    @classmethod
    def current(cls) -> "Task":
        """Return the task that runs here."""
        context = TaskContext.get()
        assert context is not None, "tasks write, nobody else"
        return cls(
            context.partitionId(),
            context.attemptNumber(),
            context.getLocalProperty(_QUERY_ID) or "",
            int(context.getLocalProperty(_BATCH_ID) or -1),
        )


def make_writer(schema: "StructType", rules: SinkRules, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer of a frame. Raises PipelineError."""
    if overwrite:
        raise PipelineError(
            "a topic cannot be overwritten: use mode('append'), and a new topic for a new start"
        )
    _check(schema, rules)
    return FrameWriter(rules)


def make_stream_writer(
    schema: "StructType", rules: SinkRules, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Return the writer of a stream. Raises PipelineError."""
    if overwrite:
        raise PipelineError(
            "a topic takes messages and forgets none, so a stream that recomputes its whole result "
            "cannot be written to it: use outputMode('append') or outputMode('update')"
        )
    _check(schema, rules)
    return StreamWriter(rules)


def _check(schema: "StructType", rules: SinkRules) -> None:
    check_columns(schema, rules)
    if not rules.is_exactly_once:
        return
    if rules.is_streaming:
        choose_broker(rules, rules.sink_id or _PROBE, topics=rules.topics)
        return
    broker = choose_broker(rules, rules.sink_id, rules.batch_id, topics=rules.topics)
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
    state = sink_state(remote, broker, rules.sink_id)
    if state is not None and state.last_batch == rules.batch_id:
        # A process of Spark runs this; its standard error is the driver's.
        _log.warning(
            "the sink %r has published batch %d before, so nothing is written again: if these are "
            "other rows, set batchId to %d or more, or another sinkId",
            rules.sink_id,
            rules.batch_id,
            rules.batch_id + 1,
        )


class _Writing:
    def __init__(self, rules: SinkRules) -> None:
        self.rules = rules

    def write_task(self, batches: Iterator[Any], task: Task, batch_id: int) -> TaskResult:
        """Send or stage the rows of one task."""
        rules = self.rules
        if not rules.is_exactly_once:
            sender = RowSender(rules)
            return TaskResult(sender.write(batches), bad=sender.bad)
        if batch_id < 0 or not (rules.sink_id or task.query_id):
            raise PipelineError(
                "this version of Spark does not tell tasks which query and batch they belong to, "
                "so delivery=exactly-once cannot be kept: set delivery=at-least-once, or write "
                "with foreachBatch and the options sinkId and batchId"
            )
        # After everything was killed, a repeated task starts at attempt 0 again.
        attempt = f"{task.attempt}.{secrets.token_hex(6)}"
        sink_id = rules.sink_id or task.query_id
        writer = PartWriter(
            rules, sink_id, batch_id, task.partition, attempt, owner=_owner(task.query_id)
        )
        part = writer.write(batches)
        return TaskResult(part.message_count, part, writer.bad)

    def commit_parts(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Publish the staged parts, unless they are published; log the rows that were not sent."""
        if self.rules.is_exactly_once:
            publish(self.rules, _parts(messages))
        bad = [message.bad for message in messages if isinstance(message, TaskResult)]
        count = sum(each.count for each in bad)
        if count:
            letters = self.rules.dead_letter_topic
            _log.warning(
                "%d rows%s could not be sent and were %s; the first of them: %s",
                count,
                "" if batch_id is None else f" of batch {batch_id}",
                f"written to the topic {letters!r}" if letters else "dropped",
                next(each.first for each in bad if each.count),
            )

    def abort_parts(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the staged parts, unless they are published."""
        parts = _parts(messages)
        if parts:
            with contextlib.suppress(PipelineError):  # the parts expire at the broker
                abort(self.rules, parts)


def _owner(query_id: str) -> str:
    """Return the owner of the batches, also for foreachBatch in a streaming query."""
    return f"the streaming query {query_id}" if query_id else "batch writes"


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[TaskPart]:
    return [
        message.part for message in messages if isinstance(message, TaskResult) and message.part
    ]


class FrameWriter(DataSourceArrowWriter):
    """Writes a frame."""

    def __init__(self, rules: SinkRules) -> None:
        self._writing = _Writing(rules)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Runs in each task."""
        return self._writing.write_task(iterator, Task.current(), self._writing.rules.batch_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs when all tasks are done."""
        self._writing.commit_parts(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs when a task or the publication failed."""
        self._writing.abort_parts(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, rules: SinkRules) -> None:
        self._writing = _Writing(rules)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Runs in each task."""
        task = Task.current()
        return self._writing.write_task(iterator, task, task.batch_id)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Runs when all tasks of a batch are done; runs again if the batch is repeated."""
        wrong = {part.batch_id for part in _parts(messages)} - {batchId}
        assert not wrong, f"tasks of batch {batchId} said that they were of {wrong}"
        self._writing.commit_parts(messages, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Runs when a task or the publication failed, or seemed to fail."""
        self._writing.abort_parts(messages)
