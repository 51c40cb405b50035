"""Time that the loop itself lost is counted, and waiting is not."""

import asyncio

import pytest

from rockhopper.client.sending.stalls import StallMeter
from tests.support.held_clock import HeldClock


async def test_only_time_in_which_the_loop_was_busy_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = HeldClock(monkeypatch)
    loop = asyncio.get_running_loop()
    meter = StallMeter(loop)
    for _ in range(40):
        clock.advance(0.125)
        passed = asyncio.Event()
        loop.call_later(0, passed.set)
        await passed.wait()
    clock.advance(20.25)
    assert meter.stop() == pytest.approx(20)
