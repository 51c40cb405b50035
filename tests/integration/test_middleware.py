"""Middleware around sends, receives and handlers, against our broker."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.client import (
    Consumer,
    Linger,
    Message,
    Middleware,
    Processing,
    Producer,
    PullConsumer,
    ReceivedMessage,
    Receiving,
    Sending,
    SendReceipt,
    TransactionProducer,
    TransactionState,
)
from rockhopper.client.middleware.hooks import ProcessNext, ReceiveNext, SendNext
from tests.support.billing import AT_ONCE
from tests.support.features import needs
from tests.support.hang import HANG_S


class Stamp(Middleware):
    """Stamps what is sent, notes what is received, lets every other message fail once."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.received: list[list[bytes]] = []
        self.processed: list[tuple[bytes, str]] = []
        self.models: set[str | None] = set()

    async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
        self.sent.append(sending.operation)
        for message in sending.messages:
            message.properties["stamp"] = sending.group
        return await call_next(sending)

    async def on_receive(
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        self.models.add(receiving.consumption_model)
        messages = await call_next(receiving)
        self.received.append([message.body for message in messages])
        return [message for message in messages if message.body != b"unwanted"]

    async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
        self.models.add(processing.consumption_model)
        self.processed.append((processing.message.body, processing.group))
        return await call_next(processing)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


@needs("transactions")
async def test_every_way_to_send_goes_through_the_hook(broker: Broker) -> None:
    stamp = Stamp()

    async def check(_message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with TransactionProducer(
        "shop", check=check, nameserver=broker.nameserver, middleware=[stamp]
    ) as producer:
        await producer.send("orders", b"plain", queue=0)
        await producer.send_batch([Message("orders", b"a"), Message("orders", b"b")], queue=0)
        await producer.send_oneway("orders", b"oneway", queue=0)
        async with producer.transaction(Message("orders", b"half")):
            pass
    assert stamp.sent == ["send", "send_batch", "send_oneway", "transaction"]
    async with PullConsumer("orders", nameserver=broker.nameserver) as consumer:
        found: list[ReceivedMessage] = []
        while len(found) < 5:
            found += await consumer.pull(timeout_s=HANG_S)
    assert {message.properties["stamp"] for message in found} == {"shop"}


@needs("request_reply")
async def test_requests_and_replies_go_through_the_hook(broker: Broker) -> None:
    stamp = Stamp()
    async with Producer(broker.nameserver, timeout_s=HANG_S, middleware=[stamp]) as producer:

        async def answer(message: ReceivedMessage) -> None:
            await producer.reply(message, b"42")

        async with Consumer("desk", "questions", nameserver=broker.nameserver, handler=answer):
            reply = await producer.request(Message("questions", b"?"))
    assert (reply.body, reply.properties["stamp"]) == (b"42", "DEFAULT_PRODUCER")
    assert stamp.sent == ["request", "reply"]


async def test_sends_that_linger_still_share_batches(broker: Broker) -> None:
    stamp = Stamp()
    linger = Linger(wait_s=0.001)
    async with Producer(broker.nameserver, linger=linger, middleware=[stamp]) as producer:
        receipts = await asyncio.gather(
            *(producer.send("orders", b"%d" % number, queue=0) for number in range(100))
        )
    assert sorted(receipt.queue_offset for receipt in receipts) == list(range(100))


async def test_loops_batches_and_pulls_go_through_the_hook(broker: Broker) -> None:
    async with Producer(broker.nameserver) as producer:
        for body in (b"unwanted", b"1", b"2", b"3"):
            await producer.send("orders", body, queue=0)
    looped, batched, pulled = Stamp(), Stamp(), Stamp()
    at = broker.nameserver
    bodies = []
    async with Consumer("loop", "orders", middleware=[looped], nameserver=at) as consumer:
        async for message in consumer:
            bodies.append(message.body)
            if message.body == b"3":
                consumer.stop()
    assert bodies == [b"1", b"2", b"3"]
    assert looped.received == [[b"unwanted"], [b"1"], [b"2"], [b"3"], []]
    async with Consumer("batch", "orders", middleware=[batched], nameserver=at) as consumer:
        async for batch in consumer.batches(4, HANG_S):
            assert [message.body for message in batch] == [b"1", b"2", b"3"]
            break
    assert batched.received == [[b"unwanted", b"1", b"2", b"3"]]
    async with PullConsumer("orders", middleware=[pulled], nameserver=at) as puller:
        first = await anext(aiter(puller))
        result = await puller.pull_from(first.queue, 0)
    assert first.body == b"1"
    assert [message.body for message in result.messages] == [b"1", b"2", b"3"]
    assert result.next_offset == 4
    assert (looped.models, pulled.models) == ({"clustering"}, {None})


async def test_handlers_run_within_the_hook(broker: Broker, tmp_path: Path) -> None:
    stamp = Stamp()
    async with Producer(broker.nameserver) as producer:
        await producer.send("orders", b"1")
    done = asyncio.Event()

    async def handle(_message: ReceivedMessage) -> None:
        done.set()

    async with (
        asyncio.timeout(HANG_S),
        Consumer(
            "billing",
            "orders",
            nameserver=broker.nameserver,
            handler=handle,
            middleware=[stamp],
            broadcast=True,
            offsets_directory=tmp_path,
        ),
    ):
        await done.wait()
    assert stamp.processed == [(b"1", "billing")]
    assert stamp.received == []
    assert stamp.models == {"broadcasting"}


class Forgetful(Middleware):
    async def on_receive(  # type: ignore[return]
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        await call_next(receiving)


async def test_what_a_hook_forgets_to_return_comes_again(broker: Broker) -> None:
    async with Producer(broker.nameserver) as producer:
        await producer.send("orders", b"kept")
    with pytest.raises(TypeError, match=r"Forgetful\.on_receive returned None"):
        async with Consumer(
            "billing", "orders", nameserver=broker.nameserver, middleware=[Forgetful()]
        ) as consumer:
            await anext(aiter(consumer))
    async with (
        asyncio.timeout(HANG_S),
        Consumer("billing", "orders", nameserver=broker.nameserver) as consumer,
    ):
        assert (await anext(aiter(consumer))).body == b"kept"
