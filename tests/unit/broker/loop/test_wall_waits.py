"""WallWaits: waits on one clock for times of another."""

import pytest

from rockhopper.broker.loop.wall_waits import WAIT_S_MAX, WallWaits
from tests.support.peers import Clock


def test_short_waits_are_exact_and_long_ones_cut() -> None:
    clock = Clock()
    waits = WallWaits(clock)
    assert waits.seconds(clock.now_ms + 100, 0.0) == pytest.approx(0.1)
    assert waits.seconds(clock.now_ms + 3_600_000, 0.0) == WAIT_S_MAX
    assert waits.seconds(clock.now_ms - 5, 0.0) == 0.0


def test_a_wall_clock_that_runs_faster_shortens_waits() -> None:
    clock = Clock()
    waits = WallWaits(clock)
    waits.seconds(clock.now_ms, 10.0)
    clock.advance(6000)
    assert waits.seconds(clock.now_ms + 120, 10.1) == pytest.approx(0.002)
    clock.advance(100)
    assert waits.seconds(clock.now_ms + 120, 10.2) == pytest.approx(0.12)
