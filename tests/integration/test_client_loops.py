"""A client that is used in another event loop than its own: every use fails and says why."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from rockhopper.broker.testing.threaded import ThreadedBroker
from rockhopper.client import (
    Admin,
    ClientStateError,
    Consumer,
    Message,
    Producer,
    PullConsumer,
    TransactionProducer,
)
from rockhopper.client.received import ReceivedMessage
from tests.support.hang import HANG_S

Call = Callable[[], Awaitable[object]]


async def check(message: ReceivedMessage) -> str:
    return "commit"


@pytest.fixture
def own() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_every_call_in_another_loop_says_so_and_the_client_stays_usable_in_its_own(
    own: asyncio.Runner,
) -> None:
    with ThreadedBroker() as broker:
        producer = Producer(broker.nameserver, trace=True)
        admin = Admin(broker.nameserver)
        consumer = Consumer("billing", "orders", nameserver=broker.nameserver)
        pulling = PullConsumer(nameserver=broker.nameserver)
        transactions = TransactionProducer("g", check=check, nameserver=broker.nameserver)
        clients = (producer, admin, consumer, pulling, transactions)

        async def start() -> None:
            for client in clients:
                await client.__aenter__()

        async def transaction() -> None:
            async with transactions.transaction(Message("orders")):
                pass

        async def first() -> object:
            return await anext(aiter(consumer))

        calls: list[Call] = [
            lambda: producer.send("orders", b"x"),
            lambda: producer.send(Message("orders", b"x", sharding_key="k")),
            lambda: producer.send_oneway("orders", b"x"),
            lambda: producer.request(Message("orders"), timeout_s=1),
            lambda: producer.queues("orders"),
            transaction,
            lambda: admin.topics(),
            lambda: pulling.pull(timeout_s=1),
            lambda: pulling.queues("orders"),
            first,
            lambda: consumer.commit(),
            *(client.close for client in clients),
        ]

        async def all_refuse() -> None:
            for call in calls:
                async with asyncio.timeout(HANG_S):
                    with pytest.raises(ClientStateError, match="another event loop"):
                        await call()

        async def still_usable() -> None:
            receipt = await producer.send("orders", b"x")
            message = await first()
            assert isinstance(message, ReceivedMessage)
            assert message.message_id == receipt.message_id
            for client in clients:
                await client.close()

        own.run(start())
        with asyncio.Runner() as other:
            other.run(all_refuse())
        own.run(still_usable())
