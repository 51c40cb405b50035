"""Calls over one connection: each gets its own response, or learns that none will come."""

import asyncio

import pytest

from rockhopper.broker.server.remoting.pending_calls import PendingCalls
from rockhopper.protocol.command import Command


async def test_each_call_gets_its_own_response_in_any_order() -> None:
    calls = PendingCalls()
    first, second = calls.next_opaque(), calls.next_opaque()
    responses = [calls.expect(first), calls.expect(second)]
    calls.resolve(Command(code=2, opaque=second))
    calls.resolve(Command(code=1, opaque=first))
    assert [response.code for response in await asyncio.gather(*responses)] == [1, 2]


async def test_a_response_that_nobody_expects_is_ignored() -> None:
    calls = PendingCalls()
    given_up = calls.expect(calls.next_opaque())
    given_up.cancel()
    calls.resolve(Command(code=0, opaque=1))
    calls.resolve(Command(code=0, opaque=1))
    late = calls.expect(calls.next_opaque())
    calls.forget(2)
    calls.resolve(Command(code=0, opaque=2))
    assert not late.done()


async def test_a_lost_connection_fails_every_open_call_once() -> None:
    calls = PendingCalls()
    answered, given_up, failed = (calls.expect(calls.next_opaque()) for _ in range(3))
    calls.resolve(Command(code=0, opaque=1))
    given_up.cancel()
    calls.fail("it closed the connection")
    calls.fail("it closed the connection again")
    assert (await answered).code == 0
    with pytest.raises(ConnectionResetError, match=r"it closed the connection$"):
        await failed
