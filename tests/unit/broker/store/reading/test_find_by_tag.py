"""Searches by tag: the newest within a time, in steps, decided by the records themselves."""

from pathlib import Path

import pytest

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading import record_search
from rockhopper.broker.store.reading import record_search as module
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.open_stores import Stores, put, tagged

FOR_EVER = 1 << 62


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    """Twenty messages in two queues, a second apart; every other one has the tag a."""
    opened = stores.open()
    for number in range(20):
        put(opened, b"%d" % number, queue_id=number // 2 % 2, properties=tagged("ab"[number % 2]))
        stores.clock.advance(1000)
    return opened


def found(
    store: MessageStore, tag: str = "a", count: int = 100, begin: int = 0, end: int = FOR_EVER
) -> list[int]:
    search, steps = store.reading.search_tag("TopicA", tag, count, begin, end)
    for _ in steps:
        pass
    return [int(decode_message(record).body) for record in search.records()]


def test_all_with_the_tag_come_in_the_order_of_the_log(store: MessageStore) -> None:
    assert found(store) == list(range(0, 20, 2))
    assert found(store, "b") == list(range(1, 20, 2))
    assert found(store, "c") == []


@pytest.mark.parametrize("count", [1, 3, 10])
def test_of_more_than_were_asked_for_the_newest_come(store: MessageStore, count: int) -> None:
    assert found(store, count=count) == list(range(0, 20, 2))[-count:]


def test_only_the_time_that_is_asked_for_counts(stores: Stores, store: MessageStore) -> None:
    start = stores.clock.now_ms - 20_000
    assert found(store, begin=start + 4000, end=start + 8000) == [4, 6, 8]
    assert found(store, begin=start + 4001, end=start + 7999) == [6]
    assert found(store, end=start - 1) == []


def test_a_tag_with_the_same_hash_is_not_taken(stores: Stores) -> None:
    store = stores.open()
    for tag in ("Aa", "BB"):
        put(store, b"1" if tag == "Aa" else b"2", properties=tagged(tag))
    assert found(store, "Aa") == [1]
    assert found(store, "BB") == [2]


def test_a_search_goes_in_steps_and_ends_after_so_many(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNITS_PER_STEP", 2)
    _, steps = store.reading.search_tag("TopicA", "a", 100, 0, FOR_EVER)
    assert len(list(steps)) == 10
    monkeypatch.setattr(module, "STEPS_MAX", 3)
    _, steps = store.reading.search_tag("TopicA", "a", 100, 0, FOR_EVER)
    assert len(list(steps)) == 3
    assert len(found(store)) == 3


def test_records_that_only_have_its_hash_are_looked_at_in_steps(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    for _ in range(10):
        put(store, b"1", properties=tagged("Aa"))
    search, steps = store.reading.search_tag("TopicA", "BB", 100, 0, FOR_EVER)
    monkeypatch.setattr(record_search, "RECORDS_PER_STEP", 2)
    assert len(list(steps)) == 10 // 2 + 1
    monkeypatch.setattr(record_search, "RECORDS_PER_STEP", 32)
    monkeypatch.setattr(record_search, "BYTES_PER_STEP", 1)
    assert len(list(store.reading.search_tag("TopicA", "BB", 100, 0, FOR_EVER)[1])) == 10 + 1
    monkeypatch.setattr(module, "STEPS_MAX", 4)
    assert len(list(store.reading.search_tag("TopicA", "BB", 100, 0, FOR_EVER)[1])) <= 5
    assert search.records() == []


def test_no_more_bytes_come_than_an_answer_holds(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 250)
    assert found(store) == [16, 18]
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 1)
    assert found(store) == [18]
