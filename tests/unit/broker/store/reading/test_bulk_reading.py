"""Bulk reads: what ordinary reads return, under limits of their own, and past what is damaged."""

from pathlib import Path

import pytest

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, close, flush, put
from tests.support.rot import flip_bit


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def filled(stores: Stores, count: int = 60, *, mixed: bool = False) -> MessageStore:
    """Messages over several files; *mixed*: with those of another queue in between."""
    store = stores.open()
    for number in range(count):
        put(store, b"%03d" % number + bytes(100))
        if mixed:
            put(store, b"other", queue_id=1)
    return store


def bulk(store: MessageStore, offset: int = 0, count: int = 1000, size: int = 1 << 20) -> GetResult:
    return store.reading.get_bulk("TopicA", 0, offset, count, size)


def numbers(result: GetResult) -> list[int]:
    return [int(message.body[:3]) for message in decode_messages(result.body)]


@pytest.mark.parametrize("mixed", [False, True])
def test_all_come_at_once_whatever_stands_between_them(stores: Stores, mixed: bool) -> None:
    result = bulk(filled(stores, mixed=mixed))
    assert result.status is GetStatus.FOUND
    assert (numbers(result), result.count) == (list(range(60)), 60)
    assert (result.next_offset, result.min_offset, result.max_offset) == (60, 0, 60)


@pytest.mark.parametrize(
    ("offset", "count", "expected"), [(0, 1, [0]), (10, 5, range(10, 15)), (58, 5, [58, 59])]
)
def test_no_more_come_than_are_asked_for(
    stores: Stores, offset: int, count: int, expected: list[int]
) -> None:
    result = bulk(filled(stores), offset, count)
    assert numbers(result) == list(expected)
    assert result.next_offset == offset + len(expected)


def test_bytes_are_a_limit_but_for_the_first(stores: Stores) -> None:
    store = filled(stores)
    (record,) = decode_messages(bulk(store, 0, 1).body)
    assert numbers(bulk(store, size=1)) == [0]
    assert numbers(bulk(store, size=3 * record.size_bytes)) == [0, 1, 2]
    assert numbers(bulk(store, size=3 * record.size_bytes - 1)) == [0, 1]


@pytest.mark.parametrize("offset", [60, 61, 1 << 40])
def test_behind_the_end_is_nothing(stores: Stores, offset: int) -> None:
    result = bulk(filled(stores), offset)
    assert (result.body, result.count) == (b"", 0)
    assert result.status is not GetStatus.FOUND


def test_a_damaged_record_is_left_out_and_the_rest_comes(stores: Stores) -> None:
    store = filled(stores, 20)
    victim = decode_messages(bulk(store, 7, 1).body)[0]
    flush(store)
    close(store)
    path = stores.root / "commitlog" / f"{0:020d}"
    assert victim.commit_log_offset < FILE_SIZE_BYTES
    flip_bit(path, victim.commit_log_offset + victim.size_bytes // 2)
    again = Stores(stores.root.parent).open()
    found: list[int] = []
    offset = 0
    while offset < 20:
        result = bulk(again, offset)
        found += numbers(result)
        assert result.next_offset > offset
        offset = result.next_offset
    assert found == [number for number in range(20) if number != 7]
    close(again)
