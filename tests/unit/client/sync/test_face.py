"""What wraps the asynchronous clients has their signatures and docstrings."""

import inspect
import threading
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest

from rockhopper import client, sync
from rockhopper.client.sync.face import Face, FacePart, wrap_iterating, wrap_looking, wrap_waiting


def test_signatures_and_docstrings_are_the_asynchronous_ones() -> None:
    there: Any = client.Producer.send
    here: Any = sync.Producer.send
    assert inspect.signature(here) == inspect.signature(there)
    assert here.__doc__ == there.__doc__
    assert "timeout_s" in inspect.signature(sync.Producer).parameters


class Clock:
    """An asynchronous client that counts how often it is opened and closed."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls: list[str] = []
        self._fails = fails

    async def __aenter__(self) -> Self:
        if self._fails:
            raise ConnectionError("no broker")
        self.calls.append("open")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.append("close")

    async def time(self, offset: int = 0) -> int:
        """Return the time."""
        return 12 + offset

    def name(self) -> str:
        """Return the thread that asks."""
        return threading.current_thread().name

    async def ticks(self, count: int) -> AsyncIterator[int]:
        """Tick."""
        try:
            for tick in range(count):
                yield tick
        finally:
            self.calls.append("end of ticks")


class SyncClock(Face[Clock]):
    time = wrap_waiting(Clock.time)
    name = wrap_looking(Clock.name)
    ticks = wrap_iterating(Clock.ticks)

    @property
    def calls(self) -> list[str]:
        return self._client.calls


def test_the_first_call_opens_and_the_end_of_the_block_closes() -> None:
    with SyncClock(Clock) as clock:
        assert (clock.time(), clock.time(offset=1)) == (12, 13)
        clock.start()
    clock.close()
    assert clock.calls == ["open", "close"]


def test_calls_are_made_in_the_thread_of_the_loop() -> None:
    with SyncClock(Clock) as clock:
        assert clock.name() == "rockhopper-sync"


def test_a_loop_that_is_left_early_ends_the_asynchronous_one() -> None:
    with SyncClock(Clock) as clock:
        assert list(clock.ticks(2)) == [0, 1]
        ticks = clock.ticks(9)
        assert next(ticks) == 0
        ticks.close()  # type: ignore[attr-defined]
        assert clock.calls == ["open", "end of ticks", "end of ticks"]


def test_a_client_that_cannot_be_opened_is_not_closed_and_may_be_opened_later() -> None:
    clock = SyncClock(Clock, fails=True)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="no broker"):
            clock.time()
    clock.close()
    assert clock.calls == []


def test_a_part_calls_what_belongs_to_the_client() -> None:
    class Hands(FacePart[Any]):
        count_ticks = wrap_iterating(Clock.ticks)
        time = wrap_waiting(Clock.time)

    with SyncClock(Clock) as clock:
        assert Hands(clock, lambda client: client).time(offset=3) == 15
