"""Our Python client against Apache's broker and name server."""

import asyncio
import time
from collections import Counter

import pytest

from rockhopper.client import (
    Admin,
    Message,
    MessageNotFoundError,
    Producer,
    PullConsumer,
    RequestRefusedError,
    RouteNotFoundError,
)
from tests.interop.apache import ApacheServer
from tests.interop.bodies import body, hashes
from tests.interop.java_client import JavaClient
from tests.interop.reading import read_topic
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop


def _message(topic: str, index: int) -> Message:
    return Message(
        topic,
        body("py", index),
        tags="even" if index % 2 == 0 else "odd",
        keys=[f"py-{index}", "all"],
        properties={"region": "eu"},
    )


async def _read(nameserver: str, topic: str, count: int, tags: str = "*") -> list[bytes]:
    async with PullConsumer(topic, nameserver=nameserver, tags=tags) as consumer:
        bodies: list[bytes] = []
        while len(bodies) < count:
            messages = await consumer.pull(timeout_s=HANG_S)
            assert messages, f"nothing came after {len(bodies)} of {count} messages"
            bodies += [message.body for message in messages]
        return bodies


async def test_10000_concurrent_sends_are_stored_and_pulled(
    apache_server: ApacheServer, java: JavaClient
) -> None:
    async with Producer(nameserver=apache_server.nameserver) as producer:
        receipts = []
        for start in range(0, 10_000, 500):
            receipts += await asyncio.gather(
                *(producer.send(_message("PyMany", i)) for i in range(start, start + 500))
            )

    bodies = await _read(apache_server.nameserver, "PyMany", 10_000)

    assert Counter(bodies) == Counter(body("py", i) for i in range(10_000))
    reading = read_topic(java, apache_server.nameserver, "PyMany")
    reading.assert_whole()
    assert reading.ids == sorted(receipt.message_id for receipt in receipts)
    places = {m["offsetMsgId"]: (m["queueId"], m["queueOffset"]) for m in reading.messages}
    assert places == {r.offset_message_id: (r.queue.queue_id, r.queue_offset) for r in receipts}


async def test_java_reads_what_a_batch_a_oneway_and_a_large_send_stored(
    apache_server: ApacheServer, java: JavaClient
) -> None:
    async with Producer(nameserver=apache_server.nameserver) as producer:
        await producer.send("PyMixed", b"first", tags="even")
        receipts = await producer.send_batch(_message("PyMixed", i) for i in range(32))
        await producer.send("PyMixed", body("large", 0, 500_000), tags="even")
        await producer.send_oneway("PyMixed", b"oneway", tags="odd")
        # Answered on the same connection after the oneway request, so that is stored too.
        await producer.send("PyMixed", b"last", tags="odd")
        first_queues = {receipt.queue for receipt in receipts}

    found = await _read(apache_server.nameserver, "PyMixed", 36)
    pushed = java.call(
        "consume", nameserver=apache_server.nameserver, topic="PyMixed", group="java", count=36
    )

    assert len(first_queues) == 1
    assert [r.queue_offset for r in receipts] == list(
        range(receipts[0].queue_offset, receipts[0].queue_offset + 32)
    )
    expected = [body("py", i) for i in range(32)]
    expected += [b"first", body("large", 0, 500_000), b"oneway", b"last"]
    assert Counter(found) == Counter(expected)
    by_key = {m["keys"]: m for m in pushed["messages"] if "keys" in m}
    assert by_key["py-7 all"]["tags"] == "odd"
    assert by_key["py-7 all"]["properties"]["region"] == "eu"
    assert {m["sha1"] for m in pushed["messages"]} >= set(hashes("py", range(32)))


async def test_inner_batches_of_a_batch_topic_are_taken_apart(
    apache_server: ApacheServer, java: JavaClient
) -> None:
    async with Admin(nameserver=apache_server.nameserver) as admin:
        await admin.create_topic("PyInner", queues=1, attributes={"queue.type": "BatchCQ"})
    async with Producer(nameserver=apache_server.nameserver) as producer:
        await producer.send_batch(_message("PyInner", i) for i in range(10))
    java.call(
        "send", nameserver=apache_server.nameserver, topic="PyInner", prefix="py", first=10,
        count=10, mode="batch", batchSize=5,
    )  # fmt: skip

    bodies = await _read(apache_server.nameserver, "PyInner", 20)

    assert bodies == [body("py", i) for i in range(20)]


