"""The sink without Spark, exactly once: what its tasks and its driver do, against real brokers."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from rockhopper.client.errors import BrokerUnreachableError
from rockhopper.pipeline import remote as remote_module
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink import choice
from rockhopper.pipeline.sink.choice import SinkState, choose_broker
from rockhopper.pipeline.sink.home import HOME_FILE, tell_home
from rockhopper.pipeline.sink.rules import SinkRules, read_rules
from rockhopper.pipeline.sink.writer import (
    Task,
    TaskResult,
    _Writing,
    make_stream_writer,
    make_writer,
)
from rockhopper.protocol.codes import RequestCode
from tests.support.features import sinks_of
from tests.support.pipeline_broker import PipelineBroker
from tests.support.refusing_brokers import fail, refuse
from tests.support.sink_batches import batches, exact, numbered, rules, write

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
    assert sinks_of(broker.broker).staged_bytes == 0


def test_a_topic_that_was_made_anew_between_two_batches_is_noticed(
    broker: PipelineBroker, topic: str, tmp_path: Path
) -> None:
    given = {"checkpointLocation": str(tmp_path)}
    writing = exact(broker, topic, **given)
    writing.commit_parts([write(writing.rules, numbered(0, 40))])
    broker.delete(topic)
    broker.create(topic, QUEUES)
    late = [write(writing.rules, numbered(40, 50), batch=1)]
    with pytest.raises(PipelineError, match="was deleted and recreated"):
        writing.commit_parts(late)
    assert broker.bodies(topic) == []
    going_on = exact(broker, topic, failOnDataLoss="false", **given)
    going_on.commit_parts(late)
    assert broker.bodies(topic) == numbered(40, 50)
    writing.commit_parts([write(writing.rules, numbered(50, 60), batch=2)])
    assert broker.bodies(topic) == numbered(40, 60)


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


@pytest.mark.parametrize("rows", [["other"], ["a", "more"]])
def test_a_batch_that_comes_again_with_other_rows_is_refused(
    broker: PipelineBroker, topic: str, rows: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As after a checkpoint that was put back, when more messages have come since."""
    writing = exact(broker, topic)
    writing.commit_parts([write(writing.rules, ["a"], batch=0)])
    with pytest.raises(PipelineError, match=rf"with 1 messages, and now has {len(rows)} others"):
        writing.commit_parts([write(writing.rules, rows, batch=0)])
    lenient = _Writing(dataclasses.replace(writing.rules, fail_on_data_loss=False))
    lenient.commit_parts([write(lenient.rules, rows, batch=0)])
    assert "continuing without them, because failOnDataLoss=false" in caplog.text
    assert broker.bodies(topic) == ["a"]


