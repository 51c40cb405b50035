"""Threads for plain handlers: how many, what they see, and that nobody waits for them at exit."""

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest

from rockhopper.client.consuming.face.threads import HandlerThreads
from rockhopper.client.consuming.redelivery import RetryLater, find_retry_later
from rockhopper.tasks import ApplicationCodeError
from tests.support.hang import HANG_S

ROOT = Path(__file__).parents[5]

STUCK = """
import asyncio, threading
from rockhopper.client.consuming.face.threads import HandlerThreads

async def leave():
    began = threading.Event()
    work = lambda: began.set() or threading.Event().wait()
    stuck = asyncio.create_task(HandlerThreads(1).call(work))
    await asyncio.to_thread(began.wait)
    stuck.cancel()

asyncio.run(leave())
print("left")
"""


async def test_as_many_run_at_once_as_it_may_have_and_they_are_used_again() -> None:
    threads = HandlerThreads(3)
    together = threading.Barrier(3)
    names: set[str] = set()

    def work() -> None:
        names.add(threading.current_thread().name)
        together.wait(HANG_S)

    for _ in range(2):
        await asyncio.gather(*(threads.call(work) for _ in range(6)))
    threads.stop()
    assert len(names) == 3


async def test_a_call_sees_the_callers_context_and_its_error_comes_back() -> None:
    tenant = ContextVar("tenant", default="none")
    tenant.set("acme")
    threads = HandlerThreads(1)
    assert await threads.call(tenant.get) == "acme"
    with pytest.raises(ZeroDivisionError):
        await threads.call(divmod, 1, 0)
    with pytest.raises(ApplicationCodeError, match="StopIteration"):
        async with asyncio.timeout(HANG_S):
            await threads.call(next, iter(()))
    threads.stop()


class SpeechlessPanicError(BaseException):
    """As a library's own may be: it cannot say what it is about."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


@pytest.mark.parametrize(
    "raised",
    [SpeechlessPanicError(), asyncio.CancelledError(), concurrent.futures.CancelledError()],
    ids=lambda raised: type(raised).__module__,
)
async def test_what_no_future_can_hold_comes_back_as_the_cause(raised: BaseException) -> None:
    threads = HandlerThreads(1)

    def work() -> None:
        raise raised

    async with asyncio.timeout(HANG_S):
        with pytest.raises(ApplicationCodeError, match=type(raised).__name__) as failure:
            await threads.call(work)
        assert await threads.call(divmod, 7, 2) == (3, 1)  # the thread serves on
    assert failure.value.__cause__ is raised
    threads.stop()


async def test_what_a_panicking_group_asks_for_is_found() -> None:
    threads = HandlerThreads(1)

    def work() -> None:
        raise BaseExceptionGroup("of threads", [asyncio.CancelledError(), RetryLater(delay_s=9)])

    with pytest.raises(ApplicationCodeError) as failure:
        await threads.call(work)
    later = find_retry_later(failure.value)
    assert later is not None
    assert later.delay.after_s == 9
    threads.stop()


async def test_a_cancelled_call_goes_on_and_one_that_waits_never_begins() -> None:
    threads = HandlerThreads(1)
    began, finish, finished = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        finish.wait(HANG_S)
        finished.set()

    running, waiting = (asyncio.create_task(threads.call(each)) for each in (work, began.clear))
    await asyncio.to_thread(began.wait, HANG_S)
    running.cancel()
    waiting.cancel()
    await asyncio.wait([running, waiting])
    threads.stop()
    finish.set()
    await asyncio.to_thread(finished.wait, HANG_S)
    assert began.is_set()
    assert await threads.call(divmod, 7, 2) == (3, 1)  # in threads of its own
    threads.stop()


async def test_threads_end() -> None:
    threads = HandlerThreads(1)
    thread = await threads.call(threading.current_thread)
    threads.stop()
    await asyncio.to_thread(thread.join, HANG_S)
    assert not thread.is_alive()


def test_the_interpreter_does_not_wait_for_them() -> None:
    left = subprocess.run(
        [sys.executable, "-c", STUCK], cwd=ROOT, capture_output=True, timeout=HANG_S, check=True
    )
    assert left.stdout == b"left\n"
