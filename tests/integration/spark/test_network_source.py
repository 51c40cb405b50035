"""The network source without Spark: batches, and brokers that go away."""

import asyncio
import json
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline import remote as remote_module
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.planning import NetworkPartition
from rockhopper.pipeline.network.rules import read_rules
from rockhopper.pipeline.network.source import NetworkReader
from rockhopper.pipeline.remote import connect
from tests.support.features import needs
from tests.support.network_queries import Query, numbered, options, read, rows_of
from tests.support.pipeline_broker import PipelineBroker

QUEUES = 2


def test_everything_that_is_there(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 50), 0)
    broker.send(topic, numbered(50, 60), 1)
    assert read(broker, topic) == numbered(0, 60)
    assert read(broker, topic, minPartitions=7) == numbered(0, 60)
    assert read(broker, topic, pullBatchSize=7, groupIdPrefix="spark") == numbered(0, 60)
    assert read(broker, topic, maxRecordsPerPartition=3, pullMaxBytes=300) == numbered(0, 60)


def test_a_topic_of_many_queues_is_read_in_few_batches(broker: PipelineBroker) -> None:
    queues = 200
    broker.run(broker.admin.create_topic("wide", queues=queues))
    for queue_id in range(queues):
        broker.send("wide", numbered(3 * queue_id, 3 * queue_id + 3), queue_id)
    reader = NetworkReader(read_rules(options(broker, "wide"), streaming=False))
    (partition,) = reader.partitions()
    batches = list(reader.read(partition))
    assert [batch.num_rows for batch in batches] == [3 * queues]
    bodies = batches[0].column("body").to_pylist()
    assert [body.decode() for body in bodies] == numbered(0, 3 * queues)
    # A few of them, a filter, and limits that a queue does not fit into.
    starting = json.dumps({"wide": {str(n): n % 3 for n in range(queues)}})
    assert len(read(broker, "wide", startingOffsets=starting)) == 3 * queues - sum(
        n % 3 for n in range(queues)
    )
    assert read(broker, "wide", pullMaxBytes=300) == numbered(0, 3 * queues)
    assert read(broker, "wide", pullBatchSize=2) == numbered(0, 3 * queues)
    assert read(broker, "wide", subExpression="none") == []


@needs("bulk_pull")
def test_what_is_in_queues_that_a_topic_has_left_is_read(broker: PipelineBroker) -> None:
    for topic in ("shrunk", "shrunk-to-one"):
        broker.create(topic, 4)
        for queue in range(4):
            broker.send(topic, numbered(queue, queue + 1), queue)
        assert read(broker, topic) == numbered(0, 4)
        broker.shrink(topic, 1 if topic.endswith("one") else 2)
        assert read(broker, topic) == numbered(0, 4)
        assert read(broker, topic, startingOffsets="committed", groupId="g") == numbered(0, 4)
        assert read(broker, topic, startingTimestamp=1) == numbered(0, 4)
        assert read(broker, topic, assign=json.dumps({topic: [0]})) == numbered(0, 1)


@pytest.mark.slow
def test_ten_thousand_topics_are_looked_at_and_read_in_turns() -> None:
    count = 10_000
    with PipelineBroker() as crowded:

        async def make(names: list[str]) -> None:
            await asyncio.gather(*(crowded.admin.create_topic(name, queues=1) for name in names))

        names = [f"region-{number:05}" for number in range(count)]
        for start in range(0, count, 1000):
            crowded.run(make(names[start : start + 1000]))
        crowded.send("region-09999", ["last"])
        given = {"nameServer": crowded.nameserver, "subscribePattern": "region-.*", "groupId": "g"}
        discovery = Discovery(read_rules(given, streaming=True))
        held = discovery.ranges()
        assert len(held) == count
        assert held.keys() == discovery.remote.committed("g", list(held)).keys()
        assert sum(discovery.remote.offsets_at(list(held), 0).values()) == 0
        discovery.remote.commit("g", discovery.starts(held))
        reader = NetworkReader(read_rules(given, streaming=False))
        assert [row["body"] for row in rows_of(reader, reader.partitions())] == [b"last"]


def planned_and_read(broker: PipelineBroker, topic: str, **given: Any) -> tuple[Any, list[str]]:
    reader = NetworkReader(read_rules(options(broker, topic, **given), streaming=False))
    partitions: Any = reader.partitions()
    ranges = [each for partition in partitions for each in partition.ranges]
    planned = sorted((each.queue.queue_id, each.begin, each.end) for each in ranges)
    rows = rows_of(reader, partitions)
    assert all(list(row) == ["body", "queueId", "queueOffset"] for row in rows)
    return planned, sorted(row["body"].decode() for row in rows)


