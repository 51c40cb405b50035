"""What the growth suite says of two costs."""

import pytest

from benchmarks.growth import BOUNDED, CONSTANT, LINEAR, STALL_MS, TABLE, Cost, Operation, grown


def _operation(kind: str) -> Operation:
    return Operation("one", lambda _broker, _n: print, 10, 1, kind)


def _cost(cpu_us: float = 100.0, written: float = 100.0, turn_ms: float = 1.0) -> Cost:
    return Cost(cpu_us, written, turn_ms, [])


@pytest.mark.parametrize(
    ("kind", "large", "faults"),
    [
        (CONSTANT, _cost(140), []),
        (CONSTANT, _cost(400), ["CPU grows"]),
        (CONSTANT, _cost(written=20_000), ["written grows"]),
        (CONSTANT, _cost(turn_ms=STALL_MS + 1), ["blocks the loop"]),
        (LINEAR, _cost(1400, 1400), []),
        (LINEAR, _cost(4000), ["CPU grows"]),
        (BOUNDED, _cost(90_000), []),
        (BOUNDED, _cost(turn_ms=STALL_MS + 1), ["blocks the loop"]),
    ],
)
def test_a_cost_that_grows_by_more_than_half_is_a_fault(
    kind: str, large: Cost, faults: list[str]
) -> None:
    assert grown(_operation(kind), _cost(), large) == faults


def test_a_small_difference_is_no_growth() -> None:
    assert grown(_operation(CONSTANT), _cost(10, 10), _cost(60, 5000)) == []


def test_each_operation_has_a_name_of_its_own() -> None:
    assert len({operation.name for operation in TABLE}) == len(TABLE)
