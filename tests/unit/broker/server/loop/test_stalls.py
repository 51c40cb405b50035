"""The watchdog of the event loop counts what keeps it, and nothing else."""

from collections.abc import Iterator

import pytest

from rockhopper.broker.server.loop.stalls import TICK_S, StallWatchdog
from tests.support.stepped_loop import SteppedLoop


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    made = SteppedLoop()
    yield made
    made.close()


def watched(loop: SteppedLoop) -> StallWatchdog:
    watchdog = StallWatchdog(clock=loop.time)

    async def start() -> None:
        watchdog.start()

    loop.run(start())
    return watchdog


def test_ticks_in_time_are_no_stall(loop: SteppedLoop) -> None:
    watchdog = watched(loop)
    for _ in range(50):
        loop.advance(TICK_S)
    loop.advance(TICK_S + 0.019)
    assert (watchdog.count, watchdog.longest_s) == (0, 0.0)


def test_a_tick_that_comes_late_is_a_stall(loop: SteppedLoop) -> None:
    watchdog = watched(loop)
    loop.advance(TICK_S + 0.5)
    loop.advance(TICK_S)
    loop.advance(TICK_S + 0.1)
    assert watchdog.count == 2
    assert watchdog.longest_s == pytest.approx(0.5)
    assert watchdog.total_s == pytest.approx(0.6)


def test_a_stopped_watchdog_measures_nothing(loop: SteppedLoop) -> None:
    watchdog = watched(loop)
    watchdog.stop()
    loop.advance(5)
    assert watchdog.count == 0