def test_a_condition_narrows_what_is_read(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 40), 0, keys="A")
    broker.send(topic, numbered(40, 45), 0, keys="AB", tags="t")
    broker.send(topic, numbered(45, 60), 1, keys="B")
    every = [(0, 0, 45), (1, 0, 15)]

    found = planned_and_read(broker, topic, where="queueId = 1 AND queueOffset < 5")
    assert found == ([(1, 0, 15)], numbered(45, 50))
    assert planned_and_read(broker, topic, where="topic = 'another'") == ([], [])
    # In one answer, in several, and where they are not what was asked for.
    limits: list[dict[str, Any]] = [{}, {"pullMaxBytes": 2000}, {"pullBatchSize": 7}]
    for limit in (*limits, {"subExpression": "t"}):
        found = planned_and_read(broker, topic, where="keys = 'AB'", **limit)
        assert found == (every, numbered(40, 45))
    assert planned_and_read(broker, topic, where="keys = 'none'") == (every, [])
    starting = json.dumps({topic: {"0": 44, "1": 0}})
    found = planned_and_read(broker, topic, where="keys = 'AB'", startingOffsets=starting)
    assert found == ([(0, 44, 45), (1, 0, 15)], numbered(44, 45))


def test_a_condition_does_not_hide_that_messages_are_missing(
    broker: PipelineBroker, topic: str
) -> None:
    broker.send(topic, numbered(0, 40), 0, keys="A")
    rules = read_rules(options(broker, topic, where="keys = 'B'"), streaming=False)
    reader = NetworkReader(rules)
    (partition,) = reader.partitions()
    assert isinstance(partition, NetworkPartition)
    (whole,) = partition.ranges
    beyond = NetworkPartition((replace(whole, end=whole.end + 1),))
    with pytest.raises(PipelineError, match=r"does not hold|should have"):
        list(reader.read(beyond))


def test_a_stream_has_a_condition_too(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 10), 0, keys="A")
    broker.send(topic, numbered(10, 12), 1, keys="B")
    query = Query(broker, topic, startingOffsets="earliest", where="keys = 'B'")
    assert query.batch() == numbered(10, 12)
    broker.send(topic, numbered(12, 13), 0, keys="B")
    assert query.batch() == numbered(12, 13)
    assert query.batch() == []


def test_offsets_of_a_topic_that_was_made_anew(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 5), 0)
    name = broker.broker.config.broker_name
    ids = json.dumps({topic: {name: "another"}})
    offsets = json.dumps({topic: {name: {"0": 3, "1": 0}}})
    with pytest.raises(PipelineError, match="was deleted and recreated"):
        read(broker, topic, topicIds=ids, startingOffsets=offsets)
    given = {"topicIds": ids, "startingOffsets": offsets, "failOnDataLoss": "false"}
    assert read(broker, topic, **given) == numbered(0, 5)
    assert read(broker, topic, topicIds="{}", startingOffsets=offsets) == numbered(3, 5)
    with pytest.raises(PipelineError, match="leave topicIds out"):
        read_rules(options(broker, topic, topicIds=ids), streaming=True)


def test_an_empty_topic(broker: PipelineBroker, topic: str) -> None:
    reader = NetworkReader(read_rules(options(broker, topic), streaming=False))
    partitions = reader.partitions()
    assert len(partitions) == 1
    assert rows_of(reader, partitions) == []
    assert next(iter(reader.read(None))).num_rows == 0  # type: ignore[arg-type]


def test_positions_by_queue(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 20), 0)
    broker.send(topic, numbered(20, 40), 1)
    starting = json.dumps({topic: {"broker-a": {"0": 5, "1": -2}}})
    ending = json.dumps({topic: {"0": 7, "1": 1}})
    found = read(broker, topic, startingOffsets=starting, endingOffsets=ending)
    assert found == ["00005", "00006", "00020"]


def test_positions_by_time(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, ["early"], 0)
    stored_ms = broker.stored(topic)[0].store_time_ms
    while not read(broker, topic, startingTimestamp=stored_ms + 1):
        broker.send(topic, ["late"], 0)
    assert "early" not in read(broker, topic, startingTimestamp=stored_ms + 1)
    assert read(broker, topic, endingTimestamp=stored_ms) == []
    by_queue = json.dumps({topic: {"0": stored_ms + 1}})
    assert "early" not in read(broker, topic, startingOffsetsByTimestamp=by_queue)
    far = stored_ms + 10**9
    assert read(broker, topic, startingTimestamp=far) == []
    with pytest.raises(PipelineError, match="holds no message from"):
        read(broker, topic, startingTimestamp=far, startingOffsetsByTimestampStrategy="error")


