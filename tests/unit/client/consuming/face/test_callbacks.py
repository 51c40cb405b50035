"""A callback that fails or hangs keeps no queue from anybody."""

import asyncio

import pytest

from rockhopper.client.consuming.face.callbacks import QueueCallbacks
from rockhopper.client.queues import MessageQueue
from rockhopper.tasks import start_task

QUEUES = [MessageQueue("orders", "a", 1), MessageQueue("orders", "a", 0)]


async def test_it_gets_the_queues_sorted_and_none_is_no_call() -> None:
    calls: list[list[MessageQueue]] = []

    async def note(queues: list[MessageQueue]) -> None:
        calls.append(queues)

    callbacks = QueueCallbacks(note, note)
    await callbacks.assigned(QUEUES)
    await callbacks.revoked([])
    assert calls == [QUEUES[::-1]]


@pytest.mark.parametrize("hangs", [False, True])
async def test_what_goes_wrong_is_logged(hangs: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_queues: object) -> None:
        if hangs:
            await asyncio.Event().wait()
        raise RuntimeError("no disk")

    await QueueCallbacks(on_revoked=fail, timeout_s=0.01 if hangs else 60).revoked(QUEUES)
    assert ("took longer than 0.01 s" if hangs else "on_revoked failed") in caplog.text


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_rebalance_ends_whatever_the_callback_makes_of_it(fails: bool) -> None:
    begun = asyncio.Event()

    async def swallow(_queues: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if fails:
                raise RuntimeError("no disk") from None

    telling = start_task(QueueCallbacks(on_assigned=swallow).assigned(QUEUES))
    await begun.wait()
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
