"""The network source without Spark: streams, called with a checkpoint as Spark does."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network import discovery
from rockhopper.protocol.codes import RequestCode
from tests.support.features import needs
from tests.support.network_queries import Query, numbered, read
from tests.support.pipeline_broker import PipelineBroker
from tests.support.remade_topics import remake, without_ids

QUEUES = 2


def test_latest_under_a_live_producer_loses_nothing(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, ["before"], 0)
    query = Query(broker, topic)
    query.reader.initialOffset()
    broker.send(topic, numbered(0, 5), 0)
    assert query.plan()
    broker.send(topic, numbered(5, 9), 1)
    query.restart()  # the first batch was planned and not finished
    assert query.bodies == numbered(0, 5)
    broker.send(topic, numbered(9, 12), 0)
    assert sorted(query.batch()) == numbered(5, 12)
    query.restart()
    assert query.batch() == []
    assert sorted(query.bodies) == numbered(0, 12)


def test_restarts_at_every_step_under_a_producer_that_never_stops(
    broker: PipelineBroker, topic: str
) -> None:
    sent: list[str] = []
    ends = threading.Event()

    def produce() -> None:
        while not ends.is_set():
            bodies = numbered(len(sent), len(sent) + 3)
            broker.send(topic, bodies, len(sent) % 2)
            sent.extend(bodies)

    query = Query(broker, topic, maxOffsetsPerTrigger=40, startingOffsets="earliest")
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for step in range(30):
            query.plan()
            if step % 3:
                query.restart()
            else:
                query.run()
    finally:
        ends.set()
        producer.join()
    while query.batch():
        pass
    assert sorted(query.bodies) == sent
    assert len(sent) > 50


def test_new_queues_and_new_topics_are_picked_up(broker: PipelineBroker, topic: str) -> None:
    query = Query(broker, topic, subscribePattern=topic + ".*", startingOffsets="latest")
    assert query.batch() == []
    broker.create(topic, 5)
    broker.send(topic, ["new queue"], 4)
    broker.create(topic + "-new", 1)
    broker.send(topic + "-new", ["new topic"], 0)
    assert query.plan()
    query.restart()
    assert sorted(query.bodies) == ["new queue", "new topic"]
    assert query.batch() == []


def test_limits_are_kept(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 90), 0)
    broker.send(topic, numbered(90, 100), 1)
    query = Query(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    sizes = []
    while found := query.batch():
        sizes.append(len(found))
    assert max(sizes) <= 21
    assert sorted(query.bodies) == numbered(0, 100)
    record_bytes = broker.stored(topic)[0].size_bytes
    query = Query(broker, topic, startingOffsets="earliest", maxBytesPerTrigger=10 * record_bytes)
    assert 8 <= len(query.batch()) <= 11


def test_a_batch_waits_for_enough_or_long_enough(broker: PipelineBroker, topic: str) -> None:
    query = Query(
        broker, topic, startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="1m"
    )
    assert query.batch() == []
    broker.send(topic, ["first"], 0)
    assert query.batch() == ["first"]
    broker.send(topic, numbered(0, 6), 0)
    broker.send(topic, numbered(6, 9), 1)
    assert not query.plan()
    newest = query.reader.reportLatestOffset()
    assert newest is not None
    assert sum(newest["offsets"][topic]["broker-a"].values()) == 10
    broker.send(topic, ["9"], 1)
    assert len(query.batch()) == 10
    broker.send(topic, ["late"], 1)
    query.now_s = 59.0
    assert not query.plan()
    broker.create(topic, 3)
    assert query.plan(), "which queues there are is noted at once"
    assert query.run() == ["late"]
    broker.send(topic, ["later"], 2)
    assert not query.plan()
    query.now_s = 120.0
    assert query.batch() == ["later"]
    broker.send(topic, ["a restart does not wait"], 0)
    assert not query.plan()
    query.restart()
    assert query.batch() == ["a restart does not wait"]
    broker.send(topic, ["nor does the end"], 0)
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == ["nor does the end"]


def test_a_least_and_a_most_go_together(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 25), 0)
    given = {"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 10}
    query = Query(broker, topic, startingOffsets="earliest", **given)
    assert [len(query.batch()) for _ in range(3)] == [10, 10, 5]
    broker.send(topic, numbered(25, 29), 0)
    assert not query.plan()
    broker.send(topic, numbered(29, 40), 0)
    assert len(query.batch()) == 10
    everything = ReadAllAvailable()
    assert query.done is not None
    assert query.reader.latestOffset(query.done, everything) != query.done


def test_available_now_ends_where_the_queues_end_at_its_start(
    broker: PipelineBroker, topic: str
) -> None:
    broker.send(topic, numbered(0, 10), 0)
    query = Query(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.reader.prepareForTriggerAvailableNow()
    found = query.batch()
    broker.send(topic, ["late"], 0)
    broker.create(topic, 3)
    broker.send(topic, ["late too"], 2)
    while more := query.batch():
        found += more
    assert found == numbered(0, 10)
    query.restart()
    assert sorted(query.batch()) == ["late", "late too"]


def test_lag_is_what_is_between_the_batch_and_the_queues_ends(
    broker: PipelineBroker, topic: str
) -> None:
    broker.send(topic, numbered(0, 10), 0)
    query = Query(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.batch()
    newest = query.reader.reportLatestOffset()
    assert newest is not None
    assert query.done is not None
    assert newest["offsets"][topic]["broker-a"]["0"] == 10
    assert query.done["offsets"][topic]["broker-a"]["0"] == 4


def test_a_group_sees_what_is_done(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 10), 0)
    given = {"groupId": f"g-{topic}", "commitOffsets": "onBatch"}
    query = Query(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, **given)
    queue = MessageQueue(topic, "broker-a", 0)

    def committed() -> int | None:
        return broker.run(broker.admin.offsets.committed(given["groupId"], queue))

    query.batch()
    assert committed() is None
    query.batch()
    assert committed() == 4
    query.restart()
    query.plan()
    assert committed() == 8
    while query.batch():
        pass
    assert committed() == 10
    again = Query(broker, topic, startingOffsets="committed", **given)
    broker.send(topic, ["next"], 0)
    assert again.batch() == ["next"]


def _of_a_topic_that_vanished(broker: PipelineBroker, topic: str) -> tuple[Query, Query]:
    """A query that minds and one that does not, of it and of a topic that stays."""
    quick = {"fetchOffset.numRetries": 1, "fetchOffset.retryIntervalMs": 1}
    broker.create(topic + "-stays", 1)
    both = {"subscribe": f"{topic},{topic}-stays", "startingOffsets": "earliest"} | quick
    strict = Query(broker, topic, **both)
    lenient = Query(broker, topic, failOnDataLoss="false", **both)
    broker.send(topic, numbered(0, 5), 0)
    assert strict.batch() == lenient.batch() == numbered(0, 5)
    broker.delete(topic)
    broker.send(topic + "-stays", ["a"], 0)
    return strict, lenient


def test_a_topic_that_vanishes(broker: PipelineBroker, topic: str) -> None:
    strict, lenient = _of_a_topic_that_vanished(broker, topic)
    with pytest.raises(PipelineError, match="any more: check that its broker runs"):
        strict.batch()
    assert lenient.batch() == ["a"]
    lenient.restart()
    broker.create(topic, 2)
    broker.send(topic, ["anew"], 0)
    with pytest.raises(PipelineError, match="was deleted and recreated, and this query"):
        strict.batch()
    assert lenient.batch() == ["anew"]


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_topic_made_anew_with_more_messages_than_were_read(
    broker: PipelineBroker,
    topic: str,
    has_ids: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not has_ids:
        without_ids(monkeypatch)
    strict = Query(broker, topic, startingOffsets="earliest")
    lenient = Query(broker, topic, startingOffsets="earliest", failOnDataLoss="false")
    broker.send(topic, numbered(0, 5), 0)
    assert strict.batch() == lenient.batch() == numbered(0, 5)
    for step in (1, 2):
        remake(broker, topic, numbered(10 * step, 10 * step + 9))
        for _ in range(2):
            with pytest.raises(PipelineError, match=r"deleted and recreated, .* set failOnDataLo"):
                strict.batch()
            strict.planned = strict.done
            strict.restart()
        lenient.restart()
        lenient.bodies.clear()
        assert lenient.plan()
        lenient.restart()  # the batch was planned and not finished
        assert lenient.bodies == numbered(10 * step, 10 * step + 9)
        assert lenient.batch() == []
    assert "read it from its beginning on, because failOnDataLoss=false" in caplog.messages[0]
    broker.send(topic, ["next"], 0)
    assert lenient.batch() == ["next"]


def test_a_topic_made_anew_before_the_first_batch(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 5), 0)
    query = Query(broker, topic, failOnDataLoss="false")
    query.reader.initialOffset()
    remake(broker, topic, numbered(0, 9))
    assert query.batch() == numbered(0, 9)


@needs("bulk_pull")
def test_a_topic_made_anew_between_planning_and_reading(broker: PipelineBroker, topic: str) -> None:
    broker.send(topic, numbered(0, 5), 0)
    strict = Query(broker, topic, startingOffsets="earliest")
    lenient = Query(broker, topic, startingOffsets="earliest", failOnDataLoss="false")
    assert strict.plan()
    assert lenient.plan()
    remake(broker, topic, numbered(10, 19))
    with pytest.raises(PipelineError, match=r"the topic was deleted since, and perhaps recreated"):
        strict.run()
    assert lenient.run() == []
    assert lenient.batch() == numbered(10, 19)


def test_a_topic_that_is_deleted_on_one_of_two_brokers(broker: PipelineBroker, topic: str) -> None:
    with broker.beside() as other:
        broker.create(topic, 2)
        strict = Query(broker, topic, startingOffsets="earliest")
        lenient = Query(broker, topic, startingOffsets="earliest", failOnDataLoss="false")
        broker.send(topic, ["b"], MessageQueue(topic, "broker-b", 0))
        assert strict.batch() == lenient.batch() == ["b"]
        broker.run(
            broker.admin.request(
                other.broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
            )
        )
        broker.send(topic, ["a"], MessageQueue(topic, "broker-a", 0))
        with pytest.raises(PipelineError, match=r"on broker-b no longer exists, and this que"):
            strict.batch()
        assert lenient.batch() == ["a"]
        assert read(broker, topic) == ["a"]
        broker.create(topic, 2)
        broker.send(topic, ["b2"], MessageQueue(topic, "broker-b", 0))
        assert lenient.batch() == ["b2"]


def test_latest_while_a_broker_is_away_leaves_its_history_out(
    broker: PipelineBroker, topic: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"role": "broker", "namesrvAddr": broker.nameserver}
    settings |= {"brokerName": "broker-b", "storePathRootDir": str(tmp_path)}
    place = MessageQueue(topic, "broker-b", 0)
    with KeptBroker(**settings) as other:
        broker.create(topic, 2)
        broker.send(topic, numbered(0, 50), place)
        newest_ms = other.stored(topic)[-1].store_time_ms
    while time.time_ns() // 1_000_000 <= newest_ms:
        pass
    query = Query(broker, topic, startingOffsets="latest")
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
    broker: PipelineBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ROUTES_KEPT_S", 3600.0)
    strict, lenient = _of_a_topic_that_vanished(broker, topic)
    assert lenient.batch() == ["a"]
    with pytest.raises(PipelineError, match="if the topic was deleted, set failOnDataLoss=false"):
        strict.batch()


@needs("bulk_pull")
def test_a_stream_reads_on_in_queues_that_its_topic_has_left(
    broker: PipelineBroker, topic: str
) -> None:
    broker.send(topic, numbered(0, 2), 1)
    query = Query(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    query.batch()
    broker.send(topic, numbered(2, 5), 1)
    broker.shrink(topic, 1)
    broker.send(topic, numbered(5, 6), 0)
    while query.batch():
        pass
    assert sorted(query.bodies) == numbered(0, 6)


@needs("bulk_pull")
def test_a_group_sees_what_is_done_in_queues_that_its_topic_has_left(
    broker: PipelineBroker, topic: str
) -> None:
    broker.send(topic, numbered(0, 5), 1)
    given = {"groupId": f"g-{topic}", "commitOffsets": "onBatch"}
    query = Query(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=2, **given)
    query.batch()
    broker.shrink(topic, 1)
    while query.batch():
        pass
    query.restart()
    query.plan()
    queue = MessageQueue(topic, "broker-a", 1)
    assert broker.run(broker.admin.offsets.committed(given["groupId"], queue)) == 5


def test_offsets_to_start_at_name_every_queue(broker: PipelineBroker, topic: str) -> None:
    with pytest.raises(PipelineError, match=r"says nothing of .*/1: name every queue"):
        Query(broker, topic, startingOffsets=f'{{"{topic}": {{"0": 0}}}}').batch()
