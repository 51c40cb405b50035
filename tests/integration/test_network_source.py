"""The network source without Spark: its readers' methods, called as Spark calls them."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker import Broker
from broker.broker import TEMPORARY_SETTINGS
from broker.config_file import build_config
from client.queues import MessageQueue
from pipeline import remote as remote_module
from pipeline.errors import PipelineError
from pipeline.network import discovery
from pipeline.network.rules import read_rules
from pipeline.network.source import NetworkReader, NetworkStreamReader
from pipeline.remote import connect
from protocol.codes import RequestCode
from tests.support.pipeline_broker import PipelineBroker
from tests.support.remade_topics import remake, without_ids

ALL = ReadAllAvailable()


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


def options(broker: PipelineBroker, topic: str, **given: Any) -> dict[str, str]:
    base = {"nameServer": broker.nameserver, "columns": "body,queueId,queueOffset"}
    if not any(name in given for name in ("subscribe", "subscribePattern", "assign")):
        base["subscribe"] = topic
    return base | {name: str(value) for name, value in given.items()}


def rows_of(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    return [
        row
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def read(broker: PipelineBroker, topic: str, **given: Any) -> list[str]:
    """What a batch reads: the bodies, sorted."""
    reader = NetworkReader(read_rules(options(broker, topic, **given), streaming=False))
    return sorted(row["body"].decode() for row in rows_of(reader, reader.partitions()))


class Query:
    """Calls a stream's reader as Spark does, and keeps a checkpoint."""

    def __init__(self, broker: PipelineBroker, topic: str, **given: Any) -> None:
        self._given = options(broker, topic, **given)
        self.planned: dict[str, Any] | None = None
        self.done: dict[str, Any] | None = None
        self.bodies: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Begin again with what the checkpoint says."""
        self.reader = NetworkStreamReader(read_rules(self._given, streaming=True))
        self.reader.getDefaultReadLimit()
        if self.planned is not None and self.planned != self.done:
            self._run()

    def plan(self) -> bool:
        """Write down where the next batch ends; False if there is nothing new."""
        first = self.done is None
        start = self.done or self.reader.initialOffset()
        limit = self.reader.getDefaultReadLimit()
        self.planned = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        return first or json.dumps(self.planned) != json.dumps(self.done)

    def _run(self) -> list[str]:
        assert self.planned is not None
        start = self.reader.initialOffset() if self.done is None else self.done
        partitions = self.reader.partitions(start, self.planned)
        found = [row["body"].decode() for row in rows_of(self.reader, partitions)]
        self.bodies += found
        self.done = self.planned
        return found

    def batch(self) -> list[str]:
        """The next batch, empty if there is nothing new."""
        return self._run() if self.plan() else []


def numbered(start: int, end: int) -> list[str]:
    return [f"{number:05d}" for number in range(start, end)]


# -- batches ---------------------------------------------------------------------------------------


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


# -- streams ---------------------------------------------------------------------------------------


def test_latest_under_a_live_producer_loses_nothing(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, ["before"], 0)
    query = Query(shared, topic)
    query.reader.initialOffset()
    shared.send(topic, numbered(0, 5), 0)
    assert query.plan()
    shared.send(topic, numbered(5, 9), 1)
    query.restart()  # the first batch was planned and not finished
    assert query.bodies == numbered(0, 5)
    shared.send(topic, numbered(9, 12), 0)
    assert sorted(query.batch()) == numbered(5, 12)
    query.restart()
    assert query.batch() == []
    assert sorted(query.bodies) == numbered(0, 12)


def test_restarts_at_every_step_under_a_producer_that_never_stops(
    shared: PipelineBroker, topic: str
) -> None:
    sent: list[str] = []
    ends = threading.Event()

    def produce() -> None:
        while not ends.is_set():
            bodies = numbered(len(sent), len(sent) + 3)
            shared.send(topic, bodies, len(sent) % 2)
            sent.extend(bodies)

    query = Query(shared, topic, maxOffsetsPerTrigger=40, startingOffsets="earliest")
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for step in range(30):
            query.plan()
            if step % 3:
                query.restart()
            else:
                query._run()
    finally:
        ends.set()
        producer.join()
    while query.batch():
        pass
    assert sorted(query.bodies) == sent
    assert len(sent) > 50


def test_new_queues_and_new_topics_are_picked_up(shared: PipelineBroker, topic: str) -> None:
    query = Query(shared, topic, subscribePattern=topic + ".*", startingOffsets="latest")
    assert query.batch() == []
    shared.create(topic, 5)
    shared.send(topic, ["new queue"], 4)
    shared.create(topic + "-new", 1)
    shared.send(topic + "-new", ["new topic"], 0)
    assert query.plan()
    query.restart()
    assert sorted(query.bodies) == ["new queue", "new topic"]
    assert query.batch() == []


def test_limits_are_kept(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 90), 0)
    shared.send(topic, numbered(90, 100), 1)
    query = Query(shared, topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    sizes = []
    while found := query.batch():
        sizes.append(len(found))
    assert max(sizes) <= 21
    assert sorted(query.bodies) == numbered(0, 100)
    record_bytes = shared.stored(topic)[0].size_bytes
    query = Query(shared, topic, startingOffsets="earliest", maxBytesPerTrigger=10 * record_bytes)
    assert 8 <= len(query.batch()) <= 11


def test_available_now_ends_where_the_queues_end_at_its_start(
    shared: PipelineBroker, topic: str
) -> None:
    shared.send(topic, numbered(0, 10), 0)
    query = Query(shared, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.reader.prepareForTriggerAvailableNow()
    found = query.batch()
    shared.send(topic, ["late"], 0)
    shared.create(topic, 3)
    shared.send(topic, ["late too"], 2)
    while more := query.batch():
        found += more
    assert found == numbered(0, 10)
    query.restart()
    assert sorted(query.batch()) == ["late", "late too"]


def test_lag_is_what_is_between_the_batch_and_the_queues_ends(
    shared: PipelineBroker, topic: str
) -> None:
    shared.send(topic, numbered(0, 10), 0)
    query = Query(shared, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.batch()
    newest = query.reader.reportLatestOffset()
    assert newest is not None
    assert query.done is not None
    assert newest["offsets"][topic]["broker-a"]["0"] == 10
    assert query.done["offsets"][topic]["broker-a"]["0"] == 4


def test_a_group_sees_what_is_done(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 10), 0)
    given = {"groupId": f"g-{topic}", "commitOffsets": "onBatch"}
    query = Query(shared, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, **given)
    queue = MessageQueue(topic, "broker-a", 0)

    def committed() -> int | None:
        return shared.run(shared.admin.offsets.committed(given["groupId"], queue))

    query.batch()
    assert committed() is None
    query.batch()
    assert committed() == 4
    while query.batch():
        pass
    assert committed() == 10
    again = Query(shared, topic, startingOffsets="committed", **given)
    shared.send(topic, ["next"], 0)
    assert again.batch() == ["next"]


def test_a_topic_that_vanishes(shared: PipelineBroker, topic: str) -> None:
    quick = {"fetchOffset.numRetries": 1, "fetchOffset.retryIntervalMs": 1}
    shared.create(topic + "-stays", 1)
    both = {"subscribe": f"{topic},{topic}-stays", "startingOffsets": "earliest"} | quick
    strict = Query(shared, topic, **both)
    lenient = Query(shared, topic, failOnDataLoss="false", **both)
    shared.send(topic, numbered(0, 5), 0)
    assert strict.batch() == lenient.batch() == numbered(0, 5)
    shared.delete(topic)
    shared.send(topic + "-stays", ["a"], 0)
    with pytest.raises(PipelineError, match="any more: see that its broker runs"):
        strict.batch()
    assert lenient.batch() == ["a"]
    lenient.restart()
    shared.create(topic, 2)
    shared.send(topic, ["anew"], 0)
    with pytest.raises(PipelineError, match="was deleted and made anew, and this query"):
        strict.batch()
    assert lenient.batch() == ["anew"]


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_topic_made_anew_with_more_messages_than_were_read(
    shared: PipelineBroker,
    topic: str,
    has_ids: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not has_ids:
        without_ids(monkeypatch)
    strict = Query(shared, topic, startingOffsets="earliest")
    lenient = Query(shared, topic, startingOffsets="earliest", failOnDataLoss="false")
    shared.send(topic, numbered(0, 5), 0)
    assert strict.batch() == lenient.batch() == numbered(0, 5)
    for step in (1, 2):
        remake(shared, topic, numbered(10 * step, 10 * step + 9))
        for _ in range(2):
            with pytest.raises(PipelineError, match=r"deleted and made anew, .* set failOnDataLo"):
                strict.batch()
            strict.planned = strict.done
            strict.restart()
        lenient.restart()
        lenient.bodies.clear()
        assert lenient.plan()
        lenient.restart()  # the batch was planned and not finished
        assert lenient.bodies == numbered(10 * step, 10 * step + 9)
        assert lenient.batch() == []
    assert "read it from its beginning on, as failOnDataLoss=false says" in caplog.messages[0]
    shared.send(topic, ["next"], 0)
    assert lenient.batch() == ["next"]


def test_a_topic_made_anew_before_the_first_batch(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 5), 0)
    query = Query(shared, topic, failOnDataLoss="false")
    query.reader.initialOffset()
    remake(shared, topic, numbered(0, 9))
    assert query.batch() == numbered(0, 9)


def test_a_topic_made_anew_between_planning_and_reading(shared: PipelineBroker, topic: str) -> None:
    shared.send(topic, numbered(0, 5), 0)
    strict = Query(shared, topic, startingOffsets="earliest")
    lenient = Query(shared, topic, startingOffsets="earliest", failOnDataLoss="false")
    assert strict.plan()
    assert lenient.plan()
    remake(shared, topic, numbered(10, 19))
    with pytest.raises(PipelineError, match=r"the topic was deleted since, and perhaps made anew"):
        strict._run()
    assert lenient._run() == []
    assert lenient.batch() == numbered(10, 19)


def test_a_topic_that_is_deleted_on_one_of_two_brokers(shared: PipelineBroker, topic: str) -> None:
    settings = {"role": "broker", "namesrvAddr": shared.nameserver, "brokerName": "broker-b"}
    with PipelineBroker(**settings) as other:
        shared.create(topic, 2)
        strict = Query(shared, topic, startingOffsets="earliest")
        lenient = Query(shared, topic, startingOffsets="earliest", failOnDataLoss="false")
        shared.send(topic, ["b"], MessageQueue(topic, "broker-b", 0))
        assert strict.batch() == lenient.batch() == ["b"]
        shared.run(
            shared.admin.request(
                other.broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
            )
        )
        shared.send(topic, ["a"], MessageQueue(topic, "broker-a", 0))
        with pytest.raises(PipelineError, match=r"on broker-b is not there any more, and this que"):
            strict.batch()
        assert lenient.batch() == ["a"]
        assert read(shared, topic) == ["a"]
        shared.create(topic, 2)
        shared.send(topic, ["b2"], MessageQueue(topic, "broker-b", 0))
        assert lenient.batch() == ["b2"]


def test_latest_while_a_broker_is_away_leaves_its_history_out(
    shared: PipelineBroker, topic: str, tmp_path: Path
) -> None:
    settings = {"role": "broker", "namesrvAddr": shared.nameserver, "brokerName": "broker-b"}
    settings["storePathRootDir"] = str(tmp_path)
    place = MessageQueue(topic, "broker-b", 0)
    with KeptBroker(**settings) as other:
        shared.create(topic, 2)
        shared.send(topic, numbered(0, 50), place)
        newest_ms = other.stored(topic)[-1].store_time_ms
    while time.time_ns() // 1_000_000 <= newest_ms:
        pass
    query = Query(shared, topic, startingOffsets="latest")
    assert query.batch() == []
    with KeptBroker(**settings) as other:
        assert other.bodies(topic) == numbered(0, 50)
        assert query.batch() == []
        other.send(topic, ["new"], place)
        query.restart()
        assert query.batch() == ["new"]


class KeptBroker(PipelineBroker):
    """One whose store stays."""

    def _make(self) -> Broker:
        texts = {name: str(value) for name, value in self._settings.items()}
        return Broker(build_config(TEMPORARY_SETTINGS | texts))


def test_a_topic_that_vanishes_between_two_looks_at_the_routes(
    shared: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ROUTES_KEPT_S", 3600.0)
    shared.create(topic + "-stays", 1)
    quick = {"fetchOffset.numRetries": 1, "fetchOffset.retryIntervalMs": 1}
    both = {"subscribe": f"{topic},{topic}-stays", "startingOffsets": "earliest"} | quick
    strict = Query(shared, topic, **both)
    lenient = Query(shared, topic, failOnDataLoss="false", **both)
    shared.send(topic, numbered(0, 5), 0)
    assert strict.batch() == lenient.batch() == numbered(0, 5)
    shared.delete(topic)
    shared.send(topic + "-stays", ["a"], 0)

    assert lenient.batch() == ["a"]
    with pytest.raises(PipelineError, match="if the topic was deleted, set failOnDataLoss=false"):
        strict.batch()


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
