"""Tasks: none fails in silence, and all that are ended are waited for however they end."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rockhopper.tasks import (
    ApplicationCodeError,
    complete_in_thread,
    end_task,
    end_tasks,
    gather_some_at_a_time,
    keep_running,
    leave_behind,
    let_go,
    run_apart,
    run_in_background,
    start_task,
)
from tests.support.held_call import HeldCall
from tests.support.turns import until


async def test_all_end_however_they_do() -> None:
    begun = asyncio.Event()

    async def stubborn() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("at the end") from None

    tasks = [asyncio.ensure_future(stubborn()), asyncio.ensure_future(asyncio.Event().wait())]
    await begun.wait()
    outcomes = await end_tasks([tasks[0], None, tasks[1]])
    assert isinstance(outcomes[0], RuntimeError)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert all(task.done() for task in tasks)


async def test_they_are_cancelled_even_if_nobody_waits() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    ending = end_tasks([task])
    await asyncio.sleep(0)
    assert task.cancelled()
    await ending


async def test_no_tasks_end_at_once() -> None:
    assert await end_tasks([None]) == []


async def test_a_cancelled_caller_makes_none_of_the_requests_whose_turn_has_not_come() -> None:
    made: list[int] = []

    def ask(number: int) -> Coroutine[Any, Any, bool]:
        made.append(number)
        return asyncio.Event().wait()

    gathering = asyncio.ensure_future(gather_some_at_a_time(ask, range(10), at_a_time=2))
    await until(lambda: len(made) == 2)
    await end_tasks([gathering])
    assert gathering.cancelled()
    assert made == [0, 1]


async def test_a_request_that_is_let_go_is_cancelled_or_its_error_is_looked_at() -> None:
    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    pending: asyncio.Future[None] = loop.create_future()
    failed: asyncio.Future[None] = loop.create_future()
    failed.set_exception(RuntimeError("no answer"))
    let_go(pending)
    let_go(failed)
    let_go(pending)
    assert pending.cancelled()
    del failed
    assert complaints == []


class PanicError(BaseException):
    """Derives from BaseException, as the panics of compiled libraries."""


async def panic() -> None:
    raise PanicError("boom")


async def let_a_cancellation_out() -> None:
    raise asyncio.CancelledError


FAILURES = pytest.mark.parametrize("failing", [panic, let_a_cancellation_out])


async def test_what_fails_in_the_background_is_logged_and_its_owner_hears_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[BaseException] = []
    run_in_background(panic(), "reading", on_failure=heard.append)
    await until(lambda: bool(heard))
    assert isinstance(heard[0], PanicError)
    assert "reading has ended: PanicError('boom')" in caplog.text
    assert "Traceback" in caplog.text


@FAILURES
async def test_what_is_to_be_kept_running_begins_again(
    failing: Callable[[], Coroutine[Any, Any, None]], caplog: pytest.LogCaptureFixture
) -> None:
    calls = []
    again = asyncio.Event()

    async def work() -> None:
        calls.append(1)
        if len(calls) < 3:
            await failing()
        again.set()

    task = keep_running(work, "reading", pause_s=0.0)
    await again.wait()
    await task
    assert caplog.text.count("reading failed and begins again") == 2


async def test_a_task_that_other_code_cancels_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[BaseException] = []
    kept = keep_running(asyncio.Event().wait, "reading", on_failure=heard.append)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    kept.cancel()
    await until(lambda: bool(heard))
    assert isinstance(heard[0], asyncio.CancelledError)
    assert "reading has ended: other code of this process has cancelled its task" in caplog.text


async def test_a_task_that_is_ended_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[BaseException] = []
    kept = keep_running(asyncio.Event().wait, "reading", on_failure=heard.append)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await end_tasks([kept])
    assert not heard
    assert not caplog.text


@FAILURES
async def test_application_code_apart_raises_an_exception_whatever_it_raised(
    failing: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    with pytest.raises(ApplicationCodeError) as raised:
        await run_apart(failing)
    assert isinstance(raised.value.__cause__, PanicError | asyncio.CancelledError)


async def test_application_code_apart_returns_and_raises_as_it_does() -> None:
    async def doubled(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return 2 * number

    assert await run_apart(doubled, 2) == 4
    with pytest.raises(ValueError, match="-1"):
        await run_apart(doubled, -1)


async def test_cancelling_the_caller_cancels_the_application_code() -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    async def wait() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    caller = start_task(run_apart(wait))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == ["cancelled"]


async def test_a_failure_at_its_end_does_not_take_a_cancellation_away() -> None:
    begun = asyncio.Event()

    async def fail_when_cancelled() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("no disk") from None

    caller = start_task(run_apart(fail_when_cancelled))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_caller_with_a_cancellation_behind_it_may_go_on() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    try:
        with pytest.raises(ApplicationCodeError):
            await run_apart(let_a_cancellation_out)
    finally:
        task.uncancel()


def test_an_exit_ends_the_program() -> None:
    async def leave() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        asyncio.run(run_apart(leave))


def test_a_program_that_ends_says_nothing_of_its_tasks(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        run_in_background(asyncio.Event().wait(), "reading")
        await asyncio.sleep(0)

    asyncio.run(main())
    assert not caplog.text


def test_a_program_ends_though_code_that_was_left_behind_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inside, cancelled = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        while True:
            inside.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()

    async def work() -> None:
        await run_apart(stubborn)

    async def program() -> None:
        task = start_task(work())
        await inside.wait()
        end_task(task)
        await cancelled.wait()
        leave_behind([task])
        assert not task.done()

    asyncio.run(program())
    gc.collect()
    assert not caplog.text  # asyncio would log that the tasks were destroyed


@pytest.mark.parametrize("error", [None, OSError("the disk has gone")])
async def test_a_cancelled_caller_waits_for_its_thread(error: OSError | None) -> None:
    held = HeldCall(error)
    caller = start_task(complete_in_thread(held))

    async def cancel() -> None:
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    assert await held.is_awaited_by(cancel())


async def test_a_thread_hands_over_its_result_or_its_error() -> None:
    assert await complete_in_thread(int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await complete_in_thread(int, "seven")


def test_what_was_not_left_behind_is_cancelled_at_the_end_of_a_program() -> None:
    ended: list[str] = []

    async def patient() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("patient")

    async def program() -> None:
        other = start_task(run_apart(patient))
        await asyncio.sleep(0)
        leave_behind([])
        assert not other.done()

    asyncio.run(program())
    assert ended == ["patient"]
