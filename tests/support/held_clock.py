"""A clock of an event loop that stands still: its timers fire when a test says so."""

import asyncio

import pytest


class HeldClock:
    """Holds the time of the running loop, one of asyncio's own, until the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now_s = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._now_s)

    def advance(self, seconds: float) -> None:
        """Let time pass, in one step."""
        self._now_s += seconds
