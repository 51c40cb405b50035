"""Figures: what masters say of topics, and for how long groups are behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client import Consumer, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.topic_stats import (
    TopicReader,
    measure_lag_seconds,
)
from rockhopper.client.consuming.pulling import GroupPuller
from rockhopper.tasks import AT_A_TIME, gather_some_at_a_time


@pytest.fixture
async def served() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


@pytest.fixture
async def producer(served: Broker) -> AsyncIterator[Producer]:
    async with Producer(served.nameserver) as producer:
        yield producer


@pytest.fixture
async def admin(served: Broker) -> AsyncIterator[Admin]:
    async with Admin(served.nameserver) as admin:
        yield admin


async def test_only_some_requests_are_under_way_at_a_time() -> None:
    under_way = most = 0

    async def one(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number

    assert await gather_some_at_a_time(one, range(100)) == list(range(100))
    assert most == AT_A_TIME


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_topic_is_counted(
    served: Broker, producer: Producer, admin: Admin, is_new: bool
) -> None:
    for size_bytes in (100_000, 100, 100_000, 100):
        await producer.send("orders", b"x" * size_bytes)
    if is_new:  # then a broker has no averages
        served.stats.tables["put"].clear()
    reader = TopicReader(admin, await admin.masters())
    found = await reader.all_of("orders")
    assert found.messages == 4
    assert found.newest_ms > 0
    assert found.size_bytes == served.store.log.written_offset
    assert all(each.size_bytes is None for each in await reader.queues("orders"))
    assert found.groups == []
    nothing = await reader.all_of("missing")
    assert (nothing.messages, nothing.queues, nothing.size_bytes) == (0, [], 0)


async def test_lag_is_told_in_seconds(served: Broker, producer: Producer, admin: Admin) -> None:
    await producer.send("orders", b"first", queue=0)
    async with Consumer("billing", "orders", nameserver=served.nameserver) as consumer:
        async for message in consumer:
            first = message
            break
    receipt = await producer.send("orders", b"second", queue=0)
    lags = [each for each in await admin.groups.lag("billing") if each.queue.topic == "orders"]
    puller = GroupPuller(admin.session, None)
    now_ms = first.store_time_ms + 3_600_000
    found = await measure_lag_seconds(puller, lags, now_ms)
    assert 3500 < found[receipt.queue] <= 3600
    assert all(found[each.queue] == 0 for each in lags if not each.lag)
