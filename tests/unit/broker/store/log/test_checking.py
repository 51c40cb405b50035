"""Sound records: each field that a unit vouches for is held against the record."""

import struct

import pytest

from rockhopper.broker.store.log.checking import (
    ANY_MESSAGE,
    count_sound,
    gather_sound,
)
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import topic_field
from tests.support.records import encode_message

FIELD = topic_field("orders")
AT = {"size": 0, "magic": 4, "crc": 8, "queue_id": 12, "queue_offset": 20, "log_offset": 28}


def records(count: int, body: bytes = b"hello", topic: str = "orders") -> list[bytes]:
    made: list[bytes] = []
    position = 1000
    for number in range(count):
        made.append(
            encode_message(
                topic=topic,
                body=body,
                properties="TAGS\x01a\x02",
                queue_id=3,
                queue_offset=40 + number,
                commit_log_offset=position,
                store_host=bytes(8),
            )
        )
        position += len(made[-1])
    return made


def units(given: list[bytes]) -> bytes:
    position, made = 1000, b""
    for record in given:
        made += CONSUME_QUEUE_UNIT.pack(position, len(record), 0)
        position += len(record)
    return made


def sound(given: list[bytes], data: bytes | None = None, unchecked_from: int = 1 << 40) -> int:
    data = b"".join(given) if data is None else data
    return count_sound(FIELD, 3, 40, units(given), len(given), data, unchecked_from)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_records_that_are_what_their_units_say_are_sound(count: int) -> None:
    assert sound(records(count)) == count


@pytest.mark.parametrize("name", AT)
def test_a_field_that_is_another_ends_the_count(name: str) -> None:
    given = records(3)
    damaged = bytearray(b"".join(given))
    at = len(given[0]) + AT[name] + 3
    damaged[at] ^= 1
    assert sound(given, bytes(damaged)) == 1


def test_a_body_is_compared_unless_it_is_new() -> None:
    given = records(2)
    damaged = bytearray(b"".join(given))
    damaged[damaged.rindex(b"hello")] ^= 1
    assert sound(given, bytes(damaged)) == 1
    assert sound(given, bytes(damaged), unchecked_from=1000) == 2
    assert sound(given, bytes(damaged), unchecked_from=1000 + len(given[0])) == 2
    assert sound(given, bytes(damaged), unchecked_from=1001 + len(given[0])) == 1


@pytest.mark.parametrize(("size_at", "size"), [("body", 1 << 20), ("body", -1), ("body", 4)])
def test_sizes_that_do_not_add_up_are_noticed(size_at: str, size: int) -> None:
    given = records(1)
    damaged = bytearray(given[0])
    struct.pack_into(">i", damaged, given[0].index(b"hello") - 4, size)
    assert sound(given, bytes(damaged)) == 0


def test_another_topics_record_is_not_ours() -> None:
    given = records(2, topic="orderz")
    assert sound(given) == 0
    assert count_sound(FIELD, 3, ANY_MESSAGE, units(given), 2, b"".join(given), 1 << 40) == 2


@pytest.mark.parametrize("size", [0, -1, 90])
def test_a_unit_of_no_size_is_of_no_record(size: int) -> None:
    unit = CONSUME_QUEUE_UNIT.pack(1000, size, 0)
    assert count_sound(FIELD, 3, 40, unit, 1, b"".join(records(1)), 1 << 40) == 0


def test_bytes_that_are_missing_end_the_count() -> None:
    given = records(3)
    assert sound(given, b"".join(given)[:-1]) == 2
    assert sound(given, b"") == 0


def gathered(
    given: list[bytes], data: bytes | None = None, *, count_max: int = 32, size_max: int = 1 << 20
) -> tuple[int, bytes] | None:
    data = b"".join(given) if data is None else data
    end = 1000 + len(data)
    return gather_sound(FIELD, 3, 40, units(given), count_max, size_max, (data, 1000, end), 1 << 40)


def test_what_an_answer_has_room_for_is_gathered() -> None:
    given = records(3)
    size = len(given[0])
    assert gathered(given) == (3, b"".join(given))
    assert gathered(given, count_max=2) == (2, b"".join(given[:2]))
    assert gathered(given, size_max=2 * size) == (2, b"".join(given[:2]))
    assert gathered(given, size_max=2 * size - 1) == (1, given[0])
    assert gathered(given, count_max=0, size_max=0) == (1, given[0])


def test_records_of_other_queues_may_stand_between_them() -> None:
    given = records(4)
    some = units(given)
    some = some[:20] + some[40:]
    data = b"".join(given)
    end = 1000 + len(data)
    stranger = gather_sound(FIELD, 3, 40, some, 32, 1 << 20, (data, 1000, end), 1 << 40)
    assert stranger is None  # the third record says that it is number 42
    assert gather_sound(FIELD, 3, 40, some[:20], 32, 1 << 20, (data, 1000, end), 0) == (1, given[0])
    rest = units(given)[60:] + units(given)[60:]
    assert gather_sound(FIELD, 3, 43, rest, 1, 1 << 20, (data, 1000, end), 0) == (1, given[3])


def test_nothing_is_gathered_when_one_of_them_is_elsewhere_or_not_sound() -> None:
    given = records(3)
    data = b"".join(given)
    assert gathered(given, data[:-1]) is None
    assert gathered(given, data[:-1], count_max=2) == (2, b"".join(given[:2]))
    assert gathered(given, data.replace(b"hello", b"jello", 1)) is None
    assert gather_sound(FIELD, 3, 40, b"", 32, 1 << 20, (data, 1000, 1000 + len(data)), 0) is None
    before = CONSUME_QUEUE_UNIT.pack(999, len(given[0]), 0)
    for unit in (before, CONSUME_QUEUE_UNIT.pack(1000, 5, 0), CONSUME_QUEUE_UNIT.pack(1000, -1, 0)):
        assert gather_sound(FIELD, 3, 40, unit, 32, 99, (data, 1000, 1000 + len(data)), 0) is None


@pytest.mark.parametrize(("size", "width"), [(1, 1), (127, 1), (128, 2), (300, 2)])
def test_a_topics_name_has_its_size_in_front(size: int, width: int) -> None:
    field = topic_field("t" * size)
    assert len(field) == width + size
    assert int.from_bytes(field[:width], "big") == size
