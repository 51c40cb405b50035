"""Finding messages by key and by id."""

import pytest

from rockhopper.broker.store.index import index_file
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading import record_search
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from tests.support.open_stores import (
    Stores,
    put,
)

TOPIC = "TopicA"


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return stores.open(commit_log_file_size_bytes=1 << 20)


def colliding_key(topic: str, key: str) -> str:
    """Another key with the same hash: "Aa" and "BB" have one."""
    assert "Aa" in key
    other = key.replace("Aa", "BB")
    assert index_key_hash(topic, key) == index_key_hash(topic, other)
    return other


def found(
    store: MessageStore, key: str, count: int = 32, begin: int = 0, end: int = 2**62
) -> list[bytes]:
    return [
        decode_messages(record)[0].body
        for record in store.reading.query(TOPIC, key, count, begin, end)
    ]


def test_messages_are_found_by_unique_key_and_by_each_key_newest_first(
    store: MessageStore,
) -> None:
    for number in range(3):
        put(
            store, b"%d" % number, properties=f"KEYS\x01k{number}  all\x02UNIQ_KEY\x01U{number}\x02"
        )
    assert found(store, "all") == [b"2", b"1", b"0"]
    assert found(store, "all", 2) == [b"2", b"1"]
    assert found(store, "k1") == found(store, "U1") == [b"1"]
    assert found(store, "k") == found(store, "") == []


def test_a_key_that_a_message_has_twice_finds_it_once(store: MessageStore) -> None:
    put(store, b"1", properties="KEYS\x01k k U\x02UNIQ_KEY\x01U\x02")
    assert found(store, "k") == found(store, "U") == [b"1"]


def test_a_colliding_key_never_shows(store: MessageStore) -> None:
    key = "Aa1"
    put(store, b"wanted", properties=f"KEYS\x01{key}\x02")
    for _ in range(40):
        put(store, b"other", properties=f"KEYS\x01{colliding_key(TOPIC, key)}\x02")
    assert found(store, key) == [b"wanted"]
    assert found(store, key, 1) == [b"wanted"]


def test_a_flood_of_collisions_ends_the_search(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.store.reading.record_search.MISSES_MAX", 5)
    put(store, b"wanted", properties="KEYS\x01Aa\x02")
    for _ in range(6):
        put(store, properties="KEYS\x01BB\x02")
    reads: list[int] = []
    real = store.reading.reader.record

    def record(position: int) -> bytes:
        reads.append(position)
        return real(position)

    monkeypatch.setattr(store.reading.reader, "record", record)
    assert found(store, "Aa") == []
    assert len(reads) == 6


def test_a_key_of_another_topic_is_not_found(store: MessageStore) -> None:
    put(store, b"other", "Aa", properties="KEYS\x01k\x02")
    put(store, b"wanted", "BB", properties="KEYS\x01k\x02")
    assert index_key_hash("Aa", "k") == index_key_hash("BB", "k")
    (record,) = store.reading.query("BB", "k", 32, 0, 2**62)
    assert decode_messages(record)[0].body == b"wanted"


def test_only_messages_of_the_time_range_are_found(stores: Stores) -> None:
    store = stores.open()
    start = stores.clock.now_ms
    for number in range(5):
        put(store, b"%d" % number, properties="KEYS\x01k\x02")
        stores.clock.advance(300)
    assert found(store, "k", 32, start + 300, start + 900) == [b"3", b"2", b"1"]
    assert found(store, "k", 32, start + 301, start + 599) == []


def test_newer_messages_than_asked_for_are_passed_over_in_steps(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "ENTRIES_PER_STEP", 3)
    store = stores.open()
    end = stores.clock.now_ms
    put(store, b"wanted", properties="KEYS\x01k\x02")
    stores.clock.advance(5000)
    for _ in range(9):
        put(store, properties="KEYS\x01k\x02")
    search, steps = store.reading.search_key(TOPIC, "k", 32, 0, end)
    assert len(list(steps)) == 3
    assert [decode_message(record).body for record in search.newest_first] == [b"wanted"]


def test_records_are_looked_at_in_steps(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        put(store, properties="KEYS\x01k\x02")
    monkeypatch.setattr(record_search, "RECORDS_PER_STEP", 2)
    assert len(list(store.reading.search_key(TOPIC, "k", 32, 0, 2**62)[1])) == 2
    monkeypatch.setattr(record_search, "BYTES_PER_STEP", 1)
    assert len(list(store.reading.search_key(TOPIC, "k", 32, 0, 2**62)[1])) == 5


def test_a_file_that_expires_during_a_look_up_ends_it(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "ENTRIES_PER_STEP", 3)
    store = stores.open(index_slot_count=16, index_entry_count_max=6)
    end = stores.clock.now_ms
    put(store, b"wanted", properties="KEYS\x01k\x02")
    stores.clock.advance(5000)
    for _ in range(12):
        put(store, properties="KEYS\x01k\x02")
    search, steps = store.reading.search_key(TOPIC, "k", 32, 0, end)
    next(steps)
    index = store.opened.index
    assert index is not None
    for file in index.files[:-1]:
        file.delete()
    assert list(steps) == []
    assert search.newest_first == []


def test_no_more_than_8_mib_are_found_at_once(stores: Stores) -> None:
    store = stores.open(commit_log_file_size_bytes=16 << 20)
    for _ in range(4):
        put(store, bytes(3 << 20), properties="KEYS\x01k\x02")
    assert len(found(store, "k")) == 2


def test_without_an_index_nothing_is_found(stores: Stores) -> None:
    store = stores.open(index_enabled=False)
    put(store, properties="KEYS\x01k\x02")
    assert found(store, "k") == []
    assert not (stores.root / "index").exists()


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
def test_an_id_that_is_not_a_messages_finds_nothing(store: MessageStore, offset: int) -> None:
    put(store)
    assert store.reading.reader.record(offset) == b""
    assert decode_messages(store.reading.reader.record(0))[0].body == b"hello"
