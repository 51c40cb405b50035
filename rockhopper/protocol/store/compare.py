"""Compare the unit that a queue holds with the one that a record expects.

This is the one place that says what a difference is. What to do about it is the caller's: recovery
appends, the scrub repairs, `store check` reports.

    RIGHT       nothing differs
    MISSING     the queue holds none
    COUNT       it points to the record, but has another first message, count or store time
    EXTENDED    it points to the record, and its tags code is in an extension unit
    DUE         it points to the record, but has another due time: delay levels may have changed
    CODE        it points to the record, but has another tags code
    LEFTOVER    it points to a later record of the same message: that one counts
    ELSEWHERE   it points to anything else

Example: message 7 is at 1,000, and unit 7 points to 5,000. If the record at 5,000 is message 7 of
the same queue too, the one at 1,000 is a leftover, from before the queue or the log was cut.
Otherwise the unit is wrong.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.store.expected import ExpectedUnit, Record, find_places
from rockhopper.protocol.store.queue_layout import EXT_ADDRESS_MAX


class Verdict(Enum):
    """How a unit differs."""

    RIGHT = auto()
    MISSING = auto()
    COUNT = auto()
    EXTENDED = auto()
    DUE = auto()
    CODE = auto()
    LEFTOVER = auto()
    ELSEWHERE = auto()


def compare_unit(
    unit: ExpectedUnit,
    held: Sequence[int] | None,
    find_record: Callable[[int], Record | None],
    *,
    is_batch: bool,
) -> Verdict:
    """Compare *held*, the fields of the unit in the queue, with *unit*.

    *find_record* returns the record at a log offset, if there is one. Fields of *held* beyond those
    that come from a record are ignored.
    """
    if held is None or not held[1]:
        return Verdict.MISSING
    if (held[0], held[1]) != (unit.log_offset, unit.size_bytes):
        is_leftover = held[0] != unit.log_offset and _claims(find_record(held[0]), unit, is_batch)
        return Verdict.LEFTOVER if is_leftover else Verdict.ELSEWHERE
    return _compare_fields(unit, held, is_batch)


def _compare_fields(unit: ExpectedUnit, held: Sequence[int], is_batch: bool) -> Verdict:
    if is_batch:
        store_time_ms = unit.store_time_ms or held[3]
        if tuple(held[3:6]) != (store_time_ms, *unit.place[2:]):
            return Verdict.COUNT
    code = held[2]
    if code == unit.tags_code:
        return Verdict.RIGHT
    if code <= EXT_ADDRESS_MAX:
        return Verdict.EXTENDED
    return Verdict.DUE if unit.place.topic == SCHEDULE_TOPIC else Verdict.CODE


def _claims(holder: Record | None, unit: ExpectedUnit, is_batch: bool) -> bool:
    """Return whether *holder* is the same message as the record of *unit*, and counts."""
    return (
        holder is not None
        and (holder.offset > unit.log_offset or holder.store_time_ms > unit.store_time_ms)
        and any(place[:3] == unit.place[:3] for place in find_places(holder, is_batch=is_batch))
    )
