"""Our Consumer against our broker: what it reads, from where on, after a reset and in broadcast."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin, Consumer, Producer, PullConsumer, RequestRefusedError, Sql
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.errors import SubscriptionError
from tests.support.billing import (
    AT_ONCE,
    NEXT_ROUND_S,
    billing,
    committed,
    leave_with,
    send,
    sent_back,
    take,
)
from tests.support.hang import HANG_S
from tests.support.turns import until


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


async def test_only_the_tags_asked_for_come(broker: Broker, producer: Producer) -> None:
    for tag in ("new", "paid", "old", None, "new"):
        await producer.send("orders", (tag or "none").encode(), tags=tag, queue=0)
    wanted = {"orders": "new || paid"}
    async with Consumer("billing", wanted, nameserver=broker.nameserver) as consumer:
        messages = await take(consumer, 3)
    assert [message.body for message in messages] == [b"new", b"paid", b"new"]
    assert committed(broker) == 5


async def test_a_new_group_starts_where_it_is_told(broker: Broker, producer: Producer) -> None:
    await send(producer, 2)
    first = await producer.send("orders", b"2", queue=0)
    async with PullConsumer("orders", nameserver=broker.nameserver) as reader:
        (stored,) = (await reader.pull_from(first.queue, 2)).messages
    moment = datetime.fromtimestamp((stored.store_time_ms + 1) / 1000, UTC)
    await until(lambda: broker.clock.wall_ms() > stored.store_time_ms + 1)

    async def starts(group: str, start: object) -> bytes:
        consumer = Consumer(group, "orders", nameserver=broker.nameserver, start_from=start)  # type: ignore[arg-type]
        async with consumer:
            await producer.send("orders", b"for " + group.encode(), queue=0)
            (message,) = await take(consumer, 1)
            return message.body

    assert await starts("late", "latest") == b"for late"
    assert await starts("since", moment) == b"for late"
    assert await starts("since-ms", round(moment.timestamp() * 1000)) == b"for late"
    assert await starts("early", "earliest") == b"0"


async def test_where_a_group_starts_is_remembered_though_nothing_came(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    async with billing(broker, start_from="latest"):
        pass
    await send(producer, 1, first=2)
    async with billing(broker, start_from="latest") as consumer:
        assert (await take(consumer, 1))[0].body == b"2"


async def test_a_topic_that_comes_later_is_read_from_its_beginning(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    async with billing(broker, start_from="latest") as consumer:
        (warning,) = [r.message for r in caplog.records if "waits for a topic" in r.message]
        assert "rockhopper topic create orders" in warning
        await send(producer, 2)
        async with asyncio.timeout(NEXT_ROUND_S):
            assert [message.body for message in await take(consumer, 2)] == [b"0", b"1"]


async def test_queues_that_are_added_are_read_from_their_beginning(
    broker: Broker, producer: Producer
) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=1)
        async with billing(broker, start_from="latest") as consumer:
            await admin.create_topic("orders", queues=2)
            async with Producer(broker.nameserver) as other:
                await other.send("orders", b"x", queue=1)
            await consumer.engine.session.keep_up_once()
            assert (await take(consumer, 1))[0].body == b"x"


@pytest.mark.parametrize("broadcast", [False, True])
async def test_queues_that_appear_while_nobody_is_there_are_read_from_their_beginning(
    broker: Broker, tmp_path: Path, broadcast: bool
) -> None:
    options: Any = {"start_from": "latest", "broadcast": broadcast, "offsets_directory": tmp_path}
    async with Admin(broker.nameserver) as admin, Producer(broker.nameserver) as producer:
        await admin.create_topic("orders", queues=1)
        await producer.send("orders", b"old")
        async with billing(broker, **options):
            pass
        await admin.create_topic("orders", queues=2)
        producer.session.routes.forget("orders")
        await producer.send("orders", b"new", queue=1)
        async with billing(broker, **options) as consumer:
            assert (await take(consumer, 1))[0].body == b"new"


async def test_members_that_begin_a_group_at_its_end_read_nothing_old(broker: Broker) -> None:
    async with Admin(broker.nameserver) as admin, Producer(broker.nameserver) as producer:
        await admin.create_topic("orders", queues=4)
        for queue in range(4):
            await producer.send("orders", b"old", queue=queue)
        async with (
            billing(broker, start_from="latest") as one,
            billing(broker, start_from="latest") as two,
        ):
            for queue in range(4):
                await producer.send("orders", b"new", queue=queue)
            seen: list[bytes] = []

            async def read(consumer: Consumer) -> None:
                async for message in consumer:
                    seen.append(message.body)

            readers = [asyncio.create_task(read(each)) for each in (one, two)]
            await until(lambda: len(seen) >= 4)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        assert seen == [b"new"] * 4


async def test_an_expression_selects_by_properties(broker: Broker, producer: Producer) -> None:
    for price in ("4", "6", "5", "70"):
        await producer.send("orders", price.encode(), queue=0, properties={"price": price})
    wanted = {"orders": Sql("price > 5")}
    async with Consumer("billing", wanted, nameserver=broker.nameserver) as consumer:
        assert [message.body for message in await take(consumer, 2)] == [b"6", b"70"]


def test_an_expression_that_is_none_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(SubscriptionError, match="expression ends"):
        Consumer("billing", {"orders": Sql("price >")})


async def test_a_broker_that_does_not_filter_by_expressions_is_an_error_at_the_start() -> None:
    async with Broker.temporary({"enablePropertyFilter": "false"}) as broker:
        async with Producer(broker.nameserver) as producer:
            await send(producer, 1)
        wanted = {"orders": Sql("price > 5")}
        with pytest.raises(RequestRefusedError, match="SQL92"):
            await Consumer("billing", wanted, nameserver=broker.nameserver).start()


async def test_a_group_that_may_not_be_created_is_an_error_with_a_remedy() -> None:
    async with Broker.temporary({"autoCreateSubscriptionGroup": "false"}) as broker:
        async with Producer(broker.nameserver) as producer:
            await send(producer, 1)
        with pytest.raises(RequestRefusedError, match="create the group") as caught:
            async with billing(broker) as consumer, asyncio.timeout(HANG_S):
                await take(consumer, 1)
        assert caught.value.code == 26


async def test_a_reset_by_an_operator_is_followed_at_once(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 5)
    async with billing(broker) as consumer:
        messages = aiter(consumer)
        for _ in range(5):
            await anext(messages)
        ext = {"topic": "orders", "group": "billing", "timestamp": "0", "isForce": "true"}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        await producer.session.request(broker.address, code, ext)
        async with asyncio.timeout(NEXT_ROUND_S):
            assert [(await anext(messages)).body for _ in range(5)] == [b"%d" % n for n in range(5)]
    assert committed(broker) == 5


async def test_a_broadcast_group_may_consume_in_order(
    broker: Broker, producer: Producer, tmp_path: Path
) -> None:
    await send(producer, 3)
    options = {"broadcast": True, "orderly": True, "offsets_directory": tmp_path}
    async with billing(broker, **options) as one, billing(broker, **options) as other:
        for member in (one, other):  # none locks a queue that the other needs too
            async with asyncio.timeout(HANG_S):
                assert [each.body for each in await take(member, 3)] == [b"0", b"1", b"2"]


async def test_a_broadcast_group_gives_every_member_everything_and_remembers_in_a_file(
    broker: Broker, producer: Producer, tmp_path: Path
) -> None:
    await send(producer, 3)
    options = {"broadcast": True, "offsets_directory": tmp_path}
    async with billing(broker, **options) as one, billing(broker, **options) as other:
        assert [message.body for message in await take(one, 3)] == [b"0", b"1", b"2"]
        assert [message.body for message in await take(other, 2)] == [b"0", b"1"]
        with pytest.raises(ZeroDivisionError):
            await leave_with(ZeroDivisionError(), billing(broker, **options), 1)
    assert len(list(tmp_path.glob("*@DEFAULT*/billing/offsets.json"))) == 3
    assert sent_back(broker) == 0
    assert committed(broker) is None
    async with billing(broker, **options) as one, billing(broker, **options) as other:
        assert (await take(other, 1))[0].body == b"2"
        await send(producer, 1, first=3)
        assert (await take(one, 1))[0].body == b"3"
