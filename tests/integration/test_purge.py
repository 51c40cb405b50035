"""Emptying a topic (70006), and a temporary broker as a whole: what goes, and who goes on."""

import asyncio
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client import (
    Admin,
    Consumer,
    Message,
    MessageNotFoundError,
    MessageQueue,
    Producer,
    TransactionProducer,
)
from rockhopper.client.errors import RequestRefusedError
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.daemon import Daemon
from tests.support.features import needs, transactions_of
from tests.support.hang import HANG_S
from tests.support.turns import until


class Seen:
    """A consumer that stays; what it has consumed can be waited for."""

    def __init__(self, broker: Broker) -> None:
        self._messages: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        self.consumer = Consumer(
            "billing", "orders", nameserver=broker.nameserver, handler=self._messages.put
        )

    async def bodies(self, count: int) -> list[bytes]:
        async with asyncio.timeout(HANG_S):
            return sorted([(await self._messages.get()).body for _ in range(count)])


async def _nobody_knows(_message: ReceivedMessage) -> str:
    return "unknown"


async def _purge(admin: Admin, broker: Broker, topic: str) -> None:
    await admin.request(broker.address, RequestCode.PURGE_TOPIC, {"topic": topic})


async def test_a_purged_topic_is_empty_and_keeps_its_settings_and_offsets(
    broker: Broker, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("orders", queues=2, attributes={"message.type": "NORMAL"})
    before = broker.tables.topics.get("orders")
    for number in range(10):
        await producer.send(Message("orders", b"%d" % number, keys=["k"]))
    await _purge(admin, broker, "orders")
    assert [(each.min_offset, each.max_offset) for each in await admin.ranges("orders")] == [
        (5, 5),
        (5, 5),
    ]
    assert broker.tables.topics.get("orders") is before
    assert await admin.messages_by_key("orders", "k") == []
    receipt = await producer.send(Message("orders", b"new", keys=["k"]))
    assert receipt.queue_offset == 5
    (found,) = await admin.messages_by_key("orders", "k")
    assert found.body == b"new"


async def test_every_group_goes_on_with_what_comes_after_a_purge(
    broker: Broker, admin: Admin, producer: Producer
) -> None:
    seen = Seen(broker)
    async with seen.consumer:
        await producer.send("orders", b"before")
        assert await seen.bodies(1) == [b"before"]
        (queue,) = [each.queue for each in await admin.ranges("orders") if each.count]
        broker.tables.groups.find_or_create("slow")
        await admin.offsets.commit("slow", queue, 0)
        await _purge(admin, broker, "orders")
        assert await admin.offsets.committed("slow", queue) == 1
        await producer.send("orders", b"after", queue=queue)
        assert await seen.bodies(1) == [b"after"]


async def test_a_consumer_that_is_behind_steps_over_what_was_purged(
    broker: Broker, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("orders", queues=1)
    for number in range(100):
        await producer.send("orders", b"%d" % number)
    consumer = Consumer(
        "billing", "orders", nameserver=broker.nameserver, batch_size=4, queue_count_max=4
    )
    async with consumer:
        messages = aiter(consumer)
        async with asyncio.timeout(HANG_S):
            await anext(messages)
            await _purge(admin, broker, "orders")
            await producer.send("orders", b"after")
            seen = 0
            while (await anext(messages)).body != b"after":
                seen += 1
    assert seen < 20  # what it held already


async def test_a_purge_survives_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("store")
    config = build_config(TEMPORARY_SETTINGS | {"storePathRootDir": str(root)})
    async with Broker(config) as broker, Producer(broker.nameserver) as producer:
        for number in range(3):
            await producer.send("orders", b"%d" % number, queue=0)
        async with Admin(broker.nameserver) as admin:
            await _purge(admin, broker, "orders")
        await producer.send("orders", b"after", queue=0)
    async with Broker(build_config(TEMPORARY_SETTINGS | {"storePathRootDir": str(root)})) as broker:
        assert broker.store.reading.queue_range("orders", 0) == (3, 4)
        assert b"after" in broker.store.reading.get_message("orders", 0, 3, 32).body


@pytest.mark.costly
async def test_a_purge_survives_a_kill(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon:
        async with Admin(daemon.nameserver) as admin, Producer(daemon.nameserver) as producer:
            # It is answered when it is on disk, unlike a topic that a message makes.
            await admin.create_topic("orders", queues=4)
            for number in range(3):
                await producer.send("orders", b"%d" % number, queue=0)
            assert len(await admin.purge_topic("orders")) == 1
            await producer.send("orders", b"after", queue=0)
        await daemon.kill()
    async with Daemon(tmp_path) as daemon, Admin(daemon.nameserver) as admin:
        (first, *others) = await admin.ranges("orders")
        assert (first.min_offset, first.max_offset) == (3, 4)
        assert {each.count for each in others} == {0}


async def test_only_topics_that_exist_and_belong_to_users_are_purged(
    broker: Broker, admin: Admin
) -> None:
    with pytest.raises(RequestRefusedError) as missing:
        await _purge(admin, broker, "missing")
    assert missing.value.code == ResponseCode.TOPIC_NOT_EXIST
    with pytest.raises(RequestRefusedError) as system:
        await _purge(admin, broker, "SCHEDULE_TOPIC_XXXX")
    assert system.value.code == ResponseCode.INVALID_PARAMETER


@needs("transactions")
async def test_a_purged_broker_is_as_good_as_new(
    broker: Broker, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("orders", queues=3)
    await admin.update_broker_config(broker.address, {"defaultTopicQueueNums": "3"})
    sent = await producer.send(Message("orders", b"x", keys=["k"]))
    await producer.send(Message("orders", b"delayed", delay_level=2))
    await producer.send(Message("orders", b"timed", delay_s=60))
    async with Seen(broker).consumer:
        pass
    async with TransactionProducer(
        "transfers", nameserver=broker.nameserver, check=_nobody_knows
    ) as transactions:
        async with transactions.transaction(Message("orders", b"half")) as transaction:
            transaction.leave_unknown()
        assert len(transactions_of(broker).halves) == 1
        broker.purge()
    assert [
        name for name in broker.tables.topics.configs if not broker.tables.topics.is_system(name)
    ] == []
    assert "billing" not in broker.tables.groups
    assert list(broker.tables.offsets.entries()) == []
    assert (broker.kernel.scheduled.timers.pending_count, len(transactions_of(broker).halves)) == (
        0,
        0,
    )
    assert (await admin.broker_config(broker.address))["defaultTopicQueueNums"] == "8"
    with pytest.raises(MessageNotFoundError):
        await admin.message(sent.message_id)
    again = await producer.send(Message("orders", b"y", keys=["k"]), queue=0)
    assert again.queue_offset == 0
    assert [each.body for each in await admin.messages_by_key("orders", "k")] == [b"y"]


async def test_clients_that_stay_go_on_after_a_purge(broker: Broker, producer: Producer) -> None:
    seen = Seen(broker)
    async with seen.consumer:
        for round_number in range(3):
            for number in range(5):
                await producer.send("orders", b"%d" % number)
            assert await seen.bodies(5) == [b"%d" % number for number in range(5)], round_number
            broker.purge()
        await producer.send(Message("orders", b"timed", delay_s=0.1))
        assert await seen.bodies(1) == [b"timed"]


async def test_a_late_commit_of_a_purged_position_skips_nothing(
    broker: Broker, admin: Admin, producer: Producer
) -> None:
    seen = Seen(broker)
    async with seen.consumer:
        await admin.create_topic("orders", queues=1)
        await producer.send("orders", b"before")
        assert await seen.bodies(1) == [b"before"]
        queue = MessageQueue("orders", broker.config.broker_name, 0)
        await until(lambda: seen.consumer.engine.assignment.held[queue].position == 1)
        broker.purge()
        # The consumer does not know of the purge yet: it would have committed a little later.
        await seen.consumer.commit()
        assert await admin.offsets.committed("billing", queue) is None
        await producer.send("orders", b"after")
        assert await seen.bodies(1) == [b"after"]
        await seen.consumer.commit()
        assert await admin.offsets.committed("billing", queue) == 1


async def test_delayed_messages_go_their_way_after_a_purge() -> None:
    async with (
        Broker.temporary({"messageDelayLevel": "1s"}) as broker,
        Producer(broker.nameserver) as producer,
    ):
        await producer.send(Message("orders", b"never", delay_level=1))
        broker.purge()
        seen = Seen(broker)
        async with seen.consumer:
            await producer.send(Message("orders", b"later", delay_level=1))
            assert await seen.bodies(1) == [b"later"]


async def test_a_broker_that_keeps_its_store_is_not_purged(tmp_path: object) -> None:
    texts = TEMPORARY_SETTINGS | {"storePathRootDir": str(tmp_path)}
    async with Broker(build_config(texts)) as broker:
        with pytest.raises(RuntimeError, match=r"Broker\.temporary"):
            broker.purge()


def test_a_broker_that_does_not_run_is_not_purged() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        Broker.temporary().purge()