def test_times_by_topic_where_brokers_and_queue_counts_differ(
    broker: PipelineBroker, topic: str
) -> None:
    with broker.beside():
        broker.create(topic, 2)
        broker.create(topic + "-wide", 5)
        broker.send(topic, ["a"], MessageQueue(topic, "broker-a", 1))
        broker.send(topic, ["b"], MessageQueue(topic, "broker-b", 0))
        broker.send(topic + "-wide", ["c"], MessageQueue(topic + "-wide", "broker-b", 4))
        both = {"subscribe": f"{topic},{topic}-wide"}
        far = broker.stored(topic)[0].store_time_ms + 10**9

        def starting(**times: Any) -> list[str]:
            named = {topic + name.replace("_", "-"): at for name, at in times.items()}
            return read(broker, topic, startingOffsetsByTimestamp=json.dumps(named), **both)

        assert starting(**{"": 1}) == ["a", "b", "c"]
        assert starting(**{"": far, "_wide": 1}) == ["c"]
        assert starting(**{"": {"broker-a": far, "broker-b": 1}, "_wide": far}) == ["b"]
        assert starting(**{"": {"broker-b": {"0": far}}}) == ["a", "c"]
        ending = json.dumps({topic: far, topic + "-wide": 0})
        assert read(broker, topic, endingOffsetsByTimestamp=ending, **both) == ["a", "b"]
        with pytest.raises(PipelineError, match="names no broker"):
            starting(**{"": {"0": 1}})


def test_patterns_and_assigned_queues(broker: PipelineBroker, topic: str) -> None:
    broker.create(topic + "-two", 1)
    broker.send(topic, ["a"], 0)
    broker.send(topic, ["b"], 1)
    broker.send(topic + "-two", ["c"], 0)
    assert read(broker, topic, subscribePattern=topic + ".*") == ["a", "b", "c"]
    assert read(broker, topic, subscribe=f"{topic},{topic}-two") == ["a", "b", "c"]
    assert read(broker, topic, assign=json.dumps({topic: {"broker-a": [1]}})) == ["b"]
    assert read(broker, topic, assign=json.dumps({topic: [0], topic + "-two": [0]})) == ["a", "c"]
    for wrong, says in (
        ({topic: [9]}, "names queue 9"),
        ({topic: {"broker-z": [0]}}, "'broker-z'"),
        ({topic: 3}, "set an object"),
    ):
        with pytest.raises(PipelineError, match=says):
            read(broker, topic, assign=json.dumps(wrong))


def test_filters_are_the_brokers(broker: PipelineBroker, topic: str) -> None:
    for number in range(40):
        broker.send(
            topic, [f"{number:02d}"], 0, tags=f"t{number % 4}", properties={"n": str(number)}
        )
    assert read(broker, topic, subExpression="t1") == [f"{n:02d}" for n in range(1, 40, 4)]
    assert read(
        broker, topic, subExpression="t1||t2", endingOffsets=json.dumps({topic: {"0": 4}})
    ) == [
        "01",
        "02",
    ]
    assert read(broker, topic, subExpression="n > 36", filterType="sql92") == ["37", "38", "39"]


def test_messages_of_inner_batches(broker: PipelineBroker, topic: str) -> None:
    name = topic + "-batches"
    broker.create(name, 1, attributes={"queue.type": "BatchCQ"})
    for start in range(0, 60, 20):
        broker.send(name, numbered(start, start + 20), 0)
    assert read(broker, name) == numbered(0, 60)
    starting, ending = json.dumps({name: {"0": 25}}), json.dumps({name: {"0": 52}})
    assert read(broker, name, startingOffsets=starting, endingOffsets=ending) == numbered(25, 52)


def test_a_broker_without_bulk_pulls(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(topic, numbered(0, 200), 0)
    remote = connect(broker.nameserver, timeout_s=30.0)
    monkeypatch.setattr(remote, "without_bulk", {broker.broker.address})
    assert read(broker, topic) == numbered(0, 200)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "nowhere"}, "knows no topic 'nowhere'"),
        ({"startingOffsets": '{"TOPIC": {"0": 99}}'}, "goes from offset 0 to 3"),
        ({"endingOffsets": '{"TOPIC": {"0": 4}}'}, "goes from offset 0 to 3"),
        (
            {"startingOffsets": '{"TOPIC": {"0": 3}}', "endingOffsets": '{"TOPIC": {"0": 2}}'},
            "which is before it",
        ),
        ({"endingOffsets": '{"TOPIC": {"7": 4}}'}, "names queue 7"),
    ],
)
def test_positions_that_cannot_be(
    given: dict[str, str], says: str, broker: PipelineBroker, topic: str
) -> None:
    broker.send(topic, numbered(0, 3), 0)
    given = {name: value.replace("TOPIC", topic) for name, value in given.items()}
    with pytest.raises(PipelineError, match=says):
        read(broker, topic, **given)


