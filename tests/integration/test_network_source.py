"""The network source without Spark: batches, and brokers that go away."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from client.queues import MessageQueue
from pipeline import remote as remote_module
from pipeline.errors import PipelineError
from pipeline.network import discovery
from pipeline.network.rules import read_rules
from pipeline.network.source import NetworkReader
from pipeline.remote import connect
from tests.support.network_queries import Query, numbered, options, read, rows_of
from tests.support.pipeline_broker import PipelineBroker


@pytest.fixture(scope="module")
def shared() -> Iterator[PipelineBroker]:
    with PipelineBroker() as broker:
        yield broker


@pytest.fixture
def topic(shared: PipelineBroker, request: pytest.FixtureRequest) -> str:
    name: str = "T" + str(abs(hash(request.node.nodeid)))
    shared.create(name, 2)
    return name


@pytest.fixture(autouse=True)
def _routes_are_asked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "ROUTES_KEPT_S", 0.0)


def test_everything_that_is_there(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 50), 0)
    shared.send(topic, numbered(50, 60), 1)
    assert read(shared, topic) == numbered(0, 60)
    assert read(shared, topic, minPartitions=7) == numbered(0, 60)
    assert read(shared, topic, pullBatchSize=7, groupIdPrefix="spark") == numbered(0, 60)
    assert read(shared, topic, maxRecordsPerPartition=3, pullMaxBytes=300) == numbered(0, 60)


def test_an_empty_topic(shared: PipelineBroker, topic: str) -> None:
    reader = NetworkReader(read_rules(options(shared, topic), streaming=False))
    partitions = reader.partitions()
    assert len(partitions) == 1
    assert rows_of(reader, partitions) == []
    assert next(iter(reader.read(None))).num_rows == 0  # type: ignore[arg-type]


def test_positions_by_queue(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 20), 0)
    shared.send(topic, numbered(20, 40), 1)
    starting = json.dumps({topic: {"broker-a": {"0": 5, "1": -2}}})
    ending = json.dumps({topic: {"0": 7, "1": 1}})
    found = read(shared, topic, startingOffsets=starting, endingOffsets=ending)
    assert found == ["00005", "00006", "00020"]


def test_positions_by_time(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, ["early"], 0)
    stored_ms = shared.stored(topic)[0].store_time_ms
    while not read(shared, topic, startingTimestamp=stored_ms + 1):
        shared.send(topic, ["late"], 0)
    assert "early" not in read(shared, topic, startingTimestamp=stored_ms + 1)
    assert read(shared, topic, endingTimestamp=stored_ms) == []
    by_queue = json.dumps({topic: {"0": stored_ms + 1}})
    assert "early" not in read(shared, topic, startingOffsetsByTimestamp=by_queue)
    far = stored_ms + 10**9
    assert read(shared, topic, startingTimestamp=far) == []
    with pytest.raises(PipelineError, match="holds no message from"):
        read(shared, topic, startingTimestamp=far, startingOffsetsByTimestampStrategy="error")


def test_times_by_topic_where_brokers_and_queue_counts_differ(
    shared: PipelineBroker, topic: str
) -> None:
    settings = {"role": "broker", "namesrvAddr": shared.nameserver, "brokerName": "broker-b"}
    with PipelineBroker(**settings):
        shared.create(topic, 2)
        shared.create(topic + "-wide", 5)
        shared.send(topic, ["a"], MessageQueue(topic, "broker-a", 1))
        shared.send(topic, ["b"], MessageQueue(topic, "broker-b", 0))
        shared.send(topic + "-wide", ["c"], MessageQueue(topic + "-wide", "broker-b", 4))
        both = {"subscribe": f"{topic},{topic}-wide"}
        far = shared.stored(topic)[0].store_time_ms + 10**9

        def starting(**times: Any) -> list[str]:
            named = {topic + name.replace("_", "-"): at for name, at in times.items()}
            return read(shared, topic, startingOffsetsByTimestamp=json.dumps(named), **both)

        assert starting(**{"": 1}) == ["a", "b", "c"]
        assert starting(**{"": far, "_wide": 1}) == ["c"]
        assert starting(**{"": {"broker-a": far, "broker-b": 1}, "_wide": far}) == ["b"]
        assert starting(**{"": {"broker-b": {"0": far}}}) == ["a", "c"]
        ending = json.dumps({topic: far, topic + "-wide": 0})
        assert read(shared, topic, endingOffsetsByTimestamp=ending, **both) == ["a", "b"]
        with pytest.raises(PipelineError, match="names no broker"):
            starting(**{"": {"0": 1}})


def test_patterns_and_assigned_queues(shared: PipelineBroker, topic: str) -> None:
    shared.create(topic + "-two", 1)
    shared.send(topic, ["a"], 0)
    shared.send(topic, ["b"], 1)
    shared.send(topic + "-two", ["c"], 0)
    assert read(shared, topic, subscribePattern=topic + ".*") == ["a", "b", "c"]
    assert read(shared, topic, subscribe=f"{topic},{topic}-two") == ["a", "b", "c"]
    assert read(shared, topic, assign=json.dumps({topic: {"broker-a": [1]}})) == ["b"]
    assert read(shared, topic, assign=json.dumps({topic: [0], topic + "-two": [0]})) == ["a", "c"]
    for wrong, says in (
        ({topic: [9]}, "names queue 9"),
        ({topic: {"broker-z": [0]}}, "'broker-z'"),
        ({topic: 3}, "set an object"),
    ):
        with pytest.raises(PipelineError, match=says):
            read(shared, topic, assign=json.dumps(wrong))


def test_filters_are_the_brokers(shared: PipelineBroker, topic: str) -> None:
    for number in range(40):
        shared.send(
            topic, [f"{number:02d}"], 0, tags=f"t{number % 4}", properties={"n": str(number)}
        )
    assert read(shared, topic, subExpression="t1") == [f"{n:02d}" for n in range(1, 40, 4)]
    assert read(
        shared, topic, subExpression="t1||t2", endingOffsets=json.dumps({topic: {"0": 4}})
    ) == [
        "01",
        "02",
    ]
    assert read(shared, topic, subExpression="n > 36", filterType="sql92") == ["37", "38", "39"]


def test_messages_of_inner_batches(shared: PipelineBroker, topic: str) -> None:
    name = topic + "-batches"
    shared.create(name, 1, attributes={"queue.type": "BatchCQ"})
    for start in range(0, 60, 20):
        shared.send(name, numbered(start, start + 20), 0)
    assert read(shared, name) == numbered(0, 60)
    starting, ending = json.dumps({name: {"0": 25}}), json.dumps({name: {"0": 52}})
    assert read(shared, name, startingOffsets=starting, endingOffsets=ending) == numbered(25, 52)


def test_a_broker_without_bulk_pulls(
    shared: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.send(topic, numbered(0, 200), 0)
    remote = connect(shared.nameserver, timeout_s=30.0)
    monkeypatch.setattr(remote, "_without_bulk", {shared.broker.address})
    assert read(shared, topic) == numbered(0, 200)


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
    given: dict[str, str], says: str, shared: PipelineBroker, topic: str
) -> None:
    shared.send(topic, numbered(0, 3), 0)
    given = {name: value.replace("TOPIC", topic) for name, value in given.items()}
    with pytest.raises(PipelineError, match=says):
        read(shared, topic, **given)


def test_a_topic_of_nearly_that_name_is_told(shared: PipelineBroker, topic: str) -> None:
    with pytest.raises(PipelineError, match=rf"'{topic}x' \(did you mean .*'{topic}'"):
        read(shared, topic, subscribe=topic + "x")


def test_a_pattern_that_matches_nothing(
    shared: PipelineBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(
        PipelineError, match=rf"subscribePattern='{topic}z\+' matches none .*: corr"
    ):
        read(shared, topic, subscribePattern=topic + "z+")

    query = Query(shared, topic, subscribePattern=topic + "z+", startingOffsets="earliest")
    assert query.batch() == []
    (warning,) = caplog.messages
    assert "matches none of the topics" in warning
    assert warning.endswith("; until then the query waits for topics")
    shared.create(topic + "z", 1)
    shared.send(topic + "z", ["late"], 0)
    assert query.batch() == ["late"]
    assert len(caplog.messages) == 1


def test_offsets_out_of_range_where_loss_is_expected(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 3), 0)
    ending = json.dumps({topic: {"0": 50}})
    assert read(shared, topic, endingOffsets=ending, failOnDataLoss="false") == numbered(0, 3)


def test_messages_that_go_while_they_are_read(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 3), 0)
    for fails in ("true", "false"):
        given = options(shared, topic, failOnDataLoss=fails)
        reader = NetworkReader(read_rules(given, streaming=False))
        partitions = reader.partitions()
        shared.delete(topic)
        shared.create(topic, 2)
        if fails == "true":
            with pytest.raises(PipelineError, match="the topic was deleted since, and perhaps m"):
                rows_of(reader, partitions)
        else:
            assert rows_of(reader, partitions) == []
        shared.send(topic, numbered(0, 3), 0)


# -- several brokers, and brokers that go away -----------------------------------------------------


def test_topics_on_several_brokers(shared: PipelineBroker, topic: str) -> None:
    settings = {"role": "broker", "namesrvAddr": shared.nameserver, "brokerName": "broker-b"}
    with ExitStack() as stack:
        stack.enter_context(PipelineBroker(**settings))
        shared.create(topic, 2)
        for number, broker in enumerate(("broker-a", "broker-b", "broker-b")):
            shared.send(topic, [f"m{number}"], MessageQueue(topic, broker, number % 2))
        assert read(shared, topic) == ["m0", "m1", "m2"]
        starting = json.dumps({topic: {"broker-a": {"0": -1}, "broker-b": {"1": 1}}})
        assert read(shared, topic, startingOffsets=starting) == ["m2"]
        with pytest.raises(PipelineError, match="names no broker"):
            read(shared, topic, startingOffsets=json.dumps({topic: {"0": 1}}))
        query = Query(shared, topic, startingOffsets="earliest")
        assert sorted(query.batch()) == ["m0", "m1", "m2"]
    # A broker that is away takes its queues out of the route; what it had stays where it was.
    shared.send(topic, ["m3"], MessageQueue(topic, "broker-a", 1))
    assert query.batch() == ["m3"]


class Unreliable:
    """Lets the first reads of a remote fail as if its broker were away."""

    def __init__(self, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = failures
        real = remote_module.Remote._read

        async def read_or_fail(remote: Any, *arguments: Any) -> Any:
            if self.left:
                self.left -= 1
                from client.errors import BrokerUnreachableError

                raise BrokerUnreachableError("the connection to 10.0.0.1:10911 is closed")
            return await real(remote, *arguments)

        monkeypatch.setattr(remote_module.Remote, "_read", read_or_fail)


def test_a_broker_that_comes_back(
    shared: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.send(topic, numbered(0, 100), 0)
    away = Unreliable(3, monkeypatch)
    given = {"fetchOffset.numRetries": 3, "fetchOffset.retryIntervalMs": 1, "pullMaxBytes": 2000}
    assert read(shared, topic, **given) == numbered(0, 100)
    assert away.left == 0


def test_a_broker_that_stays_away(
    shared: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.send(topic, numbered(0, 3), 0)
    Unreliable(99, monkeypatch)
    with pytest.raises(PipelineError) as caught:
        read(shared, topic, **{"fetchOffset.numRetries": 2, "fetchOffset.retryIntervalMs": 1})
    said = str(caught.value)
    assert f"{topic}/broker-a/0 could not be read from offset 0 on, after 3 tries" in said
    assert "see that the broker runs" in said


def test_a_name_service_that_is_not_there() -> None:
    given = {"nameServer": "127.0.0.1:1", "subscribe": "T"}
    quick = {"fetchOffset.numRetries": "0"}
    reader = NetworkReader(read_rules(given | quick, streaming=False))
    with pytest.raises(PipelineError, match=r"could not be asked for at 127\.0\.0\.1:1, after 1"):
        reader.partitions()
