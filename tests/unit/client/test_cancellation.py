"""A call that is cancelled, wherever it is just then, leaves its client as good as new."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rockhopper.client import Admin, Message, Producer, PullConsumer, TransactionProducer
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.command import Command
from tests.support.hang import HANG_S
from tests.support.message_broker import MessageBroker
from tests.unit.client.sending.test_request_reply import reply_to

# More turns of the loop than any of the calls takes.
TURNS = 60

Call = Callable[[], Awaitable[object]]


@pytest.fixture
async def broker() -> AsyncIterator[MessageBroker]:
    """A broker that replies to every request message at once."""
    async with MessageBroker() as broker:

        async def store_and_reply(request: Command) -> Command:
            answer = broker.store(request)
            properties = broker.stored[-1][1]
            if "CORRELATION_ID" in properties:
                await broker.connections[-1].ask(reply_to(properties))
            return answer

        broker.on(310, store_and_reply)
        broker.on(320, store_and_reply)
        broker.on(30, lambda request: Command(0, ext={"offset": "9"}))
        broker.on(31, lambda request: Command(0, ext={"offset": "0"}))
        yield broker


async def check(message: ReceivedMessage) -> str:
    return "commit"


async def cancel_everywhere(call: Call, connections: Callable[[], None]) -> int:
    """Cancel the call after 0, 1, 2, … turns, and let it succeed after each; count the cancelled.

    `connections` breaks them, so that every other time the call begins with connecting.
    """
    cancelled = 0
    for turns in range(TURNS):
        if turns % 2:
            connections()
        task = asyncio.ensure_future(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            cancelled += 1
        async with asyncio.timeout(HANG_S):
            await call()
    return cancelled


@pytest.fixture
async def problems() -> AsyncIterator[list[str]]:
    """What the loop has to complain of: exceptions that nobody took, tasks that were lost."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(str(context)))
    yield found
    gc.collect()
    await asyncio.sleep(0)
    assert found == []


@pytest.mark.parametrize(
    "name", ["send", "keyed", "batch", "oneway", "request", "recall", "transaction", "local"]
)
@pytest.mark.usefixtures("problems")
async def test_a_producer_survives(broker: MessageBroker, name: str) -> None:
    message = Message("orders", b"x")
    async with TransactionProducer("g", check=check, nameserver=broker.address) as producer:
        delayed = await producer.send(Message("orders", b"x", delay_s=1))

        async def transaction() -> None:
            async with producer.transaction(message):
                await asyncio.sleep(0)

        async def local(_: object) -> str:
            await asyncio.sleep(0)
            return "commit"

        calls: dict[str, Call] = {
            "send": lambda: producer.send(message),
            "keyed": lambda: asyncio.gather(
                *(producer.send(Message("orders", b"x", sharding_key="k")) for _ in range(3))
            ),
            "batch": lambda: producer.send_batch([message, message]),
            "oneway": lambda: producer.send_oneway(message),
            "request": lambda: producer.request(message),
            "recall": lambda: producer.recall(delayed),
            "transaction": transaction,
            "local": lambda: producer.send_in_transaction(message, local),
        }

        def break_connections() -> None:
            producer.session.routes.forget("orders")
            for connection in producer.session.pool.connections:
                connection.abort()

        cancelled = await cancel_everywhere(calls[name], break_connections)
        assert cancelled > 5
        assert len(producer.requests) == 0
        assert len(producer.sender.lanes) == 0
    assert producer.tasks == set()


@pytest.mark.usefixtures("problems")
async def test_an_admin_and_a_pull_consumer_survive(broker: MessageBroker) -> None:
    async with Admin(broker.address) as admin, PullConsumer(nameserver=broker.address) as consumer:
        (queue, *_) = await consumer.queues("orders")

        def break_connections() -> None:
            for client in (admin, consumer):
                for connection in client.session.pool.connections:
                    connection.abort()

        assert await cancel_everywhere(lambda: admin.route("orders"), break_connections) > 3
        assert await cancel_everywhere(lambda: consumer.end_offset(queue), break_connections) > 3


@pytest.mark.usefixtures("problems")
async def test_clients_can_be_closed_while_calls_are_under_way(broker: MessageBroker) -> None:
    for turns in range(0, TURNS, 7):
        producer = await Producer(broker.address, trace=True).start()
        tasks = [
            asyncio.ensure_future(producer.request(Message("orders"), timeout_s=0.2)),
            *(
                asyncio.ensure_future(producer.send(Message("orders", sharding_key="k")))
                for _ in range(3)
            ),
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        await producer.close()
        await asyncio.gather(*tasks, return_exceptions=True)
