"""Closing a client closes every connection that it ever made, however the closing goes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client import Admin, Consumer, Message, Producer, PullConsumer, TransactionProducer
from rockhopper.client.errors import BrokerUnreachableError, ClientStateError
from rockhopper.client.network.connection_pool import QUESTIONS_AT_ONCE_MAX, ConnectionPool
from rockhopper.client.network.credentials import choose_credentials
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.signing import Credentials
from tests.support.fake_server import FakeServer
from tests.support.group_broker import GroupBroker
from tests.support.hang import HANG_S
from tests.support.held_clock import HeldClock
from tests.support.message_broker import MessageBroker
from tests.support.turns import until

# More turns of the loop than any closing takes that nothing holds up.
TURNS = 40

Client = Any
Opened = Callable[[str], Awaitable[Client]]


async def check(message: ReceivedMessage) -> str:
    return "commit"


async def admin(address: str) -> Admin:
    opened = await Admin(address).__aenter__()
    await opened.route("orders")
    return opened


async def producer(address: str) -> Producer:
    opened = await Producer(address).start()
    await opened.send("orders", b"x")
    return opened


async def traced_producer(address: str) -> Producer:
    opened = await Producer(address, trace="orders").start()
    await opened.send("orders", b"x")
    return opened


async def transaction_producer(address: str) -> TransactionProducer:
    opened = await TransactionProducer("g", check=check, nameserver=address).start()
    async with opened.transaction(Message("orders", b"x")):
        pass
    return opened


async def pull_consumer(address: str) -> PullConsumer:
    opened = await PullConsumer("orders", group="billing", nameserver=address).start()
    await opened.pull()
    return opened


async def consumer(address: str) -> Consumer:
    opened = await Consumer("billing", "orders", nameserver=address).start()
    await anext(aiter(opened))
    return opened


async def orderly_consumer(address: str) -> Consumer:
    opened = await Consumer("billing", "orders", nameserver=address, orderly=True).start()
    await anext(aiter(opened))
    return opened


async def handling_consumer(address: str) -> Consumer:
    is_handling = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        is_handling.set()
        await asyncio.Event().wait()

    settings: dict[str, Any] = {"nameserver": address, "close_timeout_s": 0.0}
    opened = await Consumer("billing", "orders", handler=handle, **settings).start()
    await is_handling.wait()
    return opened


PRODUCERS = [admin, producer, traced_producer, transaction_producer]
CONSUMERS = [pull_consumer, consumer, orderly_consumer, handling_consumer]


async def close_interrupted(broker: FakeServer, opened: Opened, turns: int) -> None:
    """Cancel the closing of a client after so many turns of the loop."""
    before = asyncio.all_tasks()
    client = await opened(broker.address)
    closing = asyncio.ensure_future(client.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    async with asyncio.timeout(HANG_S):
        await until(lambda: not broker.connections)
        await until(lambda: asyncio.all_tasks() - broker.answering <= before)


@pytest.mark.parametrize("opened", PRODUCERS)
async def test_a_producer_whose_closing_is_cancelled_leaves_nothing_open(opened: Opened) -> None:
    async with MessageBroker() as broker:
        for turns in range(1, TURNS):
            await close_interrupted(broker, opened, turns)


@pytest.mark.parametrize("opened", CONSUMERS)
async def test_a_consumer_whose_closing_is_cancelled_leaves_nothing_open(opened: Opened) -> None:
    for turns in range(1, TURNS):
        async with GroupBroker() as broker:
            await broker.append(0, b"a", b"b")
            await close_interrupted(broker, opened, turns)


async def test_a_loop_that_ends_while_a_client_closes_leaves_no_socket_open() -> None:
    """asyncio.run cancels what still runs: a task, say, that has just begun to close its client."""

    async def run(address: str, turns: int) -> list[Any]:
        sockets: list[Any] = []
        is_reading = asyncio.Event()

        async def read() -> None:
            async with PullConsumer("orders", nameserver=address) as consumer:
                await consumer.pull()
                for connection in consumer.session.pool.connections:
                    assert connection.transport is not None
                    sockets.append(connection.transport.get_extra_info("socket"))
                is_reading.set()
                await consumer.pull()

        reading = asyncio.create_task(read())
        await is_reading.wait()
        reading.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        return sockets

    async with GroupBroker() as broker:
        await broker.append(0, b"a")
        for turns in range(1, TURNS):
            sockets = await asyncio.to_thread(asyncio.run, run(broker.address, turns))
            assert [each.fileno() for each in sockets] == [-1]


async def test_a_pool_closes_what_was_retired_with_requests_under_way() -> None:
    async with FakeServer() as server:
        server.on(30, lambda _: None)
        pool = ConnectionPool()
        waiting = asyncio.create_task(pool.request(server.address, Command(30), 60))
        await server.wait_for(30)
        pool.retire(server.address)
        await pool.close()
        with pytest.raises(BrokerUnreachableError):
            await waiting
        async with asyncio.timeout(HANG_S):
            await until(lambda: not server.connections)


async def test_a_pool_that_is_closed_while_it_dials_leaves_nothing_open() -> None:
    async with FakeServer() as server:
        for turns in range(TURNS):
            pool = ConnectionPool()
            connecting = asyncio.create_task(pool.connect(server.address))
            for _ in range(turns):
                await asyncio.sleep(0)
            await pool.close()
            await asyncio.wait([connecting])
            if connecting.cancelled() or connecting.exception() is not None:
                with pytest.raises(ClientStateError, match="closed"):
                    await connecting
            async with asyncio.timeout(HANG_S):
                await until(lambda: not server.connections)


async def test_callers_that_share_a_failed_attempt_get_an_error_each() -> None:
    pool = ConnectionPool()
    attempts = [pool.connect("127.0.0.1:1") for _ in range(3)]
    errors = await asyncio.gather(*attempts, return_exceptions=True)
    assert len({id(error) for error in errors}) == 3
    for error in errors:
        assert isinstance(error, BrokerUnreachableError)
        assert str(error) == str(errors[0])
        assert (error.address, error.was_sent) == ("127.0.0.1:1", False)
        assert error.__suppress_context__  # one sentence, and no chain of tracebacks
    await pool.close()


async def test_what_is_under_way_with_an_abandoned_address_fails_and_is_not_told() -> None:
    told: list[str] = []
    pool = ConnectionPool(on_unreachable=told.append)
    async with FakeServer() as server:
        server.on(11, lambda request: None)
        asking = asyncio.ensure_future(pool.request(server.address, Command(11), HANG_S))
        await server.wait_for(11)
        pool.abandon(server.address)
        with pytest.raises(BrokerUnreachableError) as caught:
            await asking
        assert caught.value.was_sent
        dialing = asyncio.ensure_future(pool.connect(server.address))
        await asyncio.sleep(0)
        pool.abandon(server.address)
        with pytest.raises(BrokerUnreachableError, match="is no longer the master"):
            await dialing
        pool.abandon("nobody:1")
        assert told == []
        address = server.address
        await pool.connect(address)
        server.drop_connections()
        await until(lambda: told == [address])
    with pytest.raises(BrokerUnreachableError):
        await pool.connect(address)
    await until(lambda: told == [address] * 2)
    await pool.close()


async def test_who_owes_an_answer_or_a_connection_for_a_second_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ConnectionPool()
    async with FakeServer() as server:
        server.on(310, lambda request: None)
        clock = HeldClock(monkeypatch)
        polling = asyncio.ensure_future(pool.request(server.address, Command(11), HANG_S))
        await server.wait_for(11)
        clock.advance(2)
        assert pool.silent == []
        sending = asyncio.ensure_future(pool.request(server.address, Command(310), HANG_S))
        await server.wait_for(310)
        assert pool.silent == []
        clock.advance(1.1)
        assert pool.silent == [server.address]
        pool.abandon(server.address)
        await asyncio.gather(polling, sending, return_exceptions=True)
        dialing = asyncio.ensure_future(pool.connect(server.address))
        await asyncio.sleep(0)
        clock.advance(1.1)
        assert pool.silent == [server.address]
        await dialing
        assert pool.silent == []
    await pool.close()


async def test_a_credentials_file_that_is_being_replaced_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("accessKey: al\nsecretKey: old\n")
    path.chmod(0o600)
    async with FakeServer() as server:
        server.on(28, lambda _: Command(0))
        pool = ConnectionPool(credentials=choose_credentials(path))
        path.write_text("accessKey: al\n")
        with pytest.raises(BrokerUnreachableError, match=f"{path} has no secretKey"):
            await pool.request(server.address, Command(28), HANG_S)
        path.write_text("accessKey: al\nsecretKey: new\n")
        await pool.request(server.address, Command(28), HANG_S)
        (asked,) = server.requests
        assert asked.ext is not None
        assert asked.ext["AccessKey"] == "al"
        await pool.close()


async def test_a_credentials_file_that_follows_the_broker_is_read_after_a_refusal(
    tmp_path: Path,
) -> None:
    path = tmp_path / "credentials"
    path.write_text("accessKey: al\nsecretKey: old\n")
    path.chmod(0o600)
    refused = Command(int(ResponseCode.NO_PERMISSION))
    async with FakeServer() as server:
        pool = ConnectionPool(credentials=choose_credentials(path))
        first = await pool.connect(server.address)
        pool.refusal(server.address, 28, refused)
        assert await pool.connect(server.address) is first
        path.write_text("accessKey: al\nsecretKey: new\n")
        pool.refusal(server.address, 28, refused)
        second = await pool.connect(server.address)
        assert second.credentials == Credentials("al", "new")
        await pool.close()


async def test_a_question_for_each_of_many_topics_waits_for_its_turn_and_no_message_does() -> None:
    async with FakeServer() as server:
        for code in (30, int(RequestCode.SEND_MESSAGE_V2)):
            server.on(code, lambda _: None)
        pool = ConnectionPool()
        questions = [
            asyncio.create_task(pool.request(server.address, Command(30), HANG_S))
            for _ in range(10_000)
        ]
        await server.wait_for(30, QUESTIONS_AT_ONCE_MAX)
        messages = [
            asyncio.create_task(
                pool.request(server.address, Command(int(RequestCode.SEND_MESSAGE_V2)), HANG_S)
            )
            for _ in range(2 * QUESTIONS_AT_ONCE_MAX)
        ]
        await server.wait_for(int(RequestCode.SEND_MESSAGE_V2), len(messages))
        assert len(server.requests_of(30)) == QUESTIONS_AT_ONCE_MAX
        for task in (*questions, *messages):
            task.cancel()
        await asyncio.wait([*questions, *messages])
        await pool.close()


async def test_requests_beyond_so_many_wait_for_their_turn() -> None:
    async with FakeServer() as server:
        server.on(30, lambda _: None)
        pool = ConnectionPool()
        pool.at_once_max = 2
        await pool.connect(server.address)
        assert pool.ready(server.address) is None
        asked = [
            asyncio.create_task(pool.request(server.address, Command(30), 60)) for _ in range(3)
        ]
        await server.wait_for(30, 2)
        # Connections keep the order, so the third would have come before this one.
        other = asyncio.ensure_future((await pool.connect(server.address)).request(Command(31), 60))
        await server.wait_for(31)
        assert [each.code for each in server.requests].count(30) == 2
        asked[0].cancel()
        await server.wait_for(30, 3)
        await pool.close()
        await asyncio.wait([other, *asked])
