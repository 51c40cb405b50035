"""Lag on /metrics: in messages and in time, of queues, and what a scrape may cost."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.metrics.lag_metrics import LOOKS_PER_TURN, LagAges, lag_families
from rockhopper.broker.kernel.tables.topics import TopicConfig
from tests.support.direct import pull, send


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


def scrape(broker: Broker, ages: LagAges) -> dict[str, dict[tuple[str, ...], float]]:
    found = [family for family in lag_families(broker.kernel, ages) if isinstance(family, Family)]
    return {family.name: dict(family.samples) for family in found}


async def test_a_group_that_is_offline_has_the_age_of_what_it_stands_at(broker: Broker) -> None:
    for _ in range(3):
        await send(broker.address, "orders", b"hello")
    await pull(broker.address, "orders")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    stored_ms = broker.store.reading.store_time("orders", 0, 1)
    broker.clock.not_before(stored_ms + 5000)
    shown = scrape(broker, LagAges())
    by_topic = ("orders", "billing", "false", "false")
    assert shown["rocketmq_consumer_lag_messages"][by_topic] == 2
    assert 5000 <= shown["rocketmq_consumer_lag_latency"][by_topic] < 3_600_000
    queue = ("orders", "billing", "0")
    assert shown["rockhopper_queue_lag_messages"][queue] == 2
    assert 5 <= shown["rockhopper_queue_lag_seconds"][queue] < 3600
    assert shown["rocketmq_consumer_ready_messages"][by_topic] == 2
    broker.tables.offsets.commit("orders", "billing", 0, 3)
    shown = scrape(broker, LagAges())
    assert shown["rocketmq_consumer_lag_latency"][by_topic] == 0
    assert shown["rockhopper_queue_lag_seconds"][queue] == 0


async def test_what_is_handed_out_and_not_acknowledged_is_in_flight(broker: Broker) -> None:
    for _ in range(3):
        await send(broker.address, "orders", b"hello")
    broker.stats.get_pull_traffic("orders", "billing").record_delivery(0, 3)
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    await send(broker.address, "orders", b"not pulled yet")
    shown = scrape(broker, LagAges())
    by_topic = ("orders", "billing", "false", "false")
    assert shown["rocketmq_consumer_inflight_messages"][by_topic] == 2
    assert shown["rocketmq_consumer_ready_messages"][by_topic] == 1


async def test_queues_beyond_the_bound_are_left_out_those_that_lag_last(broker: Broker) -> None:
    broker.tables.topics.put(TopicConfig("orders", read_queue_nums=8, write_queue_nums=8))
    await send(broker.address, "orders", b"hello", queue_id=6)
    broker.tables.offsets.commit("orders", "billing", 0, 0)
    broker.config.live.metrics_queues_max = 3
    shown = scrape(broker, LagAges())
    queues = shown["rockhopper_queue_lag_messages"]
    assert len(queues) == 3
    assert queues["orders", "billing", "6"] == 1
    assert shown["rockhopper_queue_lag_left_out"] == {(): 5}
    assert shown["rocketmq_consumer_lag_messages"]["orders", "billing", "false", "false"] == 1


async def test_a_message_that_a_group_stands_at_is_looked_at_once(broker: Broker) -> None:
    topics = [f"topic-{number}" for number in range(3 * LOOKS_PER_TURN)]
    for topic in topics:
        await send(broker.address, topic, b"hello")
        broker.tables.offsets.commit(topic, "billing", 0, 0)
    ages = LagAges()
    steps, looks = list(lag_families(broker.kernel, ages)), ages.looks
    assert steps.count(None) >= 3  # so often the event loop has its turn
    assert looks == len(topics)
    scrape(broker, ages)
    assert ages.looks == looks
    broker.tables.offsets.commit(topics[0], "billing", 0, 1)
    await send(broker.address, topics[0], b"hello")
    scrape(broker, ages)
    assert ages.looks == looks + 1
