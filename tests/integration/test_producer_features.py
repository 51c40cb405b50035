"""Order, transactions, requests, recalls and traces: our producers against our broker."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.client import (
    Admin,
    Consumer,
    Linger,
    Message,
    Producer,
    PullConsumer,
    RequestRefusedError,
    TransactionProducer,
)
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.transactions import Transaction
from tests.support.features import needs
from tests.support.hang import HANG_S

SETTINGS = {"transactionTimeOut": 50, "transactionCheckInterval": 50}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(SETTINGS) as broker:
        yield broker


async def read(broker: Broker, topic: str, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    async with PullConsumer(topic, nameserver=broker.nameserver) as consumer:
        while len(messages) < count:
            found = await consumer.pull(count - len(messages), timeout_s=HANG_S)
            assert found, f"{len(messages)} of {count} messages came"
            messages += found
    return messages


async def test_a_thousand_sends_of_20_keys_at_once_keep_the_order_of_each_key(
    broker: Broker, producer: Producer
) -> None:
    await asyncio.gather(
        *(
            producer.send(Message("orders", b"%d" % number, sharding_key=f"c-{number % 20}"))
            for number in range(1000)
        )
    )
    by_key: dict[int, list[int]] = defaultdict(list)
    queues: dict[int, set[int]] = defaultdict(set)
    for message in await read(broker, "orders", 1000):
        number = int(message.body)
        by_key[number % 20].append(number)
        queues[number % 20].add(message.queue_id)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert all(len(each) == 1 for each in queues.values())


async def test_sends_that_linger_are_where_their_receipts_say(broker: Broker) -> None:
    linger = Linger(wait_s=0.001, count_max=300)
    async with Producer(broker.nameserver, linger=linger, timeout_s=HANG_S) as producer:
        bodies = [b"%d" % number for number in range(1000)]
        await asyncio.gather(*(producer.send("linger", body) for body in bodies))
        ordered = await asyncio.gather(*(producer.send("one", body, queue=0) for body in bodies))
    assert sorted(message.body for message in await read(broker, "linger", 1000)) == sorted(bodies)
    found = await read(broker, "one", 1000)
    assert [message.body for message in found] == bodies
    assert [(message.message_id, message.queue_offset) for message in found] == [
        (receipt.message_id, receipt.queue_offset) for receipt in ordered
    ]


@needs("transactions")
async def test_transactions_commit_and_roll_back() -> None:
    asked: list[str] = []

    async def check(message: ReceivedMessage) -> str:
        asked.append(message.keys[0])
        return "unknown"

    async with Broker.temporary({"transactionTimeOut": 3_600_000}) as broker:
        nameserver = broker.nameserver
        async with TransactionProducer("g", check=check, nameserver=nameserver) as producer:
            with pytest.raises(KeyError):
                async with producer.transaction(Message("orders", b"dropped", keys="dropped")):
                    raise KeyError
            async with producer.transaction(Message("orders", b"kept", keys="kept")) as kept:
                pass
            assert kept.is_confirmed
            (found,) = await read(broker, "orders", 1)
    assert (found.body, found.message_id) == (b"kept", kept.message_id)
    assert asked == []


@needs("transactions")
async def test_transactions_that_stay_unknown_are_checked(broker: Broker) -> None:
    asked: list[str] = []

    async def check(message: ReceivedMessage) -> str:
        asked.append(message.keys[0])
        return "commit" if message.keys[0] == "checked" else "rollback"

    async def forget(transaction: Transaction) -> str:
        return "unknown"

    async with TransactionProducer("g", check=check, nameserver=broker.nameserver) as producer:
        for key in ("abandoned", "checked"):
            await producer.send_in_transaction(Message("orders", key.encode(), keys=key), forget)
        (found,) = await read(broker, "orders", 1)
    assert found.body == b"checked"
    assert set(asked) <= {"checked", "abandoned"}


@needs("transactions")
async def test_a_producer_that_comes_back_is_asked_about_what_it_left(broker: Broker) -> None:
    asked = asyncio.Event()

    async def check(message: ReceivedMessage) -> str:
        asked.set()
        return "commit"

    async def never(message: ReceivedMessage) -> str:
        return "unknown"

    async with TransactionProducer("g", check=never, nameserver=broker.nameserver) as first:
        async with first.transaction(Message("orders", b"left behind")) as transaction:
            transaction.leave_unknown()
    # The new one sends nothing.
    async with TransactionProducer("g", check=check, nameserver=broker.nameserver):
        async with asyncio.timeout(HANG_S):
            await asked.wait()
        (found,) = await read(broker, "orders", 1)
    assert found.body == b"left behind"


@contextlib.asynccontextmanager
async def answering(broker: Broker, topic: str, producer: Producer) -> AsyncIterator[None]:
    """Reply to every request of a topic."""

    async def answer() -> None:
        async with PullConsumer(topic, nameserver=broker.nameserver) as consumer:
            async for message in consumer:
                await producer.reply(message, b"re " + message.body, properties={"k": "v"})

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@needs("request_reply")
async def test_requests_are_replied_to(broker: Broker, producer: Producer) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("questions", queues=2)
    async with (
        Producer(broker.nameserver, group="answering") as other,
        answering(broker, "questions", other),
    ):
        replies = await asyncio.gather(
            *(
                producer.request(Message("questions", b"%d" % number), timeout_s=20)
                for number in range(50)
            )
        )
        large = await producer.request(Message("questions", b"x" * 100_000), timeout_s=20)
    assert [reply.body for reply in replies] == [b"re %d" % number for number in range(50)]
    assert replies[0].properties["k"] == "v"
    assert large.body == b"re " + b"x" * 100_000


@needs("request_reply")
async def test_a_reply_to_somebody_who_has_gone_says_so(broker: Broker, producer: Producer) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("questions", queues=1)
    async with Producer(broker.nameserver, group="impatient") as asking:
        waiting = asyncio.create_task(asking.request(Message("questions", b"quick"), timeout_s=60))
        (request,) = await read(broker, "questions", 1)
        waiting.cancel()
        await asyncio.wait([waiting])
    with pytest.raises(RequestRefusedError, match="channel"):
        await producer.reply(request, b"slow")


async def test_a_recalled_message_is_not_delivered(broker: Broker, producer: Producer) -> None:
    now_ms = time.time_ns() // 1_000_000
    kept = await producer.send(Message("later", b"kept", deliver_at_ms=now_ms + 1500))
    recalled = await producer.send(Message("later", b"recalled", delay_s=1.5))
    assert await producer.recall(recalled) == recalled.message_id
    last = await producer.send(Message("later", b"last", deliver_at_ms=now_ms + 1501))
    found = await read(broker, "later", 2)
    assert {message.message_id for message in found} == {kept.message_id, last.message_id}
    assert min(message.store_time_ms for message in found) >= now_ms + 1500


async def test_a_consumer_s_deliveries_are_traced_with_their_outcome(broker: Broker) -> None:
    async with Producer(broker.nameserver) as producer:
        receipt = await producer.send(Message("orders", b"x", keys=["o-7"]))
    async with Consumer("billing", "orders", nameserver=broker.nameserver, trace=True) as consumer:
        async for message in consumer:
            if message.reconsume_times:
                break
            await consumer.retry_later(message, 1)
    async with Admin(broker.nameserver) as admin:
        carriers = await admin.messages_by_key("RMQ_SYS_TRACE_TOPIC", receipt.message_id)
    records = [
        record.split("\x01")
        for carrier in sorted(carriers, key=lambda each: each.born_time_ms)
        for record in carrier.body.decode().split("\x02")
        if receipt.message_id in record
    ]
    assert [record[0] for record in records] == ["SubBefore", "SubAfter"] * 2
    assert [record[6] for record in records] == ["0", "4", "1", "0"]  # retries, result
    assert {record[3] for record in records if record[0] == "SubBefore"} == {"billing"}


async def test_a_trace_is_found_by_the_id_and_the_key_of_its_message(broker: Broker) -> None:
    async with Producer(broker.nameserver, trace=True) as producer:
        receipt = await producer.send(Message("orders", b"x", keys=["o-7"]))
    async with Admin(broker.nameserver) as admin:
        for key in (receipt.message_id, "o-7"):
            (message,) = await admin.messages_by_key("RMQ_SYS_TRACE_TOPIC", key)
            assert message.body.startswith(b"Pub\x01")
            assert receipt.message_id.encode() in message.body
