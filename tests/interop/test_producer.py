"""Our producers with the official Java client at the other end."""

import asyncio
from collections import defaultdict

import pytest

from rockhopper.client import Message, Producer, PullConsumer, TransactionProducer
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.trace import MessageTrace
from tests.interop.bodies import sha1
from tests.interop.conftest import Server
from tests.interop.java_client import JavaClient
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop


async def commit(message: ReceivedMessage) -> str:
    return "commit"


def test_java_replies_to_our_requests(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "AskJava"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)
    replying = java.begin("reply", **address, group="java-replies", count=5)

    async def ask() -> list[bytes]:
        async with Producer(broker.nameserver) as producer:
            replies = [
                await producer.request(Message("AskJava", b"%d" % number), timeout_s=30)
                for number in range(5)
            ]
            return [reply.body for reply in replies]

    assert asyncio.run(ask()) == [b"java says: %d" % number for number in range(5)]
    assert replying.result(60) == {"missing": 0}


def test_we_reply_to_java_s_requests(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "AskPython"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)
    requests = java.begin("request", **address, count=5, timeoutMs=300_000)

    async def reply() -> None:
        async with (
            asyncio.timeout(120),
            Producer(broker.nameserver) as producer,
            PullConsumer("AskPython", nameserver=broker.nameserver) as consumer,
        ):
            answered = 0
            async for message in consumer:
                await producer.reply(message, b"re " + message.body)
                answered += 1
                if answered == 5:
                    return

    asyncio.run(reply())
    assert requests.result(60) == [f"re java asks {number}" for number in range(5)]


def test_java_consumes_what_we_send_in_order_and_in_transactions(
    java: JavaClient, broker: Server
) -> None:
    address = {"nameserver": broker.nameserver, "topic": "FromPython"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=4)

    async def send() -> None:
        async with TransactionProducer(
            "py-tx", check=commit, nameserver=broker.nameserver
        ) as producer:
            await asyncio.gather(
                *(
                    producer.send(
                        Message(
                            "FromPython",
                            b"%d" % number,
                            keys=[str(number)],
                            sharding_key=f"k{number % 5}",
                        )
                    )
                    for number in range(100)
                )
            )
            for number in range(10):
                async with producer.transaction(
                    Message("FromPython", b"tx %d" % number, keys=[f"tx{number}"])
                ) as transaction:
                    if number % 2:
                        transaction.roll_back()

    asyncio.run(send())
    consumed = java.call("consume", **address, group="java-reads", count=105)
    messages = consumed["messages"]
    places: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for message in messages:
        if message["keys"].isdigit():
            number = int(message["keys"])
            places[number % 5].append((number, message["queueId"], message["queueOffset"]))
    for found in places.values():
        assert len({queue for _, queue, _ in found}) == 1
        in_queue = sorted(found, key=lambda each: each[2])
        assert [number for number, _, _ in in_queue] == sorted(number for number, _, _ in found)
    transactional = {m["sha1"] for m in messages if m["keys"].startswith("tx")}
    assert transactional == {sha1(b"tx %d" % number) for number in range(0, 10, 2)}


def test_apache_s_tools_read_our_traces(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Traced"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=1)

    async def send() -> tuple[str, str]:
        async with TransactionProducer(
            "py-traced", check=commit, nameserver=broker.nameserver, trace=True
        ) as producer:
            receipt = await producer.send(Message("Traced", b"hello", tags="t", keys=["a", "b"]))
            async with producer.transaction(Message("Traced", b"tx")) as transaction:
                pass
            trace = producer.trace
            assert isinstance(trace, MessageTrace)
            async with PullConsumer("Traced", nameserver=broker.nameserver) as consumer:
                (message, *_) = await consumer.pull(1, timeout_s=HANG_S)
            trace.consuming("py-consumer", [message]).done()
            assert message.queue == MessageQueue("Traced", message.broker_name, 0)
            return receipt.message_id, transaction.message_id

    sent_id, transaction_id = asyncio.run(send())
    records = java.call("trace", nameserver=broker.nameserver, msgId=sent_id)
    by_type = {record["type"]: record for record in records}
    assert set(by_type) == {"Pub", "SubBefore", "SubAfter"}
    published = by_type["Pub"]
    assert published["group"] == "py-traced"
    assert (published["topic"], published["tags"], published["keys"]) == ("Traced", "t", "a b")
    assert (published["bodyLength"], published["kind"], published["success"]) == (
        5,
        "Normal_Msg",
        True,
    )
    assert published["storeHost"] == broker.broker_address
    assert by_type["SubBefore"]["group"] == "py-consumer"
    assert by_type["SubAfter"]["success"] is True
    assert by_type["SubAfter"]["contextCode"] == 0
    records = java.call("trace", nameserver=broker.nameserver, msgId=transaction_id)
    by_type = {record["type"]: record for record in records}
    assert set(by_type) == {"Pub", "EndTransaction"}
    assert by_type["Pub"]["kind"] == "Trans_Msg_Half"
    assert by_type["EndTransaction"]["state"] == "COMMIT_MESSAGE"
