"""Topics: the list, its order, and one of them."""

import re
from functools import partial

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console.views.topics import PAGE_SIZE, QUEUES_SHOWN_MAX, plain_only
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.client import Consumer, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.network.addresses import BrokerAddress
from tests.support.console import Browser
from tests.support.turns import until


def test_what_brokers_keep_for_themselves_is_left_out() -> None:
    names = ["C", "C_REPLY_TOPIC", "b", "%DLQ%g", "%RETRY%g", "TBW102", "orders"]
    assert plain_only(names, [BrokerAddress("C", "b", 0, "x:1")]) == ["orders"]


def listed(source: str) -> list[str]:
    return re.findall(r'<td class="whole"><a href="/console/topic\?name=([^"]+)"', source)


async def test_the_list_is_searched_and_paged(browser: Browser, admin: Admin) -> None:
    names = [f"many-{number:03d}" for number in range(PAGE_SIZE + 3)]
    for name in names:
        await admin.create_topic(name, queues=1)
    first = await browser.get("topics")
    assert listed(first.source) == names[:PAGE_SIZE]
    assert "Page 1 of 2" in first.text
    assert listed((await browser.get("topics", page=2)).source) == names[PAGE_SIZE:]
    assert listed((await browser.get("topics", page=99)).source) == names[PAGE_SIZE:]
    assert listed((await browser.get("topics", search="Y-01")).source) == names[10:20]
    assert "No topic has “x”" in (await browser.get("topics", search="x")).text
    assert "TBW102" in (await browser.get("topics", system=1, search="TBW")).text


async def test_many_queues_are_paged(browser: Browser, admin: Admin) -> None:
    await admin.create_topic("wide", queues=QUEUES_SHOWN_MAX + 3)
    await admin.groups.create("billing")
    for queue in (await admin.route("wide")).read_queues:
        await admin.offsets.commit("billing", queue, 0)
    asked = {"group": "billing", "topic": "wide", "to": "latest"}
    for path, query in (
        ("topic", {"name": "wide"}),
        ("group", {"name": "billing"}),
        ("group/reset", asked),
    ):
        for page, count in ((1, QUEUES_SHOWN_MAX), (2, 3)):
            shown = await browser.get(path, **query, page=page)
            assert shown.source.count("<tr><td>broker-a</td>") == count, path
            assert f"Page {page} of 2" in shown.text
    assert "would move in 0 of 103 queues" in (await browser.get("group/reset", **asked)).text


def _has_passed(time_ms: int) -> bool:
    return wall_clock_ms() > time_ms


@pytest.mark.parametrize("sort", ["messages", "newest"])
async def test_the_list_is_sorted_by_what_is_in_it(
    browser: Browser, producer: Producer, sort: str
) -> None:
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(count):
            await producer.send(name, b"x", queue=0)
        # The next topic's messages are of another millisecond.
        await until(partial(_has_passed, wall_clock_ms()))
    expected = ["c", "b", "a"] if sort == "newest" else ["b", "c", "a"]
    assert listed((await browser.get("topics", sort=sort)).source) == expected
    back = await browser.get("topics", sort=sort, reverse=1)
    assert listed(back.source) == expected[::-1]
    assert 'aria-sort="ascending"' in back.source


async def test_the_list_can_be_sorted_by_rate(browser: Browser, producer: Producer) -> None:
    await producer.send("busy", b"x")
    await producer.send("idle", b"x")
    assert set(listed((await browser.get("topics", sort="in")).source)) == {"busy", "idle"}


async def test_a_topic_shows_queues_and_groups(
    served: Broker, browser: Browser, producer: Producer
) -> None:
    for number in range(3):
        await producer.send("orders", b"x", queue=number % 2)
    async with Consumer("billing", "orders", nameserver=served.nameserver) as consumer:
        async for _ in consumer:
            break
    text = (await browser.get("topic", name="orders")).text
    assert "3 messages kept" in text
    assert re.search(r"billing 2 \d", text)
    assert re.search(r"broker-a 0 0 2 2 20\d\d-", text)


async def test_topics_of_groups_say_what_they_are(browser: Browser, producer: Producer) -> None:
    await producer.send("%RETRY%billing", b"x")
    text = (await browser.get("topic", name="%RETRY%billing")).text
    assert "contains messages that a group will get again" in text
