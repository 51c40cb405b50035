"""Reput: it works when it is woken, in pieces, and a second after a failure that it names once."""

import asyncio

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.dispatch import RETRY_INTERVAL_S, ReputService
from rockhopper.broker.store.files.errors import StoreError
from tests.support.held_clock import HeldClock


class Behind:
    """Pieces that are left, and what goes wrong with the next ones."""

    def __init__(self) -> None:
        self.left = 0
        self.errors: list[Exception] = []
        self.calls = 0

    def catch_up(self) -> bool:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        self.left = max(self.left - 1, 0)
        return self.left > 0


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_never_polls() -> None:
    behind = Behind()
    service = ReputService(behind.catch_up)
    service.start()
    await settle()
    assert behind.calls == 0
    behind.left = 3
    service.wake()
    await settle()
    assert (behind.calls, behind.left) == (3, 0)
    await service.stop()
    service.wake()
    await settle()
    assert behind.calls == 3


@pytest.mark.parametrize("error", [StoreError("no room"), OSError(28, "no space")])
async def test_a_failure_is_tried_again_and_said_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    clock = HeldClock(monkeypatch)
    behind = Behind()
    behind.errors, behind.left = [error, error], 1
    service = ReputService(behind.catch_up)
    service.start()
    with capture_logs() as logs:
        service.wake()
        await settle()
        assert behind.calls == 1
        for _ in range(2):
            clock.advance(RETRY_INTERVAL_S)
            await settle()
    assert (behind.calls, behind.left) == (3, 0)
    assert [entry["log_level"] for entry in logs] == ["error", "info"]
    await service.stop()


async def test_one_that_never_started_stops() -> None:
    await ReputService(lambda: False).stop()
