"""Slices: one of all long requests in each turn of the loop, and one thread of a kind."""

import asyncio
import threading
from collections import Counter
from unittest.mock import Mock

from rockhopper.broker.server.loop.cooperative_work import next_slice, run_in_thread
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Dispatcher, Request, Response, serves
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.command import Command
from tests.support.raw_peer import until

LONG = 900


class Turns:
    """Which turn the loop is in."""

    def __init__(self) -> None:
        self.number = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.number += 1
        self._handle = self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


async def test_however_many_go_on_one_slice_is_served_in_a_turn() -> None:
    turns, seen, order = Turns(), Counter[int](), list[int]()

    async def work(number: int) -> None:
        for _ in range(5):
            await next_slice()
            seen[turns.number] += 1
            order.append(number)

    await asyncio.gather(*(work(number) for number in range(40)))
    turns.stop()
    assert max(seen.values()) == 1
    assert order == list(range(40)) * 5


async def test_who_gives_up_waiting_keeps_nobody_from_going_on() -> None:
    waiting = [asyncio.ensure_future(next_slice()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await waiting[2]


async def test_long_requests_of_one_connection_begin_one_in_a_turn() -> None:
    turns, begun = Turns(), Counter[int]()

    async def process(_request: Request) -> Response:
        begun[turns.number] += 1
        return Response()

    dispatcher = Dispatcher({LONG: serves(process)}, AccessRules(remote_admin=False))
    connection = Mock(RemotingConnection)
    for opaque in range(100):
        dispatcher.dispatch(connection, Command(LONG, opaque))
    await until(lambda: connection.write.call_count == 100)
    turns.stop()
    assert max(begun.values()) == 1


async def test_threads_of_a_kind_work_one_after_the_other() -> None:
    under_way, most = [0], [0]
    is_first_in, may_go_on = threading.Event(), threading.Event()

    def work() -> None:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        is_first_in.set()
        may_go_on.wait()
        under_way[0] -= 1

    tasks = [asyncio.create_task(run_in_thread("answers", work)) for _ in range(4)]
    await asyncio.to_thread(is_first_in.wait)
    # Another kind does not wait for them.
    assert await run_in_thread("bodies", lambda: 7) == 7
    may_go_on.set()
    await asyncio.gather(*tasks)
    assert most == [1]
