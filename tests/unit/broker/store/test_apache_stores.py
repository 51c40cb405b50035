"""Stores of Apache's official release, opened, read to the end and continued.

What must be found was read from Apache's running broker by its own client: tests/golden.
"""

from collections.abc import AsyncIterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import MessageToStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from rockhopper.protocol.subscription import Subscription
from tests.support.apache_golden import ApacheStore, unpack

NOW_MS = 1_900_000_000_000
BATCH_TOPIC = "Batches"


@pytest.fixture(params=["plain", "batch", "extended", "killed"])
def apache(request: pytest.FixtureRequest, tmp_path: Path) -> ApacheStore:
    return unpack(request.param, tmp_path)


@pytest.fixture
async def store(apache: ApacheStore) -> AsyncIterator[MessageStore]:
    opened = open_store(apache)
    yield opened
    await opened.close()


def open_store(apache: ApacheStore) -> MessageStore:
    config = build_config({**apache.geometry, "storePathRootDir": str(apache.path)})
    return MessageStore.open(
        config.store, now_ms=lambda: NOW_MS, batch_topic=lambda topic: topic == BATCH_TOPIC
    )


def read_queue(
    store: MessageStore, topic: str, queue_id: int, subscription: Subscription | None = None
) -> list[StoredMessage]:
    """Every message of a queue, inner batches taken apart."""
    offset, end = store.reading.queue_range(topic, queue_id)
    messages: list[StoredMessage] = []
    while offset < end:
        result = store.reading.get_message(topic, queue_id, offset, 32, subscription)
        assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE), (offset, end)
        assert result.next_offset > offset
        messages += decode_messages(result.body)
        offset = result.next_offset
    return messages


def expected(apache: ApacheStore, topic: str) -> list[tuple[Any, ...]]:
    """What Apache's client said of each message, in the order of the queues."""
    return sorted(
        (
            m["queueId"],
            m["queueOffset"],
            m["msgId"],
            m.get("tags"),
            m.get("keys"),
            m["bornTimestamp"],
            m["storeTimestamp"],
            m["sha1"],
        )
        for m in apache.topics[topic]["messages"]
    )


def found(messages: list[StoredMessage]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            m.queue_id,
            m.queue_offset,
            m.message_id,
            m.tags,
            m.properties.get("KEYS"),
            m.born_time_ms,
            m.store_time_ms,
            sha1(m.decompressed_body(), usedforsecurity=False).hexdigest(),
        )
        for m in messages
    )


def test_every_message_is_read_as_apache_read_it(apache: ApacheStore, store: MessageStore) -> None:
    for topic, content in apache.topics.items():
        messages: list[StoredMessage] = []
        for _, queue_id, low, high in content["queues"]:
            assert store.reading.queue_range(topic, queue_id) == (low, high)
            messages += read_queue(store, topic, queue_id)
        assert found(messages) == expected(apache, topic)


def test_every_single_message_is_found_by_key_and_by_unique_id(
    apache: ApacheStore, store: MessageStore
) -> None:
    for topic, content in apache.topics.items():
        if topic == BATCH_TOPIC:
            continue
        for message in content["messages"]:
            for key in filter(None, (message.get("keys"), message["msgId"])):
                [record] = store.reading.query(topic, key, 2, 0, NOW_MS)
                assert decode_message(record).queue_offset == message["queueOffset"]


def test_the_tag_filter_takes_what_apache_stored_with_the_tag(
    apache: ApacheStore, store: MessageStore
) -> None:
    for topic, content in apache.topics.items():
        if topic == BATCH_TOPIC:
            continue
        chosen: list[StoredMessage] = []
        for _, queue_id, *_ in content["queues"]:
            chosen += read_queue(store, topic, queue_id, Subscription(topic, "red"))
        red = [row for row in expected(apache, topic) if row[3] == "red"]
        assert found(chosen) == red


async def test_what_is_added_follows_and_is_there_after_the_next_start(apache: ApacheStore) -> None:
    for _ in range(3):
        store = open_store(apache)
        for topic, content in apache.topics.items():
            for _, queue_id, *_ in content["queues"]:
                low, high = store.reading.queue_range(topic, queue_id)
                put = store.put(MessageToStore(topic, queue_id, b"ours", "KEYS\x01ours\x02"))
                assert put.queue_offset == high
                assert store.reading.queue_range(topic, queue_id) == (low, high + 1)
        await store.close()
    store = open_store(apache)
    for topic, content in apache.topics.items():
        for _, queue_id, _, high in content["queues"]:
            messages = read_queue(store, topic, queue_id)
            assert [m.body for m in messages[high:]] == [b"ours"] * 3
        ours = 3 * len(content["queues"])
        assert len(store.reading.query(topic, "ours", ours + 1, 0, NOW_MS)) == ours
        assert len(found_of(store, apache, topic)) == len(content["messages"]) + ours
    await store.close()


def found_of(store: MessageStore, apache: ApacheStore, topic: str) -> list[tuple[Any, ...]]:
    messages: list[StoredMessage] = []
    for _, queue_id, *_ in apache.topics[topic]["queues"]:
        messages += read_queue(store, topic, queue_id)
    return found(messages)


def test_apaches_topics_are_known(apache: ApacheStore) -> None:
    topics = TopicTable(apache.path / "config" / "topics.json", build_config({}))
    assert topics.load()
    for topic, content in apache.topics.items():
        assert topics.configs[topic].read_queue_nums == len(content["queues"])
        assert topics.is_batch(topic) == (topic == BATCH_TOPIC)


async def test_the_scrub_finds_nothing_wrong(store: MessageStore) -> None:
    store.reading.reader.tail_start = store.log.written_offset
    with capture_logs() as logs:
        while store.scrub.passes.step():
            pass
    assert logs == []
