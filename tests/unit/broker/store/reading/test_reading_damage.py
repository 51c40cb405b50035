"""Pulls of what is gone or damaged: stepped over, named once, never handed out."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import Subscription
from tests.support.open_stores import (
    FILE_SIZE_BYTES,
    Stores,
    bodies,
    close,
    fill,
    got,
    messages,
    put,
)
from tests.support.rot import flip_bit

TOPIC = "TopicA"


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return stores.open(commit_log_file_size_bytes=1 << 20)


def drop_first_file(store: MessageStore) -> None:
    """Delete the first file of the log while the queues do not know yet."""
    store.opened.commit_log.drop_files_before(FILE_SIZE_BYTES)


@pytest.mark.parametrize("expression", ["*", "a"])
def test_removed_messages_are_stepped_over(stores: Stores, expression: str) -> None:
    store = stores.open()
    fill(store, 6, 1500)
    drop_first_file(store)
    subscription = None if expression == "*" else Subscription(TOPIC, expression)
    result = store.reading.get_message(TOPIC, 0, 0, 1, subscription)
    if expression == "*":
        assert got(result) == ("MESSAGE_WAS_REMOVING", 1, 0, 6)
    result = store.reading.get_message(TOPIC, 0, 0, 32, subscription)
    assert [message.queue_offset for message in decode_messages(result.body)] == [2, 3, 4, 5]
    assert (result.count, result.next_offset) == (4, 6)


def test_the_last_thing_that_a_pull_came_across_names_its_status(stores: Stores) -> None:
    store = stores.open()
    fill(store, 2, 1500, tag="a")
    fill(store, 2, 1500, tag="b")
    drop_first_file(store)
    result = store.reading.get_message(TOPIC, 0, 0, 32, Subscription(TOPIC, "a"))
    assert got(result) == ("NO_MATCHED_MESSAGE", 4, 0, 4)


class Damaged:
    """Three messages of an earlier run, with one byte of the second one's record changed."""

    def __init__(self, stores: Stores, change_at: int, *, topic: str = TOPIC) -> None:
        store = stores.open()
        for number in range(3):
            put(store, b"body %d" % number, topic, properties=f"KEYS\x01k{number}\x02")
        second = messages(store, topic)[1].commit_log_offset
        close(store)
        path = stores.root / "commitlog" / f"{0:020d}"
        data = bytearray(path.read_bytes())
        data[second + change_at] ^= 0x55
        self.offset = second
        self.topic = topic
        self.store = stores.open()
        path.write_bytes(bytes(data))


# Body, queue id, queue offset, position, body length, topic, properties length.
@pytest.mark.parametrize("change_at", [89, 15, 27, 35, 87, 97, 102])
def test_a_damaged_old_message_is_skipped_and_reported_once(stores: Stores, change_at: int) -> None:
    damaged = Damaged(stores, change_at)
    store = damaged.store
    with capture_logs() as logs:
        for _ in range(2):
            result = store.reading.get_message(TOPIC, 0, 0, 32)
            found = [message.body for message in decode_messages(result.body)]
            assert found == [b"body 0", b"body 2"]
            assert result.next_offset == 3
            assert (
                store.reading.get_message(TOPIC, 0, 1, 1).status is GetStatus.MESSAGE_WAS_REMOVING
            )
    (entry,) = logs
    assert (entry["log_level"], entry["topic"], entry["queue"]) == ("error", TOPIC, 0)
    assert (entry["offset"], entry["commit_log_offset"]) == (1, damaged.offset)
    assert entry["reason"]
    assert store.reading.reader.damaged_count == 1


def test_a_damaged_message_is_found_neither_by_id_nor_by_key(stores: Stores) -> None:
    damaged = Damaged(stores, 89)
    assert damaged.store.reading.reader.record(damaged.offset) == b""
    assert damaged.store.reading.query(TOPIC, "k1", 32, 0, 2**62) == []
    assert len(damaged.store.reading.query(TOPIC, "k2", 32, 0, 2**62)) == 1


def test_a_body_in_the_tail_of_the_log_is_not_compared_with_its_crc(
    store: MessageStore, stores: Stores
) -> None:
    fill(store, 3)
    second = messages(store)[1].commit_log_offset
    flip_bit(stores.root / "commitlog" / f"{0:020d}", second + 89)
    assert len(messages(store)) == 3


@pytest.mark.parametrize("expression", ["*", "a"])
def test_a_body_behind_the_tail_is(store: MessageStore, stores: Stores, expression: str) -> None:
    fill(store, 3)
    second = messages(store)[1].commit_log_offset
    store.reading.reader.tail_start = store.log.written_offset
    fill(store, 1)
    flip_bit(stores.root / "commitlog" / f"{0:020d}", second + 89)
    with capture_logs() as logs:
        for _ in range(2):
            result = store.reading.get_message(TOPIC, 0, 0, 32, Subscription(TOPIC, expression))
            assert [m.queue_offset for m in decode_messages(result.body)] == [0, 2, 3]
            bulk = store.reading.get_bulk(TOPIC, 0, 0, 100, 1 << 20)
            assert [m.queue_offset for m in decode_messages(bulk.body)] == [0, 2, 3]
            assert store.reading.reader.record(second) == b""
    (entry,) = logs
    assert (entry["offset"], entry["commit_log_offset"]) == (1, second)
    assert store.reading.reader.damaged_count == 1


# Queue id, queue offset, place, size, magic, topic.
@pytest.mark.parametrize("change_at", [15, 27, 35, 3, 5, 101])
def test_heads_are_looked_at_in_the_tail_too(
    store: MessageStore, stores: Stores, change_at: int
) -> None:
    fill(store, 3)
    second = messages(store)[1].commit_log_offset
    flip_bit(stores.root / "commitlog" / f"{0:020d}", second + change_at)
    with capture_logs() as logs:
        for _ in range(2):
            assert [message.queue_offset for message in messages(store)] == [0, 2]
            bulk = store.reading.get_bulk(TOPIC, 0, 0, 100, 1 << 20)
            assert [m.queue_offset for m in decode_messages(bulk.body)] == [0, 2]
    (entry,) = logs
    assert (entry["offset"], entry["commit_log_offset"]) == (1, second)
    assert (store.reading.reader.damaged_count, store.scrub.mended_count) == (1, 0)


def test_damage_in_a_batch_topic_never_reaches_a_consumer(stores: Stores) -> None:
    store = stores.open(batch_topics={"Batches"})
    for number in range(3):
        put(store, b"body %d" % number, "Batches")
    second = messages(store, "Batches")[1].commit_log_offset
    store = stores.reopen_after_stop(batch_topics={"Batches"})
    path = stores.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[second + 89] ^= 1
    path.write_bytes(bytes(data))
    assert bodies(store, "Batches") == [b"body 0", b"body 2"]


def test_times_are_found_though_a_message_is_unreadable(stores: Stores) -> None:
    damaged = Damaged(stores, 5)
    time_ms = messages(damaged.store)[0].store_time_ms
    assert damaged.store.reading.offset_by_time(TOPIC, 0, time_ms, upper=False) == 0
    assert damaged.store.reading.offset_by_time(TOPIC, 0, time_ms + 1, upper=False) == 3
