"""The sink without Spark, exactly once: what its tasks and its driver do, against real brokers."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from rockhopper.client.errors import BrokerUnreachableError
from rockhopper.pipeline import remote as remote_module
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink import choice, staging
from rockhopper.pipeline.sink.choice import SinkState, choose_broker
from rockhopper.pipeline.sink.home import HOME_FILE, tell_home
from rockhopper.pipeline.sink.rules import SinkRules, read_rules
from rockhopper.pipeline.sink.writer import Task, Written, _Writing, make_stream_writer, make_writer
from rockhopper.protocol.codes import RequestCode
from tests.support.pipeline_broker import PipelineBroker
from tests.support.refusing_brokers import fail, refuse
from tests.support.sink_batches import batches, exact, numbered, rules, send, write

QUEUES = 4


def test_a_batch_appears_when_it_is_committed_and_once(broker: PipelineBroker, topic: str) -> None:
    writing = exact(broker, topic)
    parts = [
        write(writing.rules, numbered(0, 60), numbered(60, 100)),
        write(writing.rules, [], partition=1),
        write(writing.rules, numbered(100, 130), partition=2),
    ]
    assert broker.bodies(topic) == []
    writing.commit_parts(parts)
    assert broker.bodies(topic) == numbered(0, 130)
    writing.commit_parts(parts)
    assert broker.bodies(topic) == numbered(0, 130)


def test_a_failure_after_publishing_repeats_the_batch_and_stores_nothing_twice(
    broker: PipelineBroker, topic: str
) -> None:
    for batch in range(3):
        bodies = numbered(batch * 50, batch * 50 + 50)
        parts = [write(exact(broker, topic).rules, bodies, batch=batch)]
        exact(broker, topic).commit_parts(parts)
        # Spark was told that publishing failed: it aborts, and runs the batch again from the start.
        exact(broker, topic).abort_parts(parts)
        again = [write(exact(broker, topic).rules, bodies, batch=batch)]
        exact(broker, topic).commit_parts(again)
    assert broker.bodies(topic) == numbered(0, 150)
    ids = [message.message_id for message in broker.stored(topic)]
    assert max(Counter(ids).values()) == 1


def test_what_failed_tasks_staged_is_never_seen(broker: PipelineBroker, topic: str) -> None:
    writing = exact(broker, topic)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(numbered(0, 40))
        raise OSError("the disk of the executor is full")

    with pytest.raises(OSError, match="executor"):
        writing.write_task(rows(), Task(0, 0, "", 0), 0)
    killed = write(writing.rules, ["of a query that was killed"])
    good = write(writing.rules, numbered(0, 40))
    assert killed.part is not None
    assert good.part is not None
    assert killed.part.name != good.part.name
    writing.commit_parts([good])
    assert broker.bodies(topic) == numbered(0, 40)
    assert broker.broker.sinks.staged_bytes == 0


def test_another_checkpoint_under_the_same_id_is_noticed(
    broker: PipelineBroker, topic: str
) -> None:
    for batch in range(3):
        writing = exact(broker, topic)
        writing.commit_parts([write(writing.rules, [str(batch)], batch=batch)])
    with pytest.raises(PipelineError, match="belongs to another checkpoint"):
        write(exact(broker, topic).rules, ["new"], batch=0)
    assert broker.bodies(topic) == ["0", "1", "2"]


def test_a_frame_written_again_adds_nothing_and_says_so(
    broker: PipelineBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"nameServer": broker.nameserver, "topic": topic, "delivery": "exactly-once"}
    schema = StructType([StructField("body", StringType())])

    def save(body: str, batch_id: int) -> None:
        numbered_rules = read_rules(
            given | {"sinkId": topic, "batchId": str(batch_id)}, streaming=False
        )
        make_writer(schema, numbered_rules, overwrite=False)
        writing = _Writing(numbered_rules)
        writing.commit_parts([write(numbered_rules, [body], batch=batch_id)])

    save("a", 0)
    save("b", 4)
    assert not caplog.messages
    save("b", 4)
    assert broker.bodies(topic) == ["a", "b"]
    (said,) = caplog.messages
    assert f"the sink {topic!r} has published batch 4 before" in said
    assert "set batchId to 5 or more" in said
    with pytest.raises(PipelineError, match=r"published batch 4, and this is batch 3: .* to 5 or"):
        save("c", 3)
    assert broker.bodies(topic) == ["a", "b"]


def test_an_aborted_batch_leaves_nothing(broker: PipelineBroker, topic: str) -> None:
    writing = exact(broker, topic)
    part = write(writing.rules, numbered(0, 5))
    writing.abort_parts([part, None])
    assert broker.broker.sinks.staged_bytes == 0
    with pytest.raises(PipelineError, match=r"batch 0 of the sink .* could not be published"):
        writing.commit_parts([part])
    writing.abort_parts([None])
    writing.commit_parts([])


def test_a_task_that_does_not_know_its_batch_writes_nothing(
    broker: PipelineBroker, topic: str
) -> None:
    writing = exact(broker, topic)
    with pytest.raises(PipelineError, match="foreachBatch"):
        writing.write_task(batches(["a"]), Task(0, 0, "query", -1), -1)


def test_another_broker_that_is_away_matters_where_it_may_have_the_sink(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = exact(broker, topic)
    writing.commit_parts([write(writing.rules, ["a"])])
    quick = rules(broker, topic, delivery="exactly-once", retries=1)
    real = choice.sink_state

    def sink_state(remote: Any, name: str, sink_id: str) -> SinkState | None:
        if name == "broker-a":
            return real(remote, name, sink_id)
        raise PipelineError("it is away") from BrokerUnreachableError("away")

    with broker.beside():
        monkeypatch.setattr(choice, "sink_state", sink_state)
        assert choose_broker(quick, topic, 1, topics=[topic]) == "broker-a"
        with pytest.raises(PipelineError, match="found no broker to publish on, after 2 tries"):
            choose_broker(quick, "a sink that nobody knows", topics=[topic])


def test_ids_of_a_repeated_batch_are_the_same(broker: PipelineBroker, topic: str) -> None:
    for name in ("-a", "-b"):
        broker.create(topic + name, 1)
        writing = exact(broker, topic + name, sinkId=f"same {name[:1]}", broker="broker-a")
        part = write(writing.rules, numbered(0, 9), batch=0 if name == "-a" else 1)
        writing.commit_parts([part])
    first, second = ({m.message_id for m in broker.stored(topic + name)} for name in ("-a", "-b"))
    assert len(first) == len(second) == 9
    assert not first & second


QUICK = {"retries": 1, "retryIntervalMs": 1}


def test_a_topic_on_two_brokers_is_refused_from_the_first_batch_on(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker.beside() as other:
        broker.create(topic, 2)
        for streaming in (True, False):
            given = {"topic": topic, "delivery": "exactly-once", "sinkId": topic}
            asked = read_rules({"nameServer": broker.nameserver} | given, streaming=streaming)
            with pytest.raises(PipelineError, match=r"on the brokers broker-a, broker-b, and a ba"):
                write(asked, ["a"])
            with pytest.raises(PipelineError, match=r"name that one with the option broker"):
                _check_writer(asked)
        assert send(rules(broker, topic), numbered(0, 9)) == 9
        assert sorted(broker.bodies(topic) + other.bodies(topic)) == numbered(0, 9)

        at_b = exact(broker, topic, broker="broker-b")
        at_b.commit_parts([write(at_b.rules, ["x"], batch=7)])
        assert "x" in other.bodies(topic)
        # Neither without the option nor with another name may it go on elsewhere.
        with pytest.raises(PipelineError, match="broker-a, broker-b, and a batch"):
            write(exact(broker, topic).rules, ["y"], batch=8)
        with pytest.raises(PipelineError, match="were published on broker-b, so it cannot"):
            write(exact(broker, topic, broker="broker-a").rules, ["y"], batch=8)
        part = write(at_b.rules, ["y"], batch=8)
        moved = Written(1, None if part.part is None else _elsewhere(part.part))
        with pytest.raises(PipelineError, match="did not agree on a broker"):
            at_b.commit_parts([part, moved])
    # It is away now.
    gone = exact(broker, topic, broker="broker-b", **QUICK)
    with pytest.raises(PipelineError, match="is no broker 'broker-b' to publish on: start") as told:
        write(gone.rules, ["y"], batch=8)
    assert "on another a repeated batch would be stored twice" in str(told.value)
    with pytest.raises(PipelineError, match="on broker-b, as broker-a remembers"):
        write(exact(broker, topic, **QUICK).rules, ["y"], batch=8)
    # A sink that was begun before brokers told each other.
    monkeypatch.setattr(broker.broker.sinks, "home", lambda _: "")
    with pytest.raises(PipelineError, match="start the broker that has its earlier batches"):
        write(exact(broker, topic, **QUICK).rules, ["y"], batch=8)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_topic_on_one_of_two_brokers_goes_nowhere_else(
    broker: PipelineBroker, topic: str, streaming: bool
) -> None:
    name = f"{topic}-only-b"
    given = {"topic": name, "delivery": "exactly-once", "sinkId": name, "retries": "1"}
    given |= {"nameServer": broker.nameserver, "retryIntervalMs": "1"}
    asked = read_rules(given, streaming=streaming)
    with broker.beside() as other:
        with pytest.raises(PipelineError, match="exactly-once does not do by itself"):
            write(asked, ["early"])
        other.run(other.admin.create_topic(name, queues=2, broker="broker-b"))
        parts = [write(asked, numbered(0, 50))]
        _Writing(asked).commit_parts(parts)
        assert other.bodies(name) == numbered(0, 50)
        assert broker.bodies(name) == []
    # The driver died before Spark noted batch 0, and broker-b is away.
    with pytest.raises(PipelineError, match=rf"takes messages for the topic '{name}': start its"):
        _Writing(asked).commit_parts([write(asked, numbered(0, 50))])
    assert broker.broker.topics.get(name) is None


def test_the_checkpoint_knows_the_broker_that_is_away(
    broker: PipelineBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{topic}-anywhere"
    given = {"sinkId": topic, "checkpointLocation": tmp_path.as_uri(), "topic": name}
    writing = exact(broker, topic, **given, **QUICK)
    with broker.beside() as other:
        other.run(other.admin.create_topic(name, queues=2, broker="broker-b"))
        writing.commit_parts([write(writing.rules, ["a"])])
        assert other.bodies(name) == ["a"]
    assert (tmp_path / HOME_FILE).exists()
    broker.create(name, 2)
    monkeypatch.setattr(broker.broker.sinks, "home", lambda _: "")
    with pytest.raises(PipelineError, match=r"were published on broker-b, as .*: start broker-b"):
        writing.commit_parts([write(writing.rules, ["a"])])
    assert broker.bodies(name) == []


def test_the_other_broker_knows_the_one_that_is_away(broker: PipelineBroker, topic: str) -> None:
    given = {"nameServer": broker.nameserver, "topic": topic, "delivery": "exactly-once"}
    given |= {"sinkId": f"{topic} ä/\n", "retries": "1", "retryIntervalMs": "1"}
    at_a, at_b = (
        read_rules(given | {"broker": name}, streaming=False) for name in ("broker-a", "broker-b")
    )
    with broker.beside():
        broker.create(topic, 2)
        _check_writer(at_b)
        _Writing(at_b).commit_parts([write(at_b, ["a"])])
    # The driver died before it knew, and another broker is named now.
    with pytest.raises(PipelineError, match="published on broker-b, as broker-a remembers, so it"):
        _check_writer(at_a)
    with pytest.raises(PipelineError, match="set another sinkId"):
        write(at_a, ["a"])
    assert broker.bodies(topic) == []


def test_a_broker_that_published_nothing_says_so_itself(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker.beside() as other:
        broker.create(topic, 2)
        at_b = exact(broker, topic, broker="broker-b", **QUICK)
        part = write(at_b.rules, ["a"])
        at_b.abort_parts([part])
        with pytest.raises(PipelineError, match="could not be published"):
            at_b.commit_parts([part])
        assert broker.broker.sinks.home(topic) == "broker-b"
        at_a = exact(broker, topic, broker="broker-a", **QUICK)
        at_a.commit_parts([write(at_a.rules, ["a"])])
        assert (broker.bodies(topic), other.bodies(topic)) == (["a"], [])
        with pytest.raises(PipelineError, match="were published on broker-a, so it cannot go on"):
            write(at_b.rules, ["a"])
        # Asked by two drivers at once, the broker itself refuses.
        with pytest.raises(PipelineError, match="has published batch 0 here, not on broker-b"):
            tell_home(remote_module.connect(broker.nameserver), topic, "broker-b")


def test_a_first_batch_waits_until_the_other_broker_is_told(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(name: str) -> Exception:
        return BrokerUnreachableError(f"no connection to {name}")

    with broker.beside():
        broker.create(topic, 2)
        writing = exact(broker, topic, broker="broker-a", **QUICK)
        parts = [write(writing.rules, [str(batch)], batch=batch) for batch in range(2)]
        with monkeypatch.context() as patched:
            fail(patched, RequestCode.SINK_HOME, cut_off)
            with pytest.raises(PipelineError, match="no connection to broker-b"):
                writing.commit_parts(parts[:1])
        assert broker.bodies(topic) == []
        writing.commit_parts(parts[:1])
        fail(monkeypatch, RequestCode.SINK_HOME, cut_off)
        writing.commit_parts(parts[1:])
    assert broker.bodies(topic) == ["0", "1"]


def test_rows_for_topics_on_different_brokers(broker: PipelineBroker, topic: str) -> None:
    by_row = _Writing(
        read_rules(
            {"nameServer": broker.nameserver, "delivery": "exactly-once", "sinkId": topic},
            streaming=True,
        )
    )
    with broker.beside() as other:
        other.run(other.admin.create_topic(f"{topic}-b", queues=1, broker="broker-b"))
        one = by_row.write_task(batches(["a"], topic=[topic]), Task(0, 0, "q", 0), 0)
        other_one = by_row.write_task(batches(["b"], topic=[f"{topic}-b"]), Task(1, 0, "q", 0), 0)
        none = by_row.write_task(batches([]), Task(2, 0, "q", 0), 0)
        with pytest.raises(PipelineError, match="did not agree on a broker"):
            by_row.commit_parts([one, other_one, none])
        mixed = batches(["a", "b"], topic=[topic, f"{topic}-b"])
        with pytest.raises(PipelineError, match="with a sink for each of these topics"):
            by_row.write_task(mixed, Task(0, 0, "q", 0), 0)
        one_by_one = (row for name in (topic, f"{topic}-b") for row in batches(["a"], topic=[name]))
        with pytest.raises(PipelineError, match="are on the brokers broker-a and broker-b, and"):
            by_row.write_task(one_by_one, Task(0, 0, "q", 0), 0)
        by_row.commit_parts([one, none])
    assert broker.bodies(topic) == ["a"]


def test_two_checkpoints_under_one_id(broker: PipelineBroker, topic: str) -> None:
    writing = exact(broker, topic)

    def run(query: str, body: str) -> None:
        part = writing.write_task(batches([body]), Task(0, 0, query, 0), 0)
        writing.commit_parts([part])

    run("first", "a")
    run("first", "a")
    with pytest.raises(PipelineError, match="has batches of the streaming query first, and this i"):
        run("second", "b")
    with pytest.raises(PipelineError, match="and this is batch writes, whose batches have the sam"):
        run("", "c")
    assert broker.bodies(topic) == ["a"]


def _check_writer(asked: SinkRules) -> None:
    schema = StructType([StructField("body", StringType())])
    make = make_stream_writer if asked.is_streaming else make_writer
    make(schema, asked, overwrite=False)


def _elsewhere(part: staging.StagedPart) -> staging.StagedPart:
    return staging.StagedPart(
        part.sink_id, part.batch_id, "broker-a", part.name, part.partition, part.message_count
    )


def test_apache_brokers_are_told_apart(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, RequestCode.SINK_STATUS)
    with pytest.raises(PipelineError, match="set delivery=at-least-once"):
        choose_broker(rules(broker, topic), topic)
    with pytest.raises(PipelineError, match="needs Rockhopper, and broker-a cannot"):
        choose_broker(rules(broker, topic, delivery="exactly-once", broker="broker-a"), topic)


@pytest.mark.parametrize("option", [True, False])
def test_the_first_batch_with_rows_is_not_the_first(
    broker: PipelineBroker, topic: str, option: bool
) -> None:
    given = {"nameServer": broker.nameserver, "delivery": "exactly-once", "sinkId": f"late-{topic}"}
    asked = read_rules(given | ({"topic": topic} if option else {}), streaming=True)
    writing = _Writing(asked)
    writing.commit_parts([write(asked), write(asked, partition=1)])
    rows = batches(["a"], **({} if option else {"topic": [topic]}))
    writing.commit_parts(
        [writing.write_task(rows, Task(0, 0, "query-of-the-test", 1), 1), write(asked, batch=1)]
    )
    assert broker.bodies(topic) == ["a"]
