"""The comparison of a unit with its record: each way to differ has its name."""

import pytest

from rockhopper.protocol.store.compare import Verdict, compare_unit
from rockhopper.protocol.store.expected import ExpectedUnit, Place, Record
from rockhopper.protocol.store.queue_layout import EXT_ADDRESS_MAX

T0 = 1_795_166_323_715
UNIT = ExpectedUnit(Place("orders", 2, 7, 1), 1000, 200, 3105, T0)
BATCH = UNIT._replace(place=Place("orders", 2, 40, 10))
MESSAGE_7 = Record(5000, 150, 2, 7, 0, T0, b"orders", b"")


def compare(
    unit: ExpectedUnit, held: tuple[int, ...] | None, holder: Record | None = None
) -> Verdict:
    return compare_unit(unit, held, lambda offset: holder, is_batch=unit is not UNIT)


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        (None, Verdict.MISSING),
        ((0, 0, 0), Verdict.MISSING),
        ((1000, 200, 3105), Verdict.RIGHT),
        ((1000, 200, 0), Verdict.CODE),
        ((1000, 200, EXT_ADDRESS_MAX), Verdict.EXTENDED),
        ((1000, 201, 3105), Verdict.ELSEWHERE),
        ((5000, 150, 3105), Verdict.ELSEWHERE),
    ],
)
def test_a_plain_unit(held: tuple[int, ...] | None, verdict: Verdict) -> None:
    assert compare(UNIT, held) is verdict


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ((1000, 200, 3105, T0, 40, 10, -1, 0), Verdict.RIGHT),
        ((1000, 200, 3105, T0, 40, 10, 77, 1), Verdict.RIGHT),
        ((1000, 200, 3105, T0 + 1, 40, 10, -1, 0), Verdict.COUNT),
        ((1000, 200, 3105, T0, 41, 10, -1, 0), Verdict.COUNT),
        ((1000, 200, 3105, T0, 40, 9, -1, 0), Verdict.COUNT),
        ((1000, 200, 0, T0, 40, 10, -1, 0), Verdict.CODE),
    ],
)
def test_a_unit_of_a_batch(held: tuple[int, ...], verdict: Verdict) -> None:
    assert compare(BATCH, held) is verdict


def test_an_unknown_store_time_is_not_compared() -> None:
    held = (1000, 200, 3105, 12345, 40, 10, -1, 0)
    assert compare(BATCH._replace(store_time_ms=0), held) is Verdict.RIGHT


def test_a_due_time_may_come_from_other_levels() -> None:
    delayed = UNIT._replace(place=Place("SCHEDULE_TOPIC_XXXX", 2, 7, 1))
    held = (1000, 200, T0 + 5000)
    assert compare_unit(delayed, held, lambda _: None, is_batch=False) is Verdict.DUE


@pytest.mark.parametrize(
    ("holder", "verdict"),
    [
        (MESSAGE_7, Verdict.LEFTOVER),
        (MESSAGE_7._replace(offset=500), Verdict.ELSEWHERE),
        (MESSAGE_7._replace(offset=500, store_time_ms=T0 + 1), Verdict.LEFTOVER),
        (MESSAGE_7._replace(queue_offset=8), Verdict.ELSEWHERE),
        (MESSAGE_7._replace(queue_id=3), Verdict.ELSEWHERE),
        (MESSAGE_7._replace(topic=b"invoices"), Verdict.ELSEWHERE),
        (MESSAGE_7._replace(sys_flag=0x4), Verdict.ELSEWHERE),
        (None, Verdict.ELSEWHERE),
    ],
)
def test_the_later_record_of_a_message_counts(holder: Record | None, verdict: Verdict) -> None:
    held = (5000 if holder is None else holder.offset, 150, 0)
    assert compare(UNIT, held, holder) is verdict


def test_a_leftover_is_found_in_a_light_queue() -> None:
    light = UNIT._replace(place=Place("%LMQ%a", 0, 3, 1))
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x013\x02"
    holder = MESSAGE_7._replace(properties=properties)
    verdict = compare_unit(light, (5000, 150, 0), lambda _: holder, is_batch=False)
    assert verdict is Verdict.LEFTOVER
