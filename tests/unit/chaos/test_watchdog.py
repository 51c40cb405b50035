"""A round that hangs ends with the stacks of its tasks; one that goes on is left alone."""

import asyncio
import queue
import threading

import pytest

from tests.chaos.watchdog import EXIT_CODE, Watchdog


async def test_what_hangs_is_named_with_the_stacks(capfd: pytest.CaptureFixture[str]) -> None:
    ended = queue.Queue[int]()
    async with Watchdog("flood seed 7", limit_s=0.01, end=ended.put):
        assert await asyncio.to_thread(ended.get) == EXIT_CODE
    said = capfd.readouterr().err
    assert said.startswith("flood seed 7 hangs for 0.01 s:")
    assert "test_what_hangs_is_named_with_the_stacks" in said


async def test_what_goes_on_is_left_alone() -> None:
    def timers() -> set[threading.Timer]:
        return {one for one in threading.enumerate() if isinstance(one, threading.Timer)}

    others = timers()
    async with Watchdog("flood") as watchdog:
        (first,) = timers() - others
        watchdog.reset()
        assert first.finished.is_set()
        (second,) = {one for one in timers() - others if not one.finished.is_set()}
    assert second.finished.is_set()
