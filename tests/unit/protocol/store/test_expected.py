"""What a record expects of queues and index, for every kind of record."""

from typing import Any

import pytest

from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.expected import (
    Place,
    Record,
    expect_keys,
    expected,
    find_places,
)

T0 = 1_795_166_323_715
PREPARED, COMMITTED, ROLLED_BACK, INNER_BATCH = 0x4, 0x8, 0xC, 0x80
PLAIN = Record(1000, 200, 2, 7, 0, T0, b"orders", b"UNIQ_KEY\x01U\x02TAGS\x01ab\x02")
LIGHT = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x013,4\x02"
BATCH = b"INNER_NUM\x0110\x02INNER_BASE\x0140\x02"


def delay_ms(level: int) -> int:
    return 1000 * level


def units(record: Record, *, is_batch: bool = False) -> list[tuple[Any, ...]]:
    found, _ = expected(record, is_batch=is_batch, delay_ms=delay_ms)
    return [(*unit.place[:2], unit.fields(is_batch=is_batch)) for unit in found]


def test_a_plain_record_has_one_unit_and_its_keys() -> None:
    assert units(PLAIN) == [("orders", 2, (1000, 200, 3105))]
    assert expected(PLAIN, is_batch=False, delay_ms=delay_ms).keys == [
        index_key_hash("orders", "U")
    ]


def test_a_record_of_a_batch_queue_counts_its_messages() -> None:
    batch = PLAIN._replace(properties=BATCH, sys_flag=INNER_BATCH)
    assert units(batch, is_batch=True) == [("orders", 2, (1000, 200, 0, T0, 40, 10, -1, 0))]


@pytest.mark.parametrize("properties", [b"", b"INNER_NUM\x010\x02INNER_BASE\x0140\x02"])
def test_without_a_count_it_is_one_message(properties: bytes) -> None:
    batch = PLAIN._replace(properties=properties, sys_flag=INNER_BATCH)
    assert find_places(batch, is_batch=True) == [Place("orders", 2, 7, 1)]


def test_the_count_needs_no_flag() -> None:
    (place,) = find_places(PLAIN._replace(properties=BATCH), is_batch=True)
    assert place == Place("orders", 2, 40, 10)


def test_light_queues_have_the_unit_too() -> None:
    light = PLAIN._replace(properties=PLAIN.properties + LIGHT)
    assert units(light) == [
        ("orders", 2, (1000, 200, 3105)),
        ("%LMQ%a", 0, (1000, 200, 3105)),
        ("%LMQ%b", 0, (1000, 200, 3105)),
    ]
    assert [place.first_offset for place in find_places(light, is_batch=False)] == [7, 3, 4]


def test_a_delayed_message_has_its_due_time() -> None:
    delayed = PLAIN._replace(topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013\x02")
    assert units(delayed) == [("SCHEDULE_TOPIC_XXXX", 2, (1000, 200, T0 + 3000))]


@pytest.mark.parametrize(
    ("sys_flag", "unit_count", "key_count"),
    [(0, 1, 1), (PREPARED, 0, 1), (COMMITTED, 1, 1), (ROLLED_BACK, 0, 0)],
)
def test_what_a_transaction_left_open_has(sys_flag: int, unit_count: int, key_count: int) -> None:
    found = expected(PLAIN._replace(sys_flag=sys_flag), is_batch=False, delay_ms=delay_ms)
    assert (len(found.units), len(found.keys)) == (unit_count, key_count)


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        (b"", []),
        (b"UNIQ_KEY\x01u\x02", ["u"]),
        (b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02", ["u", "a", "b"]),
        (b"KEYS\x01 a  b \x02", ["a", "b"]),
        (b"UNIQ_KEY\x01u", ["u"]),
        (b"XKEYS\x01no\x02", []),
        (b"KEYS\x01\x02UNIQ_KEY\x01u\x02", ["u"]),
    ],
)
def test_unique_key_first_then_each_key(properties: bytes, keys: list[str]) -> None:
    found = expect_keys(PLAIN._replace(properties=properties))
    assert found == [index_key_hash("orders", key) for key in keys]
