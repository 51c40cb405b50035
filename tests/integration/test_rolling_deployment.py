"""Two versions of a service in one group: whatever one of them wants is skipped by none."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin, Consumer, Message, Producer, RetryLater, Sql
from rockhopper.client.consuming.rebalancing import Rebalancer
from rockhopper.client.consuming.subscriptions import Topics
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.bodies import GetConsumerListByGroupBody
from tests.integration.test_consumer_members import die
from tests.integration.test_topic_sharing import cluster
from tests.support.billing import AT_ONCE, NEXT_ROUND_S
from tests.support.turns import until, until_logged

COUNT = 40


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        async with Admin(broker.nameserver) as admin:
            for topic in ("orders", "bills"):
                await admin.create_topic(topic, queues=4)
        yield broker


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    async with Producer(broker.nameserver) as producer:
        yield producer


class Service:
    """Versions of a service, and what each of them has handled."""

    def __init__(self, nameserver: str) -> None:
        self.handled: dict[str, list[bytes]] = {}
        self._nameserver = nameserver

    async def start(
        self, version: str, topics: Topics, *, failures: int = 0, **options: object
    ) -> Consumer:
        """Start a member whose handler fails so often on each message."""
        handled = self.handled.setdefault(version, [])

        async def handle(message: ReceivedMessage) -> None:
            if message.reconsume_times < failures:
                raise RetryLater
            handled.append(message.body)

        consumer = Consumer(
            "billing",
            topics,
            nameserver=self._nameserver,
            handler=handle,
            **options,  # type: ignore[arg-type]
        )
        return await consumer.start()

    def count(self, prefix: bytes) -> int:
        """How many different messages whose body begins so were handled by any version."""
        bodies = {body for handled in self.handled.values() for body in handled}
        return sum(body.startswith(prefix) for body in bodies)


async def send(producer: Producer, topic: str, tag: str, step: int = 0, **properties: str) -> None:
    """Send COUNT messages whose bodies begin with the topic and tag, over all queues."""
    for number in range(COUNT):
        body = f"{topic} {tag} {step} {number}".encode()
        await producer.send(Message(topic, body, tags=tag, properties=properties))


def reads(consumer: Consumer, topic: str) -> int:
    """How many queues of the topic it holds."""
    return sum(queue.topic == topic for queue in consumer.assigned)


async def alarms(broker: Broker) -> dict[str, int]:
    """What the metrics that alert rules look at say of the group."""
    text = (await broker.metrics()).body.decode()
    return {
        name: int(value)
        for name, value in re.findall(
            r'^rockhopper_(differing_\w+|topics_without_\w+)\{.*"billing"\} (\d+)', text, re.M
        )
    }


OLD, NEW = {"orders": "new"}, {"orders": "new || paid"}


@pytest.mark.parametrize("order", ["old first", "new first"])
async def test_one_tag_more_is_skipped_by_no_version(
    broker: Broker, producer: Producer, order: str
) -> None:
    service = Service(broker.nameserver)
    if order == "old first":
        old, new = await service.start("old", OLD), await service.start("new", NEW)
    else:
        new, old = await service.start("new", NEW), await service.start("old", OLD)
    # At once: while the old version may not have heard of the new one.
    await send(producer, "orders", "paid")
    await send(producer, "orders", "new")
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: service.count(b"orders") == 2 * COUNT)
        assert (reads(old, "orders"), reads(new, "orders")) == (0, 4)
        await new.close()
        await until(lambda: reads(old, "orders") == 4)
        await send(producer, "orders", "new", 1)
        await until(lambda: service.count(b"orders new 1") == COUNT)
    await old.close()
    assert not any(b"paid" in body for body in service.handled["old"])


async def test_one_tag_fewer_is_handled_while_the_old_version_is_there(
    broker: Broker, producer: Producer
) -> None:
    service = Service(broker.nameserver)
    old, new = await service.start("old", NEW), await service.start("new", OLD)
    await send(producer, "orders", "paid")
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: len(service.handled["old"]) == COUNT)
        await old.close()
        await until(lambda: reads(new, "orders") == 4)
        await send(producer, "orders", "new")
        await until(lambda: len(service.handled["new"]) == COUNT)
    await new.close()


async def test_nothing_is_skipped_while_members_of_both_versions_come_and_go(
    broker: Broker, producer: Producer
) -> None:
    service = Service(broker.nameserver)
    members = [await service.start("old", OLD) for _ in range(3)]
    for step in range(3):
        members.append(await service.start("new", NEW))
        await send(producer, "orders", "paid", step)
        await members.pop(0).close()
        await send(producer, "orders", "new", step)
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: service.count(b"orders") == 6 * COUNT)
    for member in members:
        await member.close()


async def test_what_a_killed_version_wanted_is_not_skipped_until_it_is_there_again(
    broker: Broker, producer: Producer
) -> None:
    service = Service(broker.nameserver)
    old, new = await service.start("old", OLD), await service.start("new", NEW)
    await die(new)
    await until(lambda: len(members_of(broker)) == 1)
    await send(producer, "orders", "paid")
    again = await service.start("new", NEW)
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: service.count(b"orders paid") == COUNT)
    await old.close()
    await again.close()


async def test_expressions_that_differ_wait_until_one_version_has_left(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(broker.nameserver)
    old = await service.start("old", {"orders": Sql("price > 5")})
    new = await service.start("new", {"orders": Sql("price > 3")})
    await send(producer, "orders", "x", price="4")
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: (reads(old, "orders"), reads(new, "orders")) == (0, 0))
        await until_logged(caplog, "no member reads orders")
        assert await alarms(broker) == {"differing_subscriptions": 2, "topics_without_reader": 1}
        await old.close()
        await until(lambda: len(service.handled["new"]) == COUNT)
    assert await alarms(broker) == {}
    await new.close()


async def test_what_failed_comes_again_where_it_is_wanted(
    broker: Broker, producer: Producer
) -> None:
    service = Service(broker.nameserver)
    old = await service.start("old", "orders")
    new = await service.start("new", ["orders", "bills"], failures=1)
    await send(producer, "bills", "x")
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: len(service.handled["new"]) == COUNT)
    assert service.handled["old"] == []
    await old.close()
    await new.close()


@pytest.mark.parametrize("order", ["quiet first", "loud first"])
async def test_broadcasting_members_take_nothing_from_the_others(
    broker: Broker, producer: Producer, tmp_path: Path, order: str
) -> None:
    service = Service(broker.nameserver)

    async def loud() -> Consumer:
        return await service.start("loud", "orders", broadcast=True, offsets_directory=tmp_path)

    members = [] if order == "quiet first" else [await loud()]
    quiet = [await service.start("quiet", "orders") for _ in range(2)]
    members = [*members, *quiet] if members else [*quiet, await loud()]
    await send(producer, "orders", "x")
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: [len(set(each)) for each in service.handled.values()] == [COUNT] * 2)
        await until(lambda: [reads(each, "orders") for each in quiet] == [2, 2])
        await quiet[0].close()
        await until(lambda: reads(quiet[1], "orders") == 4)
    for member in members:
        await member.close()


async def test_two_brokers_agree_on_the_readers(tmp_path: Path) -> None:
    async with cluster(tmp_path, "off", "off") as (names, _):
        async with Admin(names.address) as admin:
            await admin.create_topic("orders", queues=4)
        service = Service(names.address)
        async with Producer(names.address) as producer:
            old, new = await service.start("old", OLD), await service.start("new", NEW)
            third = await service.start("new", NEW)
            await send(producer, "orders", "paid")
            async with asyncio.timeout(NEXT_ROUND_S):
                await until(lambda: service.count(b"orders paid") == COUNT)
                await until(lambda: [reads(e, "orders") for e in (old, new, third)] == [0, 4, 4])
        for member in (old, new, third):
            await member.close()


async def test_beside_a_broker_that_names_no_readers_all_members_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, "off", "off") as (names, brokers):
        older, ask = brokers[0].address, Rebalancer._members_at

        async def members_at(self: Rebalancer, address: str) -> GetConsumerListByGroupBody:
            answer = await ask(self, address)
            if address == older:
                answer.readers = answer.topics_at_risk = None
            return answer

        monkeypatch.setattr(Rebalancer, "_members_at", members_at)
        async with Admin(names.address) as admin:
            for topic in ("orders", "bills"):
                await admin.create_topic(topic, queues=4)
        service = Service(names.address)
        old = await service.start("old", "orders")
        new = await service.start("new", ["orders", "bills"])
        async with asyncio.timeout(NEXT_ROUND_S):
            await until(lambda: [reads(each, "orders") for each in (old, new)] == [4, 4])
        assert reads(new, "bills") == 4
        rounds = count_rounds(new, monkeypatch)
        while len(rounds) < 10 or (len(rounds) < 100 and "bills is shared with" not in caplog.text):
            count = len(rounds)  # each asks one of the brokers, whichever
            new.engine.rebalancer.soon()
            await until(lambda count=count: len(rounds) > count)  # type: ignore[misc]
        assert "bills is shared with" in caplog.text
        told = [each for each in caplog.messages if "have different subscriptions" in each]
        assert len(told) == 1, told
        await old.close()
        await new.close()


def count_rounds(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list that gets an entry for each round of its rebalancing from now on."""
    rounds: list[None] = []
    whole = consumer.engine.rebalancer._round

    async def counted() -> bool:
        try:
            return await whole()
        finally:
            rounds.append(None)

    monkeypatch.setattr(consumer.engine.rebalancer, "_round", counted)
    return rounds


def members_of(broker: Broker) -> list[str]:
    online = broker.kernel.consumers.get("billing")
    return [] if online is None else online.client_ids()


@pytest.mark.parametrize("order", ["old first", "new first"])
async def test_all_queues_of_a_new_topic_are_read(
    broker: Broker, producer: Producer, order: str
) -> None:
    service = Service(broker.nameserver)
    if order == "old first":
        old = await service.start("old", "orders")
        new = await service.start("new", ["orders", "bills"])
    else:
        new = await service.start("new", ["orders", "bills"])
        old = await service.start("old", "orders")
    await send(producer, "orders", "x")
    await send(producer, "bills", "x")
    async with asyncio.timeout(NEXT_ROUND_S):
        await until(lambda: (service.count(b"orders"), service.count(b"bills")) == (COUNT, COUNT))
        await until(lambda: [reads(each, "orders") for each in (old, new)] == [2, 2])
    assert (reads(old, "bills"), reads(new, "bills")) == (0, 4)
    await old.close()
    await new.close()