def test_a_topic_of_nearly_that_name_is_told(broker: PipelineBroker, topic: str) -> None:
    with pytest.raises(PipelineError, match=rf"'{topic}x' \(did you mean .*'{topic}'"):
        read(broker, topic, subscribe=topic + "x")


def test_a_pattern_that_matches_nothing(
    broker: PipelineBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(
        PipelineError, match=rf"subscribePattern='{topic}z\+' matches none .*: corr"
    ):
        read(broker, topic, subscribePattern=topic + "z+")

    query = Query(broker, topic, subscribePattern=topic + "z+", startingOffsets="earliest")
    assert query.batch() == []
    (warning,) = caplog.messages
    assert "matches none of the topics" in warning
    assert warning.endswith("; until then the query waits for topics")
    broker.create(topic + "z", 1)
    broker.send(topic + "z", ["late"], 0)
    assert query.batch() == ["late"]
    assert len(caplog.messages) == 1


def test_offsets_out_of_range_where_loss_is_expected(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 3), 0)
    ending = json.dumps({topic: {"0": 50}})
    assert read(broker, topic, endingOffsets=ending, failOnDataLoss="false") == numbered(0, 3)


@needs("bulk_pull")
def test_messages_that_go_while_they_are_read(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 3), 0)
    for fails in ("true", "false"):
        given = options(broker, topic, failOnDataLoss=fails)
        reader = NetworkReader(read_rules(given, streaming=False))
        partitions = reader.partitions()
        broker.delete(topic)
        broker.create(topic, 2)
        if fails == "true":
            with pytest.raises(PipelineError, match="the topic was deleted since, and perhaps r"):
                rows_of(reader, partitions)
        else:
            assert rows_of(reader, partitions) == []
        broker.send(topic, numbered(0, 3), 0)


def test_topics_on_several_brokers(broker: PipelineBroker, topic: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(broker.beside())
        broker.create(topic, 2)
        for number, name in enumerate(("broker-a", "broker-b", "broker-b")):
            broker.send(topic, [f"m{number}"], MessageQueue(topic, name, number % 2))
        assert read(broker, topic) == ["m0", "m1", "m2"]
        starting = json.dumps({topic: {"broker-a": {"0": -1}, "broker-b": {"1": 1}}})
        assert read(broker, topic, startingOffsets=starting) == ["m2"]
        with pytest.raises(PipelineError, match="names no broker"):
            read(broker, topic, startingOffsets=json.dumps({topic: {"0": 1}}))
        query = Query(broker, topic, startingOffsets="earliest")
        assert sorted(query.batch()) == ["m0", "m1", "m2"]
    # A broker that is away takes its queues out of the route; what it had stays where it was.
    broker.send(topic, ["m3"], MessageQueue(topic, "broker-a", 1))
    assert query.batch() == ["m3"]


class Unreliable:
    """Lets the first reads of a remote fail as if its broker were away."""

    def __init__(self, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = failures
        real = remote_module.Remote._read

        async def read_or_fail(remote: Any, *arguments: Any) -> Any:
            if self.left:
                self.left -= 1
                from rockhopper.client.errors import BrokerUnreachableError

                raise BrokerUnreachableError("the connection to 10.0.0.1:10911 is closed")
            return await real(remote, *arguments)

        monkeypatch.setattr(remote_module.Remote, "_read", read_or_fail)


def test_a_broker_that_comes_back(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(topic, numbered(0, 100), 0)
    away = Unreliable(3, monkeypatch)
    given = {"fetchOffset.numRetries": 3, "fetchOffset.retryIntervalMs": 1, "pullMaxBytes": 2000}
    assert read(broker, topic, **given) == numbered(0, 100)
    assert away.left == 0


def test_a_broker_that_stays_away(
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(topic, numbered(0, 3), 0)
    Unreliable(99, monkeypatch)
    with pytest.raises(PipelineError) as caught:
        read(broker, topic, **{"fetchOffset.numRetries": 2, "fetchOffset.retryIntervalMs": 1})
    said = str(caught.value)
    assert f"{topic}/broker-a/0 could not be read from offset 0 on, after 3 tries" in said
    assert "check that the broker runs" in said


def test_a_name_service_that_is_not_there() -> None:
    given = {"nameServer": "127.0.0.1:1", "subscribe": "T"}
    quick = {"fetchOffset.numRetries": "0"}
    reader = NetworkReader(read_rules(given | quick, streaming=False))
    with pytest.raises(PipelineError, match=r"cannot query the .* at 127\.0\.0\.1:1, after 1"):
        reader.partitions()
