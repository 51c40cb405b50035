"""Ending tasks: all are cancelled now, and waited for however they end."""

import asyncio

from rockhopper.client.network.tasks import end_tasks, let_go


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
