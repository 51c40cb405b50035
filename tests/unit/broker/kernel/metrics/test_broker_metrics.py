"""The page /metrics: what a serving broker shows, and how little a follower does."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.kernel.families import Family, gauge
from rockhopper.broker.kernel.metrics.broker_metrics import MetricsPage, families
from rockhopper.broker.kernel.metrics.lag_metrics import LagAges
from rockhopper.broker.server.loop.stalls import StallWatchdog
from rockhopper.broker.settings.config_file import build_config
from tests.support.direct import pull, send

Samples = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


def scrape(broker: Broker, *, is_ready: bool = True) -> Samples:
    found = families(
        broker.kernel, [], StallWatchdog(), {"broker": 5}, LagAges(), is_ready=is_ready
    )
    return {each.name: dict(each.samples) for each in found if each is not None}


def other() -> Family:
    return gauge("rockhopper_others", "Those of other parts").add_sample(7)


async def test_a_follower_shows_its_build_its_readiness_and_what_others_add() -> None:
    config = build_config({"brokerName": "broker-a"})
    page = await MetricsPage().render_following(config, [other()], is_ready=False)
    lines = [line for line in page.body.decode().splitlines() if line.startswith("rockhopper_")]
    names = [line.split("{")[0] for line in lines]
    assert names == ["rockhopper_build_info", "rockhopper_ready", "rockhopper_others"]
    assert lines[1].endswith(" 0.0")
    assert 'node_id="broker-a' in lines[2]


async def test_the_page_of_a_serving_broker_ends_with_what_others_add(broker: Broker) -> None:
    page = MetricsPage()
    page.stalls.count = 3
    shown = await page.render_serving(
        broker.kernel, broker.features.values(), {}, [other()], is_ready=True
    )
    lines = [line for line in shown.body.decode().splitlines() if line.startswith("ro")]
    assert lines[-1].startswith("rockhopper_others{")
    values = {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in lines}
    assert float(values["rockhopper_stalls_total"]) == 3


async def test_messages_count_where_they_come_in_and_where_they_go_out(broker: Broker) -> None:
    assert "orders" not in str(scrape(broker)["rocketmq_messages_in_total"])
    await send(broker.address, "orders", b"hello")
    await pull(broker.address, "orders")
    shown = scrape(broker)
    taken = {labels[0]: count for labels, count in shown["rocketmq_messages_in_total"].items()}
    assert taken["orders"] == 1
    assert sum(shown["rocketmq_messages_out_total"].values()) == 1
    assert sum(shown["rocketmq_throughput_in_total"].values()) > len("hello")
    assert shown["rockhopper_pulls_total"] == {("found",): 1, ("missed",): 0}


async def test_state_is_shown_as_it_is_now(broker: Broker) -> None:
    before = scrape(broker, is_ready=False)
    assert before["rockhopper_ready"] == {(): 0}
    assert before["rocketmq_broker_permission"] == {(): 6}
    assert before["rockhopper_connections"] == {("broker",): 5}
    assert before["rockhopper_store_writable"] == {(): 1}
    broker.config.live.broker_permission = 4
    await send(broker.address, "orders", b"refused")
    shown = scrape(broker)
    assert shown["rockhopper_ready"] == {(): 1}
    assert shown["rocketmq_broker_permission"] == {(): 4}
    assert shown["rocketmq_topic_number"] == before["rocketmq_topic_number"]
