"""WallWaits: waits on one clock for times of another."""

import asyncio

import pytest

from rockhopper.broker.server.loop.wall_waits import WAIT_S_MAX, WallTimer, WallWaits
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


class Looks:
    def __init__(self) -> None:
        self.clock = Clock()
        self.count = 0
        self.looked = asyncio.Event()
        self.timer = WallTimer(self.clock)

    def look(self) -> None:
        self.count += 1
        self.looked.set()


async def test_the_earliest_time_counts() -> None:
    looks = Looks()
    looks.timer.arm(looks.clock.now_ms + 3_600_000, looks.look)
    looks.timer.arm(looks.clock.now_ms, looks.look)
    looks.timer.arm(looks.clock.now_ms + 3_600_000, looks.look)
    await looks.looked.wait()
    assert looks.count == 1


async def test_soon_is_the_next_turn_and_once() -> None:
    looks = Looks()
    looks.timer.retry(3600, looks.look)
    looks.timer.soon(looks.look)
    looks.timer.soon(looks.look)
    looks.timer.arm(looks.clock.now_ms, looks.look)
    for _ in range(3):
        await asyncio.sleep(0)
    assert looks.count == 1


async def test_no_time_overtakes_a_retry() -> None:
    looks = Looks()
    looks.timer.arm(looks.clock.now_ms, looks.look)
    looks.timer.retry(3600, looks.look)
    looks.timer.arm(looks.clock.now_ms, looks.look)
    for _ in range(3):
        await asyncio.sleep(0)
    assert looks.count == 0
    looks.timer.cancel()
    looks.timer.arm(looks.clock.now_ms, looks.look)
    await looks.looked.wait()
    assert looks.count == 1


async def test_what_was_cancelled_calls_nothing() -> None:
    looks = Looks()
    looks.timer.soon(looks.look)
    looks.timer.cancel()
    looks.timer.cancel()
    await asyncio.sleep(0)
    assert looks.count == 0
