"""The pipeline's network source and sink against Apache's broker, without Spark."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rockhopper.client import Admin, Message, Producer
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.rules import read_rules
from rockhopper.pipeline.network.source import NetworkReader
from rockhopper.pipeline.network.streaming import NetworkStreamReader
from rockhopper.pipeline.remote import connect
from rockhopper.pipeline.sink.choice import choose_broker
from rockhopper.pipeline.sink.rules import read_rules as read_sink_rules
from rockhopper.pipeline.sink.sending import RowSender
from tests.interop.apache import ApacheServer

pytestmark = pytest.mark.interop


def batches(bodies: list[str], **columns: Any) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(bodies), 2_000):
        chosen = {"body": bodies, **columns}
        yield pa.RecordBatch.from_pydict(
            {name: values[start : start + 2_000] for name, values in chosen.items()}
        )


def read(nameserver: str, topic: str, **options: str) -> list[dict[str, Any]]:
    given = {"nameServer": nameserver, "subscribe": topic, **options}
    reader = NetworkReader(read_rules(given, streaming=False))
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def wait_for(nameserver: str, topic: str, count: int) -> None:
    """Apache's broker shows messages a moment after it has answered for them."""
    remote = connect(nameserver, timeout_s=30.0)
    deadline_s = time.monotonic() + 60
    while sum(high for _, high in remote.ranges(remote.queues(topic)).values()) < count:
        assert time.monotonic() < deadline_s


def numbered(count: int) -> list[str]:
    return [f"{number:05d}" for number in range(count)]


def test_what_the_sink_sends_the_source_reads(apache_server: ApacheServer) -> None:
    given = {"nameServer": apache_server.nameserver, "topic": "FromSpark"}
    sender = RowSender(read_sink_rules(given, streaming=True))
    tags = [f"t{number % 5}" for number in range(5_000)]
    keys = [f"k{number}" for number in range(5_000)]
    assert sender.write(batches(numbered(5_000), tags=tags, keys=keys)) == 5_000
    wait_for(apache_server.nameserver, "FromSpark", 5_000)

    rows = read(apache_server.nameserver, "FromSpark", minPartitions="3", columns="all")

    assert sorted(row["body"].decode() for row in rows) == numbered(5_000)
    by_body = {row["body"].decode(): row for row in rows}
    assert (by_body["00007"]["tags"], by_body["00007"]["keys"]) == ("t2", "k7")
    assert len({row["msgId"] for row in rows}) == 5_000
    filtered = read(apache_server.nameserver, "FromSpark", subExpression="t2||t3")
    assert len(filtered) == 2_000


def test_large_late_and_ordered_messages(apache_server: ApacheServer) -> None:
    nameserver = apache_server.nameserver
    given = {"nameServer": nameserver, "topic": "Ordered"}
    sender = RowSender(read_sink_rules(given, streaming=True))
    sender.write(batches(["x" * 100_000, "plain"]))
    keys = [f"customer {number % 3}" for number in range(300)]
    sender.write(batches(numbered(300), shardingKey=keys))
    wait_for(nameserver, "Ordered", 302)
    rows = read(nameserver, "Ordered", columns="body,queueId,properties")
    assert ("x" * 100_000).encode() in {row["body"] for row in rows}
    queues: dict[str, set[int]] = {}
    for row in rows:
        properties = dict(row["properties"])
        if "__SHARDINGKEY" in properties:
            queues.setdefault(properties["__SHARDINGKEY"], set()).add(row["queueId"])
    assert [len(each) for each in queues.values()] == [1, 1, 1]


def test_a_stream_over_apache_and_its_groups_offsets(apache_server: ApacheServer) -> None:
    nameserver = apache_server.nameserver

    async def send() -> MessageQueue:
        async with Admin(nameserver) as admin, Producer(nameserver) as producer:
            await admin.create_topic("Streamed", queues=1)
            await producer.send_batch([Message("Streamed", b"%05d" % n) for n in range(100)])
            return (await admin.ranges("Streamed"))[0].queue

    queue = asyncio.run(send())
    wait_for(nameserver, "Streamed", 100)
    given = {
        "nameServer": nameserver,
        "subscribe": "Streamed",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "60",
        "groupId": "spark-on-apache",
        "commitOffsets": "onBatch",
    }
    reader = NetworkStreamReader(read_rules(given, streaming=True))
    limit = reader.getDefaultReadLimit()
    start, bodies = reader.initialOffset(), []
    for _ in range(3):
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                bodies += [row["body"].decode() for row in batch.to_pylist()]
        start = end
    assert bodies == numbered(100)
    committed = connect(nameserver, timeout_s=30.0).committed("spark-on-apache", [queue])
    assert committed == {queue: 100}


def test_exactly_once_is_refused(apache_server: ApacheServer) -> None:
    given = {
        "nameServer": apache_server.nameserver,
        "topic": "T",
        "delivery": "exactly-once",
        "sinkId": "s",
    }
    with pytest.raises(PipelineError, match="Apache RocketMQ cannot"):
        choose_broker(read_sink_rules(given, streaming=True), "s")
