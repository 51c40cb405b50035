"""A round that hangs ends with the stacks of its tasks, and cancelling a peer ends it."""

import asyncio
import queue

import pytest

from protocol.codes import RequestCode
from protocol.command import Command
from tests.chaos.watchdog import EXIT_CODE, Watchdog
from tests.support.wire import WireClient


async def test_what_hangs_is_named_with_the_stacks(capfd: pytest.CaptureFixture[str]) -> None:
    ended = queue.Queue[int]()
    with Watchdog("flood seed 7", limit_s=0.01, end=ended.put):
        assert await asyncio.to_thread(ended.get) == EXIT_CODE
    said = capfd.readouterr().err
    assert said.startswith("flood seed 7 hangs for 0.01 s:")
    assert "test_what_hangs_is_named_with_the_stacks" in said


async def test_what_goes_on_is_left_alone() -> None:
    ended = queue.Queue[int]()
    with Watchdog("flood", end=ended.put) as watchdog:
        watchdog.reset()
    assert ended.empty()


async def test_a_request_is_cancelled_although_its_answer_has_just_come() -> None:
    answer = Command(code=0, opaque=1)
    client = WireClient("127.0.0.1:1")
    sent = asyncio.get_running_loop().create_future()
    client.send = lambda *_: sent  # type: ignore[method-assign]
    asking = asyncio.create_task(client.ask(RequestCode.PULL_MESSAGE))
    await asyncio.sleep(0)
    sent.set_result(answer)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
