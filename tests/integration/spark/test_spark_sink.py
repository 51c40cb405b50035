"""The sink without Spark: what both ways of delivery do alike, and at least once."""

from typing import Any

import pyarrow as pa
import pytest

from rockhopper.client.errors import BrokerUnreachableError
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.rules import read_rules
from rockhopper.pipeline.sink.writer import Task, _Writing
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.properties import PROPERTY_SHARDING_KEY
from tests.support.pipeline_broker import PipelineBroker
from tests.support.sink_batches import batches, exact, numbered, rules, send, write

QUEUES = 4


def test_everything_is_sent(broker: PipelineBroker, topic: str) -> None:
    small = rules(broker, topic, batchBytes=1000)
    assert send(small, numbered(0, 100), [], numbered(100, 130)) == 130
    assert broker.bodies(topic) == numbered(0, 130)
    assert send(small) == 0


def test_all_that_a_message_has(broker: PipelineBroker, topic: str) -> None:
    everything = rules(broker, topic)
    send(
        everything,
        ["x" * 9000, "plain"],
        tags=["t", None],
        keys=["k1 k2", None],
        properties=pa.array(
            [[("colour", "red"), ("UNIQ_KEY", "no")], None], pa.map_("string", "string")
        ),
        flag=[7, None],
        queueId=[2, 2],
        bornTimestamp=pa.array([123_000, None], pa.timestamp("us", "UTC")),
    )
    first, second = broker.stored(topic)
    assert (first.tags, first.keys, first.flag, first.queue_id) == ("t", ["k1", "k2"], 7, 2)
    assert first.decompressed_body() == b"x" * 9000
    assert len(first.body) < 100
    assert (first.properties["colour"], first.born_time_ms) == ("red", 123)
    assert first.message_id != "no"
    assert (second.body, second.tags, second.queue_id) == (b"plain", None, 2)
    assert second.born_time_ms > 1_700_000_000_000


def test_topics_by_row(broker: PipelineBroker, topic: str) -> None:
    by_row = read_rules({"nameServer": broker.nameserver}, streaming=True)
    send(by_row, ["a", "b", "c"], topic=[topic, topic + "-2", topic])
    assert broker.bodies(topic) == ["a", "c"]
    assert broker.bodies(topic + "-2") == ["b"]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_sharding_key_has_the_queue_that_producers_send_it_to(
    broker: PipelineBroker, topic: str, delivery: str
) -> None:
    keys = [f"customer {number % 7}" for number in range(70)]
    writing = _Writing(rules(broker, topic, delivery=delivery, batchBytes=2000))
    written = writing.write_task(
        batches(numbered(0, 70), shardingKey=keys), Task(0, 0, topic, 0), 0
    )
    writing.commit_parts([written])
    seen: dict[str, list[str]] = {}
    for message in broker.stored(topic):
        key = message.properties[PROPERTY_SHARDING_KEY]
        assert message.queue_id == abs(java_string_hash(key)) % 4
        seen.setdefault(key, []).append(message.body.decode())
    assert len(seen) == 7
    assert all(bodies == sorted(bodies) for bodies in seen.values())


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_messages_for_later(broker: PipelineBroker, topic: str, delivery: str) -> None:
    writing = _Writing(rules(broker, topic, delivery=delivery))
    rows = batches(["now", "later"], delayTimeLevel=[None, 18])
    writing.commit_parts([writing.write_task(rows, Task(0, 0, topic, 0), 0)])
    assert broker.bodies(topic) == ["now"]
    far = pa.array([None, 4_000_000_000_000], pa.int64())
    rows = batches(["now too", "next century"], deliverTimestamp=far)
    with pytest.raises(PipelineError, match=r"(?i)deliver|time|delay"):
        # Brokers refuse what lies beyond timerMaxDelaySec.
        writing.commit_parts([writing.write_task(rows, Task(0, 0, topic, 1), 1)])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_rows_that_the_broker_refuses(broker: PipelineBroker, topic: str, delivery: str) -> None:
    strict = (
        rules(broker, topic, delivery=delivery, compressOver=0)
        if delivery[0] == "a"
        else (rules(broker, topic, delivery=delivery))
    )
    with pytest.raises(PipelineError) as caught:
        write(strict, ["small", "x" * (5 << 20)])
    said = str(caught.value)
    assert repr(topic) in said
    assert str(5 << 20) in said
    assert "correct these rows" in said


def test_queues_that_do_not_exist(broker: PipelineBroker, topic: str) -> None:
    with pytest.raises(PipelineError, match="a row is for queue 9"):
        send(rules(broker, topic), ["a"], queueId=[9])
    with pytest.raises(PipelineError, match="rockhopper topic create"):
        send(rules(broker, topic + "-none"), ["a"], shardingKey=["k"])
    writing = exact(broker, topic)
    with pytest.raises(PipelineError, match="is for queue 9"):
        writing.write_task(batches(["a"], queueId=[9]), Task(0, 0, "", 0), 0)


def test_a_broker_that_is_away_for_a_moment(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rockhopper.client.network.session import Session

    failures = 5

    def failing_first(real: Any) -> Any:
        async def request(session: Any, address: str, code: int, *rest: Any, **named: Any) -> Any:
            nonlocal failures
            if code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SINK_STAGE) and failures:
                failures -= 1
                raise BrokerUnreachableError(f"no connection to {address}")
            return await real(session, address, code, *rest, **named)

        return request

    for name in ("request", "request_json"):
        monkeypatch.setattr(Session, name, failing_first(getattr(Session, name)))
    assert send(rules(broker, topic), numbered(0, 9)) == 9
    assert failures == 0
    failures = 5
    writing = _Writing(rules(broker, topic, delivery="exactly-once", sinkId=topic))
    writing.commit_parts([write(writing.rules, numbered(9, 12))])
    assert broker.bodies(topic) == numbered(0, 12)
    failures = 10**9
    with pytest.raises(PipelineError, match=r"after 3 tries .* check that the broker runs"):
        send(rules(broker, topic, retries=2, sendTimeoutMs=100), ["a", "b"])


def test_a_queue_may_be_chosen(broker: PipelineBroker, topic: str) -> None:
    send(rules(broker, topic), ["a", "b"], queueId=[3, 3], brokerName=["broker-a", None])
    places = {MessageQueue(topic, "broker-a", m.queue_id) for m in broker.stored(topic)}
    assert places == {MessageQueue(topic, "broker-a", 3)}