async def test_tags_and_offsets_choose_what_is_read(apache_server: ApacheServer) -> None:
    address = apache_server.nameserver
    async with Admin(nameserver=address) as admin:
        await admin.create_topic("PyChosen", queues=1)
    async with Producer(nameserver=address) as producer:
        for i in range(20):
            await producer.send(_message("PyChosen", i))
    assert await _read(address, "PyChosen", 10, tags="odd") == [
        body("py", i) for i in range(1, 20, 2)
    ]

    async with PullConsumer("PyChosen", nameserver=address, group="py-seekers") as consumer:
        [queue] = consumer.assigned
        assert (await consumer.begin_offset(queue), await consumer.end_offset(queue)) == (0, 20)
        assert await consumer.committed(queue) is None
        await consumer.seek(queue, 15)
        messages = await consumer.pull(3, timeout_s=HANG_S)
        await consumer.commit(messages[-1])
    async with PullConsumer("PyChosen", nameserver=address, group="py-seekers") as consumer:
        assert [m.queue_offset for m in await consumer.pull(3, timeout_s=HANG_S)] == [18, 19]

    assert [m.queue_offset for m in messages] == [15, 16, 17]


async def test_a_parked_pull_is_woken_by_a_send(apache_server: ApacheServer) -> None:
    async with Admin(nameserver=apache_server.nameserver) as admin:
        await admin.create_topic("PyWoken", queues=1)
    async with PullConsumer("PyWoken", nameserver=apache_server.nameserver) as consumer:
        waiting = asyncio.create_task(consumer.pull())
        async with Producer(nameserver=apache_server.nameserver) as producer:
            await producer.send("PyWoken", b"at last")
        async with asyncio.timeout(60):
            [message] = await waiting

    assert message.body == b"at last"


async def test_a_message_is_found_by_key_and_by_both_ids(apache_server: ApacheServer) -> None:
    async with Producer(nameserver=apache_server.nameserver) as producer:
        receipts = [await producer.send(_message("PyFound", i)) for i in range(12)]

    async with Admin(nameserver=apache_server.nameserver) as admin:
        one = await admin.messages_by_key("PyFound", "py-5")
        some = await admin.messages_by_key("PyFound", "all", max_count=10)
        by_id = await admin.message(receipts[5].message_id, "PyFound")
        by_offset_id = await admin.message(receipts[5].offset_message_id, "PyFound")
        with pytest.raises(MessageNotFoundError):
            await admin.message("0" * 32, "PyFound")

    assert [m.body for m in (*one, by_id, by_offset_id)] == [body("py", 5)] * 3
    assert by_offset_id.message_id == by_id.message_id == receipts[5].message_id
    assert len(some) == 10


async def test_topics_and_brokers_are_managed(apache_server: ApacheServer) -> None:
    async with Admin(nameserver=apache_server.nameserver) as admin:
        targets = await admin.create_topic("PyManaged", queues=3)
        assert [target.address for target in targets] == [apache_server.broker_address]
        assert "PyManaged" in await admin.topics()
        assert [r.count for r in await admin.ranges("PyManaged")] == [0, 0, 0]
        [broker] = await admin.brokers()
        status = await admin.broker_status(broker.address)
        config = await admin.broker_config(broker.address)
        await admin.update_broker_config(broker.address, {"fileReservedTime": "96"})
        changed = await admin.broker_config(broker.address)
        await admin.delete_topic("PyManaged")
        with pytest.raises(RouteNotFoundError):
            await admin.route("PyManaged")

    assert broker.name == "apache"
    assert "commitLogMaxOffset" in status
    assert config["storePathRootDir"] == str(apache_server.store)
    assert changed["fileReservedTime"] == "96"


async def test_offsets_are_found_by_time(apache_server: ApacheServer) -> None:
    async with Admin(nameserver=apache_server.nameserver) as admin:
        await admin.create_topic("PyTimed", queues=1)
        async with Producer(nameserver=apache_server.nameserver) as producer:
            await producer.send("PyTimed", b"before")
            await asyncio.sleep(0.05)
            middle_ms = int(time.time() * 1000)
            await asyncio.sleep(0.05)
            await producer.send("PyTimed", b"after")
        [found] = await admin.ranges("PyTimed")
        offset = await admin.offsets.offset_at(found.queue, middle_ms)

    assert (found.min_offset, found.max_offset, offset) == (0, 2, 1)


async def test_a_refusal_carries_code_and_remark(apache_server: ApacheServer) -> None:
    async with Admin(nameserver=apache_server.nameserver) as admin:
        with pytest.raises(RequestRefusedError) as refusal:
            await admin.update_broker_config(
                apache_server.broker_address, {"brokerConfigPath": "elsewhere"}
            )

    assert refusal.value.code == 16
    assert "black list" in (refusal.value.remark or "")
