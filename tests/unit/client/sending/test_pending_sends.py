"""Closing a producer waits for the sends that have begun, wherever they wait."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.client import Linger, Message, Producer
from rockhopper.client.sending import outgoing
from rockhopper.client.sending.group_sender import IN_FLIGHT_MAX
from rockhopper.client.sending.pending_sends import PendingSends
from rockhopper.protocol.command import Command
from tests.support.fake_server import FakeServer, route
from tests.support.held_call import HeldCall
from tests.unit.client.test_producer import stored


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        for code in (34, 35):
            server.on(code, lambda request: Command(0))
        server.on(310, stored(1))
        server.on(320, stored(100))
        server.serve_routes({"orders": route({"a": server.address})})
        yield server


async def test_the_wait_ends_with_the_last_send() -> None:
    pending = PendingSends()
    await pending.wait_until_none()
    with pending:
        waiting = asyncio.ensure_future(pending.wait_until_none())
        with pending:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_closing_waits_for_every_send(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress = HeldCall(result=b"smaller")
    monkeypatch.setattr(outgoing, "compress_zlib", compress)
    producer = await Producer(server.address, timeout_s=30).start()
    keyed = [Message("orders", b"%d" % number, sharding_key="k") for number in range(3)]
    sends = [
        asyncio.ensure_future(send)
        for send in (
            producer.send("orders", bytes(100_000)),
            producer.send_many(keyed * 10),
            producer.send_batch(keyed),
            *map(producer.send, keyed),
            *(producer.send("orders", b"x") for _ in range(IN_FLIGHT_MAX + 1)),
        )
    ]
    await compress.has_begun.wait()
    assert await compress.is_awaited_by(producer.close())
    assert not [each for each in sends if not each.done() or each.exception()]


async def test_closing_waits_for_a_message_that_would_linger(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress = HeldCall(result=b"smaller")
    monkeypatch.setattr(outgoing, "compress_zlib", compress)
    producer = await Producer(server.address, linger=Linger(3600), timeout_s=30).start()
    plain = asyncio.ensure_future(producer.send("orders", bytes(100_000)))
    other = asyncio.ensure_future(producer.send(Message("orders", bytes(100_000), tags="t")))
    await compress.has_begun.wait()
    assert await compress.is_awaited_by(producer.close())
    assert plain.result()
    assert other.result()