def test_batches_that_are_missing_in_between_are_noticed(
    broker: PipelineBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after the store of the broker was put back: nobody else knows of batches 1 and 2."""
    writing = exact(broker, topic)
    writing.commit_parts([write(writing.rules, ["a"], batch=0)])
    parts = [write(writing.rules, ["d"], batch=3)]
    with pytest.raises(PipelineError, match="published batch 0, and this is batch 3"):
        writing.commit_parts(parts)
    lenient = _Writing(dataclasses.replace(writing.rules, fail_on_data_loss=False))
    lenient.commit_parts([write(lenient.rules, ["d"], batch=3)])
    assert "continuing without these" in caplog.text
    assert broker.bodies(topic) == ["a", "d"]


def test_an_aborted_batch_leaves_nothing(broker: PipelineBroker, topic: str) -> None:
    writing = exact(broker, topic)
    part = write(writing.rules, numbered(0, 5))
    writing.abort_parts([part, None])
    assert sinks_of(broker.broker).staged_bytes == 0
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


def test_a_batch_is_spread_over_the_brokers_of_its_topic_and_appears_once(
    broker: PipelineBroker, topic: str
) -> None:
    with broker.beside() as other:
        broker.create(topic, 2)

        def run(batch: int, start: int) -> tuple[_Writing, list[TaskResult]]:
            writing = exact(broker, topic)
            parts = [
                write(writing.rules, numbered(start, start + 30), batch=batch),
                write(writing.rules, numbered(start + 30, start + 50), partition=1, batch=batch),
                write(writing.rules, [], partition=2, batch=batch),
            ]
            return writing, parts

        writing, parts = run(0, 0)
        assert broker.bodies(topic) + other.bodies(topic) == []
        writing.commit_parts(parts)
        first, second = broker.bodies(topic), other.bodies(topic)
        assert first
        assert second
        assert sorted(first + second) == numbered(0, 50)
        writing.commit_parts(parts)
        # Spark did not hear of it: it aborts, and repeats the batch with parts of its own.
        writing.abort_parts(parts)
        again, parts = run(0, 0)
        again.commit_parts(parts)
        assert (broker.bodies(topic), other.bodies(topic)) == (first, second)
        writing, parts = run(1, 50)
        writing.commit_parts(parts)
        assert sorted(broker.bodies(topic) + other.bodies(topic)) == numbered(0, 100)
        for each in (broker, other):
            assert sinks_of(each.broker).staged_bytes == 0
            assert sinks_of(each.broker).shared.keeps() == set()
            assert sinks_of(each.broker).home(topic) == "broker-a"


def test_rows_of_a_key_are_in_one_queue_of_all_brokers_in_their_order(
    broker: PipelineBroker, topic: str
) -> None:
    with broker.beside() as other:
        broker.create(topic, 2)
        writing = exact(broker, topic)
        for batch in range(3):
            bodies = numbered(batch * 60, batch * 60 + 60)
            keys = [f"k{int(body) % 7}" for body in bodies]
            rows = batches(bodies, shardingKey=keys)
            part = writing.write_task(rows, Task(0, 0, "query-of-the-test", batch), batch)
            writing.commit_parts([part])
        places: dict[str, set[tuple[str, int]]] = {}
        for name, served in (("broker-a", broker), ("broker-b", other)):
            last: dict[str, int] = {}
            for message in served.stored(topic):
                number = int(message.body)
                key = f"k{number % 7}"
                places.setdefault(key, set()).add((name, message.queue_id))
                assert last.get(key, -1) < number
                last[key] = number
        assert len(places) == 7
        assert all(len(each) == 1 for each in places.values())
        assert len({name for each in places.values() for name, _ in each}) == 2
        assert sorted(broker.bodies(topic) + other.bodies(topic)) == numbered(0, 180)


@pytest.mark.parametrize("fails_at", ["prepare", "decide", "other", "home"])
def test_a_batch_that_fails_at_any_step_is_published_once_when_it_is_repeated(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    codes = {"prepare": RequestCode.SINK_PREPARE, "decide": RequestCode.SINK_DECIDE}
    code = codes.get(fails_at, RequestCode.SINK_PUBLISH)
    begin = remote_module.Remote.begin_request

    def begin_request(remote: Any, name: str, asked: RequestCode, *rest: Any, **more: Any) -> Any:
        is_home = name == "broker-a"
        if asked is not code or is_home is (fails_at in ("prepare", "other")):
            return begin(remote, name, asked, *rest, **more)
        if fails_at == "decide" and not rest[1]:
            return begin(remote, name, asked, *rest, **more)
        failed: Future[Any] = Future()
        failed.set_exception(BrokerUnreachableError(f"{name} is away"))
        return failed

    with broker.beside() as other:
        broker.create(topic, 2)
        writing = exact(broker, topic, **QUICK)
        parts = [write(writing.rules, numbered(0, 40)), write(writing.rules, ["x"], partition=1)]
        with monkeypatch.context() as patched:
            patched.setattr(remote_module.Remote, "begin_request", begin_request)
            with pytest.raises(
                PipelineError, match=r"on broker-., after 2 tries \(broker-. is away"
            ):
                writing.commit_parts(parts)
            writing.abort_parts(parts)
        # The rows come in other tasks, of which one has none.
        again = exact(broker, topic)
        parts = [write(again.rules, ["x", *numbered(0, 40)]), write(again.rules, partition=1)]
        again.commit_parts(parts)
        assert sorted(broker.bodies(topic) + other.bodies(topic)) == [*numbered(0, 40), "x"]
        next_one = exact(broker, topic)
        next_one.commit_parts([write(next_one.rules, ["y"], batch=1)])
        assert len(broker.bodies(topic) + other.bodies(topic)) == 42
        for each in (broker, other):
            assert sinks_of(each.broker).shared.keeps() == set()


def test_a_decided_batch_is_finished_before_the_next_one(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker.beside() as other:
        broker.create(topic, 2)
        writing = exact(broker, topic, **QUICK)
        writing.commit_parts([write(writing.rules, ["first"])])
        parts = [write(writing.rules, numbered(0, 40), batch=1)]
        with monkeypatch.context() as patched:
            fail(patched, RequestCode.SINK_PUBLISH, BrokerUnreachableError)
            with pytest.raises(PipelineError):
                writing.commit_parts(parts)
        writing.commit_parts([write(writing.rules, ["next"], batch=2)])
        found = sorted(broker.bodies(topic) + other.bodies(topic))
        assert found == [*numbered(0, 40), "first", "next"]


def test_a_broker_with_a_share_that_is_away_is_waited_for_and_named(
    broker: PipelineBroker, topic: str
) -> None:
    with broker.beside():
        broker.create(topic, 2)
        writing = exact(broker, topic, **QUICK)
        parts = [write(writing.rules, numbered(0, 40))]
    with pytest.raises(PipelineError, match=r"of batch 0 .* after 2 tries .*broker-b"):
        writing.commit_parts(parts)
    # It has left the name server: the batch is written on the others.
    again = exact(broker, topic)
    again.commit_parts([write(again.rules, numbered(0, 40))])
    assert broker.bodies(topic) == numbered(0, 40)


def test_a_home_that_lost_its_store_is_noticed(broker: PipelineBroker, topic: str) -> None:
    async def lose() -> None:
        sinks_of(broker.broker).purge()

    with broker.beside() as other:
        broker.create(topic, 2)
        writing = exact(broker, topic)
        writing.commit_parts([write(writing.rules, numbered(0, 40))])
        broker.run(lose())
        again = exact(broker, topic)
        found = len(other.bodies(topic))
        with pytest.raises(PipelineError, match=r"broker-b has published batch 0 .* knows nothing"):
            again.commit_parts([write(again.rules, numbered(0, 40))])
        assert len(other.bodies(topic)) == found


def test_a_named_broker_gets_all_rows_of_a_topic_that_others_have_too(
    broker: PipelineBroker, topic: str
) -> None:
    with broker.beside() as other:
        broker.create(topic, 2)
        at_b = exact(broker, topic, broker="broker-b")
        at_b.commit_parts([write(at_b.rules, ["x"], batch=7)])
        assert (broker.bodies(topic), other.bodies(topic)) == ([], ["x"])
        with pytest.raises(PipelineError, match="were published on broker-b, so it cannot"):
            write(exact(broker, topic, broker="broker-a").rules, ["y"], batch=8)
        # Without the option rows go to both, and the home stays.
        free = exact(broker, topic)
        free.commit_parts([write(free.rules, numbered(0, 40), batch=8)])
        assert sorted(broker.bodies(topic) + other.bodies(topic)) == [*numbered(0, 40), "x"]
        homes = {sinks_of(each.broker).home(topic) for each in (broker, other)}
        assert homes == {"broker-b"}
    # It is away now.
    gone = exact(broker, topic, broker="broker-b", **QUICK)
    with pytest.raises(PipelineError, match="is no broker 'broker-b' to publish on: start") as told:
        write(gone.rules, ["y"], batch=9)
    assert "on another a repeated batch would be stored twice" in str(told.value)
    with pytest.raises(PipelineError, match="on broker-b, as broker-a remembers"):
        write(exact(broker, topic, **QUICK).rules, ["y"], batch=9)


def test_a_sink_that_no_broker_remembers_does_not_begin_in_the_midst(
    broker: PipelineBroker, topic: str
) -> None:
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
    assert broker.broker.tables.topics.get(name) is None


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
    monkeypatch.setattr(sinks_of(broker.broker), "home", lambda _: "")
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
        assert sinks_of(broker.broker).home(topic) == "broker-b"
        at_a = exact(broker, topic, broker="broker-a", **QUICK)
        at_a.commit_parts([write(at_a.rules, ["a"])])
        assert (broker.bodies(topic), other.bodies(topic)) == (["a"], [])
        with pytest.raises(
            PipelineError, match="were published on broker-a, so it cannot continue"
        ):
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
            with pytest.raises(PipelineError, match="no connection to broker-"):
                writing.commit_parts(parts[:1])
        assert broker.bodies(topic) == []
        writing.commit_parts(parts[:1])
        fail(monkeypatch, RequestCode.SINK_HOME, cut_off)
        writing.commit_parts(parts[1:])
    assert broker.bodies(topic) == ["0", "1"]


@pytest.mark.parametrize("is_known", [True, False], ids=["cannot be reached", "is not listed"])
def test_a_broker_that_joined_publishes_no_batch_before_it_knows_the_home(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    begin, listed = remote_module.Remote.begin_request, remote_module.Remote.brokers

    def begin_request(remote: Any, name: str, code: RequestCode, *rest: Any, **more: Any) -> Any:
        if (name, code) != ("broker-b", RequestCode.SINK_HOME):
            return begin(remote, name, code, *rest, **more)
        failed: Future[Any] = Future()
        failed.set_exception(BrokerUnreachableError("no connection to broker-b"))
        return failed

    broker.create(topic, 2)
    writing = exact(broker, topic, **QUICK)
    writing.commit_parts([write(writing.rules, ["first"])])
    with broker.beside() as other:
        broker.create(topic, 2)
        parts = [write(writing.rules, numbered(0, 40), batch=1)]
        with monkeypatch.context() as patched:
            if is_known:
                patched.setattr(remote_module.Remote, "begin_request", begin_request)
                with pytest.raises(PipelineError, match="no connection to broker-b"):
                    writing.commit_parts(parts)
            else:
                patched.setattr(
                    remote_module.Remote,
                    "brokers",
                    lambda remote: [each for each in listed(remote) if each.name == "broker-a"],
                )
                writing.commit_parts(parts)
        writing.commit_parts(parts)
        assert sinks_of(other.broker).home(topic) == "broker-a"
        writing.commit_parts([write(writing.rules, ["last"], batch=2)])
        found = sorted(broker.bodies(topic) + other.bodies(topic))
        assert found == [*numbered(0, 40), "first", "last"]


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
        mixed = batches(["c", "d"], topic=[topic, f"{topic}-b"])
        two = by_row.write_task(mixed, Task(3, 0, "q", 0), 0)
        by_row.commit_parts([one, other_one, none, two])
        assert (broker.bodies(topic), other.bodies(f"{topic}-b")) == (["a", "c"], ["b", "d"])


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
