"""The difference of two clocks is what the quickest beat shows."""

import pytest

from rockhopper.broker.replication.shipping.clock_difference import (
    DIFFERENCE_MS_MAX,
    WINDOW_MS,
    ClockDifference,
)


class Clocks:
    """One that never goes back, and the wall clock of the same machine."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.ahead_ms = 0
        self.difference = ClockDifference(lambda: self.now_ms, self.wall_ms)

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + self.now_ms + self.ahead_ms

    def beat(self, way_ms: int = 1) -> None:
        """One of a master whose clock is right."""
        self.now_ms += 250
        self.difference.beat(1_800_000_000_000 + self.now_ms - way_ms)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.mark.parametrize("ahead_ms", [0, 600_000, -600_000])
def test_what_is_held_up_on_its_way_makes_no_difference(clocks: Clocks, ahead_ms: int) -> None:
    clocks.ahead_ms = ahead_ms
    for way_ms in (900, 3, 2500):
        clocks.beat(way_ms)
    assert clocks.difference.ahead_ms == ahead_ms + 3


def test_a_clock_that_was_set_right_is_right_after_some_seconds(clocks: Clocks) -> None:
    clocks.ahead_ms = -60_000
    clocks.beat()
    assert "60.0 s behind the master's" in clocks.difference.problem
    clocks.ahead_ms = 0
    for _ in range(WINDOW_MS // 250 + 1):
        clocks.beat()
    assert clocks.difference.problem == ""


def test_less_than_seconds_is_let_be(clocks: Clocks) -> None:
    clocks.ahead_ms = DIFFERENCE_MS_MAX - 100
    clocks.beat()
    assert clocks.difference.problem == ""
    clocks.ahead_ms = DIFFERENCE_MS_MAX
    clocks.now_ms += WINDOW_MS
    clocks.beat()
    assert "2.0 s ahead of the master's" in clocks.difference.problem


def test_without_a_master_nothing_is_known(clocks: Clocks) -> None:
    assert clocks.difference.ahead_ms is None
    clocks.beat()
    clocks.now_ms += WINDOW_MS + 1
    assert clocks.difference.ahead_ms is None
    assert clocks.difference.problem == ""
