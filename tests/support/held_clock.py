"""A stopped clock of an event loop: a test makes its timers fire."""

import asyncio

import pytest


class HeldClock:
    """Stops the time of the running loop, one of asyncio's own, until the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now_s = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._now_s)

    def advance(self, seconds: float) -> None:
        """Advance the time in one step."""
        self._now_s += seconds
