"""Clients that share connections: one to the broker, each hears of what is its own."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper import (
    Admin,
    Broker,
    BrokerUnreachableError,
    ClientStateError,
    Connections,
    Consumer,
    Message,
    Producer,
    PullConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.sharing import Sharer
from tests.support.features import needs
from tests.support.hang import HANG_S
from tests.support.turns import until


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


@needs("request_reply")
async def test_all_clients_go_through_one_connection_and_questions_are_answered(
    broker: Broker,
) -> None:
    async with Connections(broker.nameserver) as shared:
        producer = Producer(connections=shared, timeout_s=HANG_S)
        asking = Producer(connections=shared, timeout_s=HANG_S)

        async def answer(message: ReceivedMessage) -> None:
            await producer.reply(message, b"yes")

        answering = Consumer("answering", "questions", handler=answer, connections=shared)
        billing = Consumer("billing", "orders", connections=shared)
        async with producer, asking, answering, billing, Admin(connections=shared) as admin:
            await producer.send("orders", b"x")
            async for message in billing:
                assert message.body == b"x"
                break
            assert (await asking.request(Message("questions", b"?"))).body == b"yes"
            async with PullConsumer("orders", connections=shared) as pulling:
                assert len(await pulling.pull(timeout_s=HANG_S)) == 1
            await admin.topics()
            addresses = [each.address for each in shared.pool.connections]
            assert sorted(addresses) == sorted({broker.address, broker.nameserver})


async def test_a_client_that_closes_leaves_the_others_their_connections(broker: Broker) -> None:
    async with Connections(broker.nameserver) as shared:
        async with Producer(connections=shared, timeout_s=HANG_S) as producer:
            async with Consumer("billing", "orders", connections=shared):
                await producer.send("orders", b"x")
            await producer.send("orders", b"y")
            async with Consumer("billing", "orders", connections=shared) as again:
                async with asyncio.timeout(HANG_S):
                    assert (await anext(aiter(again))).body in (b"x", b"y")


class Listening(Sharer):
    """A client that writes down what it hears of the connections."""

    def __init__(self) -> None:
        self.consumers = {}
        self.heard: list[str] = []

    def connected(self, connection: BrokerConnection) -> None:
        self.heard.append(f"connected to {connection.address}")

    def doubt(self, address: str) -> None:
        self.heard.append(f"cannot reach {address}")


async def test_every_client_hears_of_new_connections_and_of_those_that_fail(
    broker: Broker,
) -> None:
    clients = [Listening(), Listening()]
    async with Connections(broker.nameserver) as shared:
        for client in clients:
            shared.join(client)
        await shared.pool.connect(broker.address)
        with pytest.raises(BrokerUnreachableError):
            await shared.pool.connect("127.0.0.1:1")
    heard = [f"connected to {broker.address}", "cannot reach 127.0.0.1:1"]
    assert [client.heard for client in clients] == [heard, heard]


async def test_members_that_come_are_noticed_by_the_consumer_of_the_group(broker: Broker) -> None:
    async with Producer(broker.nameserver, timeout_s=HANG_S) as producer:
        await producer.send("orders", b"x")
    async with Connections(broker.nameserver) as shared:
        other = Consumer("other", "orders", connections=shared)
        async with other, Consumer("billing", "orders", connections=shared) as first:
            count = len(first.assigned)
            async with Consumer("billing", "orders", nameserver=broker.nameserver):
                await until(lambda: len(first.assigned) < count)
            await until(lambda: len(first.assigned) == count)
            assert len(other.assigned) >= 4


async def test_each_consumer_answers_for_its_own_group(broker: Broker) -> None:
    async with Producer(broker.nameserver, timeout_s=HANG_S) as producer:
        await producer.send("orders", b"x")
    async with Connections(broker.nameserver) as shared, Admin(connections=shared) as admin:
        other = Consumer("other", "orders", connections=shared)
        async with other, Consumer("billing", {"orders": "paid"}, connections=shared):
            for group, wanted in (("other", "*"), ("billing", "paid")):
                state = await admin.groups.state(group)
                assert list(state.filters.values()) == [{"orders": wanted}]


@needs("transactions")
async def test_each_group_is_asked_about_its_own_transactions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"transactionTimeOut": "1", "transactionCheckInterval": "1"}
    asked: list[tuple[str, bytes]] = []

    def checking(group: str, shared: Connections) -> TransactionProducer:
        async def check(message: ReceivedMessage) -> TransactionState:
            asked.append((group, message.body))
            return TransactionState.COMMIT

        return TransactionProducer(group, check=check, connections=shared, timeout_s=HANG_S)

    async with Broker.temporary(settings) as broker, Connections(broker.nameserver) as shared:
        async with checking("paying", shared) as paying, checking("sending", shared) as sending:
            for producer, body in ((paying, b"p"), (sending, b"s")):
                async with producer.transaction(Message("orders", body)) as transaction:
                    transaction.leave_unknown()
            async with Consumer("billing", "orders", connections=shared) as billing:
                async with asyncio.timeout(HANG_S):
                    messages = aiter(billing)
                    assert {(await anext(messages)).body for _ in range(2)} == {b"p", b"s"}
            assert set(asked) == {("paying", b"p"), ("sending", b"s")}
            with pytest.raises(ClientStateError, match="would be checked twice"):
                await checking("paying", shared).start()
    assert "checked a transaction of" not in caplog.text


async def test_what_cannot_be_shared_is_refused(broker: Broker) -> None:
    async with Connections(broker.nameserver) as shared:
        with pytest.raises(ValueError, match="pass them there"):
            Producer("127.0.0.1:1", connections=shared)
        async with Consumer("billing", "orders", connections=shared):
            with pytest.raises(ClientStateError, match="shares these connections already"):
                await Consumer("billing", "orders", connections=shared).start()
