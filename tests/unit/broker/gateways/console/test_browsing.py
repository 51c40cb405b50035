"""Browsing: page after page shows each message once, in order."""

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console import browsing
from rockhopper.broker.gateways.console.browsing import PAGE_SIZE, Browser, read_places
from rockhopper.client import Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.topic_stats import TopicReader
from rockhopper.client.consuming.pulling import GroupPuller

COUNT = 2 * PAGE_SIZE + 7


@pytest.fixture
async def filled(served: Broker, producer: Producer, admin: Admin) -> Admin:
    await admin.create_topic("orders", queues=3)
    for number in range(COUNT):
        await producer.send("orders", b"%d" % number, queue=number % 3 if number % 5 else 0)
    return admin


async def browser_of(admin: Admin) -> Browser:
    queues = await TopicReader(admin, await admin.masters()).queues("orders")
    assert len(queues) == 3
    return Browser(GroupPuller(admin.session, None), queues)


async def test_back_from_the_newest_to_the_oldest(filled: Admin) -> None:
    seen, places = [], None
    while True:
        browser = await browser_of(filled)
        listed = await browser.back_from(places)
        seen += listed.lines
        if not listed.places:
            break
        assert len(listed.lines) == PAGE_SIZE
        places = read_places(listed.places, 3)
        assert places is not None
    assert sorted(int(each.preview) for each in seen) == list(range(COUNT))
    times = [each.store_time_ms for each in seen]
    assert times == sorted(times, reverse=True)


async def test_onwards_from_the_oldest(filled: Admin) -> None:
    seen, places = [], [0, 0, 0]
    while places:
        listed = await (await browser_of(filled)).on_from(places)
        seen += listed.lines
        places = read_places(listed.places, 3) or []
    assert sorted(int(each.preview) for each in seen) == list(range(COUNT))
    times = [each.store_time_ms for each in seen]
    assert times == sorted(times)


async def test_little_more_is_read_than_is_shown(
    served: Broker, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("even", queues=4)
    for number in range(4 * PAGE_SIZE):
        await producer.send("even", b"%d" % number, queue=number % 4)
    queues = await TopicReader(admin, await admin.masters()).queues("even")
    for is_back in (True, False):
        before = served.stats.total("get").messages
        page = Browser(GroupPuller(admin.session, None), queues)
        listed = await (page.back_from(None) if is_back else page.on_from([0] * 4))
        assert len(listed.lines) == PAGE_SIZE
        assert served.stats.total("get").messages - before < 2 * PAGE_SIZE


async def test_places_outside_are_brought_inside(filled: Admin) -> None:
    browser = await browser_of(filled)
    assert (await browser.on_from([1 << 40] * 3)).lines == []
    assert (await browser.back_from([0, 0, 0])).lines == []
    assert len((await browser.back_from([1 << 40] * 3)).lines) == PAGE_SIZE


async def test_large_messages_shorten_a_page(
    filled: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "READ_BYTES_MAX", 100)
    listed = await (await browser_of(filled)).on_from([0, 0, 0])
    assert "so large" in listed.left_out


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "1-2-x", "1-2--3", "1-2-²"])
def test_places_that_fit_nothing_are_none(text: str) -> None:
    assert read_places(text, 3) is None
    assert read_places("1-2-3", 3) == [1, 2, 3]
