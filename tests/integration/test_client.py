"""Our client against our broker, over real sockets."""

import asyncio
import os
from collections import Counter
from datetime import UTC, datetime

import pytest

from rockhopper.broker import Broker
from rockhopper.client import (
    Admin,
    BrokerUnreachableError,
    Message,
    MessageNotFoundError,
    Producer,
    PullConsumer,
    RequestRefusedError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import SerializeType
from tests.support.hang import HANG_S
from tests.support.turns import until


async def read(broker: Broker, topic: str, count: int, **options: object) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    async with PullConsumer(topic, nameserver=broker.nameserver, **options) as consumer:  # type: ignore[arg-type]
        while len(messages) < count:
            messages += await consumer.pull(count - len(messages), timeout_s=HANG_S)
    return messages


async def test_what_was_sent_is_what_is_read(broker: Broker, producer: Producer) -> None:
    message = Message(
        "orders", b"hello", tags="new", keys=["o-1", "o-2"], properties={"region": "eu"}, flag=7
    )
    receipt = await producer.send(message)
    (found,) = await read(broker, "orders", 1)
    assert found.body == b"hello"
    assert found.tags == "new"
    assert found.keys == ["o-1", "o-2"]
    assert found.properties["region"] == "eu"
    assert found.stored.flag == 7
    assert found.message_id == receipt.message_id
    assert found.offset_message_id == receipt.offset_message_id
    assert found.queue == receipt.queue
    assert found.queue_offset == receipt.queue_offset == 0


async def test_a_thousand_sends_under_way_at_once_are_all_stored_once(
    broker: Broker, producer: Producer
) -> None:
    receipts = await asyncio.gather(
        *(producer.send("orders", b"%d" % n, timeout_s=HANG_S) for n in range(1000))
    )
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 1000
    found = await read(broker, "orders", 1000)
    assert Counter(message.body for message in found) == {b"%d" % n: 1 for n in range(1000)}
    # Connection, headers: one connection, msgpack after the first answer.
    (connection,) = [
        each
        for each in producer.session.pool.connections
        if producer.session.routes.has_broker(each.address)
    ]
    assert connection.serialize_type == SerializeType.MSGPACK


async def test_large_bodies_are_compressed_on_the_way_and_whole_at_the_end(
    broker: Broker, producer: Producer
) -> None:
    bodies = [b"x" * 100_000, os.urandom(200_000), b"y" * 4_000_000]
    for body in bodies:
        await producer.send("large", body, queue=0)
    found = await read(broker, "large", 3)
    assert [message.body for message in found] == bodies
    assert [bool(message.stored.sys_flag & 1) for message in found] == [True, False, True]
    assert found[2].stored.size_bytes < 100_000


async def test_a_batch_is_stored_in_order_with_an_id_for_each(
    broker: Broker, producer: Producer
) -> None:
    messages = [Message("orders", b"%d" % number, keys=[f"k{number}"]) for number in range(32)]
    receipts = await producer.send_batch(messages)
    assert len({receipt.queue for receipt in receipts}) == 1
    assert [receipt.queue_offset for receipt in receipts] == list(range(32))
    found = await read(broker, "orders", 32)
    assert [message.body for message in found] == [b"%d" % number for number in range(32)]
    assert [message.message_id for message in found] == [each.message_id for each in receipts]
    assert [message.offset_message_id for message in found] == [
        each.offset_message_id for each in receipts
    ]


async def test_a_batch_for_a_topic_of_batches_comes_back_message_by_message(
    broker: Broker, producer: Producer, admin: Admin
) -> None:
    await admin.create_topic("batched", queues=1, attributes={"queue.type": "BatchCQ"})
    for start in (0, 10):
        await producer.send_batch(
            [Message("batched", b"%d" % number) for number in range(start, start + 10)]
        )
    found = await read(broker, "batched", 20)
    assert [message.body for message in found] == [b"%d" % number for number in range(20)]
    assert [message.queue_offset for message in found] == list(range(20))
    async with PullConsumer("batched", nameserver=broker.nameserver) as consumer:
        await consumer.seek(consumer.assigned[0], 13)
        assert [message.body for message in await consumer.pull(2)] == [b"13", b"14"]


async def test_a_sharding_key_keeps_messages_together_and_in_order(
    broker: Broker, producer: Producer
) -> None:
    for number in range(20):
        for customer in ("alice", "bob", "carol"):
            message = Message("orders", f"{customer} {number}".encode(), sharding_key=customer)
            await producer.send(message)
    found = await read(broker, "orders", 60)
    for customer in ("alice", "bob", "carol"):
        own = [message for message in found if message.body.startswith(customer.encode())]
        assert len({message.queue for message in own}) == 1
        assert [message.body.split()[1] for message in own] == [b"%d" % n for n in range(20)]


async def test_a_send_that_finds_no_time_left_names_the_time_it_was_given(
    producer: Producer,
) -> None:
    await producer.send("orders", b"x")
    with pytest.raises(RequestTimeoutError, match=r"did not answer SEND_MESSAGE_V2 within 0 s"):
        await producer.send("orders", b"x", timeout_s=0)


async def test_what_is_no_message_is_refused_with_the_call_that_takes_it(
    producer: Producer,
) -> None:
    with pytest.raises(TypeError, match="not list; send_batch accepts several messages"):
        await producer.send([Message("orders")])  # type: ignore[arg-type]


async def test_oneway_messages_arrive(broker: Broker) -> None:
    async with Producer(broker.nameserver) as producer:
        for number in range(100):
            await producer.send_oneway("orders", b"%d" % number)
    found = await read(broker, "orders", 100)
    assert {message.body for message in found} == {b"%d" % number for number in range(100)}


async def test_only_the_tags_asked_for_come(broker: Broker, producer: Producer) -> None:
    for tag in ("new", "paid", "old", None, "new"):
        await producer.send("orders", (tag or "none").encode(), tags=tag, queue=0)
    found = await read(broker, "orders", 3, tags="new || paid")
    assert [message.body for message in found] == [b"new", b"paid", b"new"]


async def test_a_waiting_consumer_gets_a_message_as_soon_as_it_is_stored(
    broker: Broker, producer: Producer, admin: Admin
) -> None:
    await admin.create_topic("orders", queues=4)
    nameserver = broker.nameserver
    async with PullConsumer("orders", nameserver=nameserver, poll_s=HANG_S) as consumer:
        parked = len(broker.kernel.long_polling)
        waiting = asyncio.create_task(consumer.pull())
        await until(lambda: len(broker.kernel.long_polling) == parked + 4)
        await producer.send("orders", b"now")
        async with asyncio.timeout(HANG_S / 2):
            (message,) = await waiting
        assert message.body == b"now"


async def test_a_group_goes_on_where_it_committed(broker: Broker, producer: Producer) -> None:
    for number in range(10):
        await producer.send("orders", b"%d" % number, queue=0)
    async with PullConsumer("orders", nameserver=broker.nameserver, group="billing") as consumer:
        assert [message.body for message in await consumer.pull(4)] == [b"0", b"1", b"2", b"3"]
        await consumer.commit()
    async with PullConsumer("orders", nameserver=broker.nameserver, group="billing") as consumer:
        assert (await consumer.pull(1))[0].body == b"4"


async def test_a_consumer_can_start_at_a_time(broker: Broker, producer: Producer) -> None:
    await producer.send("orders", b"before", queue=0)
    (before,) = await read(broker, "orders", 1)
    # The broker's clock counts milliseconds: the next message must come in another one.
    await until(lambda: broker.clock.wall_ms() > before.store_time_ms + 1)
    moment = datetime.fromtimestamp((before.store_time_ms + 1) / 1000, UTC)
    await producer.send("orders", b"after", queue=0)
    (found,) = await read(broker, "orders", 1, start_from=moment)
    assert found.body == b"after"


async def test_topics_are_created_listed_filled_and_deleted(
    broker: Broker, producer: Producer, admin: Admin
) -> None:
    (target,) = await admin.create_topic("orders", queues=3)
    assert target.address == broker.address
    assert "orders" in await admin.topics()
    await producer.send("orders", b"x", queue=2)
    assert [(each.min_offset, each.max_offset) for each in await admin.ranges("orders")] == [
        (0, 0),
        (0, 0),
        (0, 1),
    ]
    await admin.delete_topic("orders")
    assert "orders" not in await admin.topics()
    with pytest.raises(RouteNotFoundError):
        await admin.route("orders")


async def test_messages_are_found_by_key_and_by_both_ids(producer: Producer, admin: Admin) -> None:
    receipts = [await producer.send("orders", b"%d" % n, keys=["same", f"k{n}"]) for n in range(5)]
    assert [m.body for m in await admin.messages_by_key("orders", "k3")] == [b"3"]
    assert len(await admin.messages_by_key("orders", "same")) == 5
    assert len(await admin.messages_by_key("orders", "same", max_count=2)) == 2
    assert await admin.messages_by_key("orders", "none") == []
    assert [m.body for m in await admin.messages_by_key("orders", ["k3", "k1"])] == [b"3", b"1"]
    assert len(await admin.messages_by_key("orders", "same k1 k2", max_count=32)) == 5
    wanted = receipts[3]
    for found in (
        await admin.message(wanted.message_id),
        await admin.message(wanted.message_id, "orders"),
        await admin.message(wanted.offset_message_id),
    ):
        assert found.body == b"3"
        assert (found.queue, found.queue_offset) == (wanted.queue, wanted.queue_offset)
    with pytest.raises(MessageNotFoundError):
        await admin.message("0" * 32)


async def test_a_broker_says_how_it_is_and_changes_settings_while_running(
    broker: Broker, admin: Admin
) -> None:
    status = await admin.broker_status(broker.address)
    assert status["brokerVersionDesc"] == "V5_3_3"
    await admin.update_broker_config(broker.address, {"defaultTopicQueueNums": "3"})
    assert (await admin.broker_config(broker.address))["defaultTopicQueueNums"] == "3"


async def test_a_message_for_a_topic_that_may_not_be_created_says_how_to_create_it() -> None:
    async with Broker.temporary({"autoCreateTopic": "off"}) as broker:
        async with Producer(broker.nameserver) as producer:
            with pytest.raises(RouteNotFoundError, match="rockhopper topic create new"):
                await producer.send("new", b"x")


async def test_a_body_over_the_broker_s_limit_is_refused_by_the_broker(broker: Broker) -> None:
    async with Producer(
        broker.nameserver, message_size_bytes_max=1 << 24, compress_above_bytes=None
    ) as producer:
        with pytest.raises(RequestRefusedError) as caught:
            await producer.send("orders", bytes(5_000_000))
        assert caught.value.code == 13
        assert caught.value.remark
        await producer.send("orders", b"the connection goes on")


async def test_a_stopped_broker_is_named_and_a_new_one_is_found_again() -> None:
    async with Broker.temporary() as broker:
        port = broker.servers.remoting.port
        nameserver_port = int(broker.nameserver.rpartition(":")[2])
        producer = Producer(broker.nameserver)
        await producer.start()
        await producer.send("orders", b"x")
        address = broker.address
    with pytest.raises(BrokerUnreachableError, match="refused the connection") as caught:
        await producer.send("orders", b"x", timeout_s=1)
    assert caught.value.address == address
    async with Broker.temporary({"listenPort": port, "namesrvPort": nameserver_port}):
        assert (await producer.send("orders", b"y")).queue_offset == 0
        await producer.close()


async def test_a_topic_on_two_brokers_is_written_and_read_on_both() -> None:
    async with Broker.temporary({"brokerName": "broker-a"}) as first:
        settings = {
            "brokerName": "broker-b",
            "role": "broker",
            "namesrvAddr": first.nameserver,
        }
        async with Broker.temporary(settings) as second, Admin(first.nameserver) as admin:
            await second.announce()
            brokers = {each.name: each.address for each in await admin.masters()}
            assert brokers == {"broker-a": first.address, "broker-b": second.address}
            await admin.create_topic("orders", queues=2)
            await second.announce()
            async with Producer(first.nameserver) as producer:
                receipts = [await producer.send("orders", b"%d" % n) for n in range(40)]
            assert Counter(receipt.queue.broker_name for receipt in receipts) == {
                "broker-a": 20,
                "broker-b": 20,
            }
            found = await read(first, "orders", 40)
            assert {message.body for message in found} == {b"%d" % n for n in range(40)}
            assert {message.queue.broker_name for message in found} == {"broker-a", "broker-b"}
            wanted = next(each for each in receipts if each.queue.broker_name == "broker-b")
            assert (await admin.message(wanted.message_id)).queue == wanted.queue
            await second.stop()
            async with Producer(first.nameserver) as producer:
                receipts = [await producer.send("orders", b"%d" % n) for n in range(8)]
            assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a"}


def test_client_and_broker_work_under_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def send_and_read() -> list[bytes]:
        async with Broker.temporary() as broker, Producer(broker.nameserver) as producer:
            await producer.send("orders", b"large" * 100_000, queue=0)
            await producer.send_oneway("orders", b"oneway", queue=0)
            return [message.body for message in await read(broker, "orders", 2)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(send_and_read()) == [b"large" * 100_000, b"oneway"]
