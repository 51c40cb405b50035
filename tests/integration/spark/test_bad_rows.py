"""The option onBadRow without Spark: what arrives, what becomes a dead letter, what is counted."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.pipeline.sink.writer import Task, TaskResult, _Writing, make_writer
from tests.support.pipeline_broker import PipelineBroker
from tests.support.sink_batches import batches, rules

QUEUES = 2
FAR_MS = 4_000_000_000_000
DELIVERIES = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])


@pytest.fixture(scope="module")
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker(maxMessageSize=1 << 20) as broker:
        yield broker


def keeping(broker: PipelineBroker, topic: str, delivery: str, **given: Any) -> SinkRules:
    broker.create(topic + "-bad", 1)
    named = {"onBadRow": "deadletter", "deadLetterTopic": topic + "-bad"}
    if delivery == "at-least-once":
        named |= {"compressOver": "0"}
    return rules(broker, topic, delivery=delivery, **named | given)


def commit(chosen: SinkRules, rows: Iterator[pa.RecordBatch], batch: int = 0) -> TaskResult:
    writing = _Writing(chosen)
    written = writing.write_task(rows, Task(0, 0, chosen.topic, batch), batch)
    writing.commit_parts([written], batch)
    return written


def rows_of_all_kinds() -> Iterator[pa.RecordBatch]:
    bodies = ["good 0", None, "control", "huge", "late", "no queue", "flag", "large", "good 1"]
    bodies[7] = "large" * 300_000
    count = len(bodies)
    tags: list[str | None] = [None] * count
    tags[2], tags[3] = "\x01", "t" * 40_000
    return batches(
        bodies,  # type: ignore[arg-type]
        tags=pa.array(tags, pa.string()),
        deliverTimestamp=pa.array([FAR_MS if body == "late" else None for body in bodies]),
        queueId=pa.array([9 if body == "no queue" else None for body in bodies], pa.int32()),
        flag=pa.array([2**40 if body == "flag" else 1 for body in bodies]),
    )


@DELIVERIES
def test_each_kind_of_bad_row_becomes_a_dead_letter(
    broker: PipelineBroker, topic: str, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = commit(keeping(broker, topic, delivery), rows_of_all_kinds())
    assert broker.bodies(topic) == ["good 0", "good 1"]
    letters = {message.body[:8].decode(): message for message in broker.stored(topic + "-bad")}
    reasons = {body: letter.properties["RH_BAD_ROW"] for body, letter in letters.items()}
    assert reasons[""].endswith("'body' cannot be sent: it is null")
    assert "character 1 or 2" in reasons["control"]
    assert "have 40" in reasons["huge"]
    assert "timerMaxDelaySec" in reasons["late"]
    assert "for queue 9" in reasons["no queue"]
    assert "'flag' is 1099511627776" in reasons["flag"]
    assert "MESSAGE_ILLEGAL" in reasons["largelar"]
    assert len(letters) == 7
    large = letters["largelar"].body
    assert 100_000 < len(large) <= 1 << 20
    assert large == (b"large" * 300_000)[: len(large)]
    assert {each.properties["RH_BAD_TOPIC"] for each in letters.values()} == {topic}
    assert (written.message_count, written.bad.count) == (9, 7)
    (said,) = caplog.messages
    assert said.startswith("7 rows of batch 0 could not be sent and were written to the topic ")
    assert "the first of them: the column 'body'" in said


@DELIVERIES
def test_dropped_rows_leave_the_others(
    broker: PipelineBroker, topic: str, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    dropping = rules(broker, topic, delivery=delivery, onBadRow="drop")
    written = commit(dropping, rows_of_all_kinds())
    # Compressed, the large one is not too large.
    lost = 6 if delivery == "at-least-once" else 7
    assert len(broker.bodies(topic)) == 9 - lost
    assert (written.message_count, written.bad.count) == (9 - lost, lost)
    assert f"{lost} rows of batch 0 could not be sent and were dropped" in caplog.messages[0]
    written = commit(dropping, batches([None, None]), 1)  # type: ignore[list-item]
    assert (written.message_count, written.bad.count) == (0, 2)
    assert len(broker.bodies(topic)) == 9 - lost


@DELIVERIES
def test_good_rows_are_told_nothing_of(
    broker: PipelineBroker, topic: str, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = commit(keeping(broker, topic, delivery), batches([str(n) for n in range(500)]))
    assert (written.message_count, written.bad.count) == (500, 0)
    assert not caplog.messages
    assert broker.bodies(topic + "-bad") == []


@DELIVERIES
def test_one_late_row_among_many_is_found(
    broker: PipelineBroker, topic: str, delivery: str
) -> None:
    """The broker tells about requests, and it is for us to find the row."""
    bodies = [f"{number:04d}" for number in range(1000)]
    late = pa.array([FAR_MS if number in (17, 998) else None for number in range(1000)])
    chosen = keeping(broker, topic, delivery, batchBytes=20_000)
    written = commit(chosen, batches(bodies, deliverTimestamp=late, queueId=[1] * 1000))
    assert written.bad.count == 2
    assert sorted(broker.bodies(topic + "-bad")) == ["0017", "0998"]
    stored = [message.body.decode() for message in broker.stored(topic)]
    assert stored == [body for body in bodies if body not in ("0017", "0998")]


@DELIVERIES
def test_a_request_that_is_too_large_while_its_rows_are_not(
    broker: PipelineBroker, topic: str, delivery: str
) -> None:
    bodies = [f"{number:02d}" * 30_000 for number in range(30)]
    chosen = keeping(broker, topic, delivery, batchBytes="4m")
    assert commit(chosen, batches(bodies, queueId=[0] * 30)).bad.count == 0
    assert [message.body.decode()[:2] for message in broker.stored(topic)] == [
        body[:2] for body in bodies
    ]


def test_a_batch_that_is_repeated_has_its_dead_letters_once(
    broker: PipelineBroker, topic: str
) -> None:
    chosen = keeping(broker, topic, "exactly-once")
    for _ in range(2):
        commit(chosen, rows_of_all_kinds())
    assert len(broker.bodies(topic + "-bad")) == 7
    assert len(broker.bodies(topic)) == 2


def test_a_dead_letter_topic_that_is_not_there_is_said_before_anything_is_written(
    broker: PipelineBroker, topic: str
) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("body", StringType())])
    from dataclasses import replace

    chosen = replace(
        keeping(broker, topic, "exactly-once", sinkId=topic, retries=0),
        dead_letter_topic=topic + "-nowhere",
        is_streaming=False,
    )
    with pytest.raises(PipelineError, match=topic + "-nowhere"):
        make_writer(schema, chosen, overwrite=False)
