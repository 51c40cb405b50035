"""Groups: the list, one of them, and moving it."""

import re
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console.views.groups import PAGE_SIZE
from rockhopper.client import Consumer, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.consuming.notifications import Notifications
from rockhopper.protocol.signing import Credentials
from tests.support.console import Browser


@pytest.fixture
async def consumer(served: Broker, producer: Producer) -> AsyncIterator[Consumer]:
    """Online, and three of four messages behind."""
    for number in range(4):
        await producer.send("orders", b"%d" % number, queue=0)
    async with Consumer(
        "billing", "orders", nameserver=served.nameserver, queue_count_max=1, batch_size=1
    ) as consumer:
        async for message in consumer:
            first = message
            break
        await consumer.commit()
        async with Admin(served.nameserver) as admin:
            await admin.offsets.commit("billing", first.queue, 1)
        yield consumer


async def test_the_list_tells_who_is_behind(browser: Browser, consumer: Consumer) -> None:
    text = (await browser.get("groups")).text
    assert re.search(r"billing 1 3 [\d.]+ s orders", text)


async def test_the_list_is_searched_sorted_and_paged(browser: Browser, admin: Admin) -> None:
    for number in range(PAGE_SIZE + 1):
        await admin.groups.create(f"group-{number:02d}")
    first = await browser.get("groups")
    assert f"{PAGE_SIZE + 1} groups" in first.text
    assert "Page 1 of 2" in first.text
    assert f"group-{PAGE_SIZE:02d}" in (await browser.get("groups", page=2)).text
    assert "1 group." in (await browser.get("groups", search="P-07")).text
    assert (await browser.get("groups", sort="lag")).status == 200


async def test_a_group_shows_members_and_queues(browser: Browser, consumer: Consumer) -> None:
    text = (await browser.get("group", name="billing")).text
    assert "3 messages behind" in text
    assert "1 member online" in text
    assert consumer.client_id in text
    assert "retryMaxTimes" in text
    assert (await browser.get("group", name="nobody")).status == 404


async def test_members_that_subscribe_differently_are_shown_each(
    browser: Browser, consumer: Consumer, served: Broker
) -> None:
    assert "subscribe differently" not in (await browser.get("group", name="billing")).text
    async with Consumer("billing", {"orders": "paid"}, nameserver=served.nameserver) as other:
        text = (await browser.get("group", name="billing")).text
    assert "The members subscribe differently." in text
    assert f"{other.client_id} clustering orders paid" in text
    assert f"{consumer.client_id} clustering orders *" in text


async def test_members_that_do_not_tell_are_counted(
    browser: Browser, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "did not report their queues in time"
    assert said not in (await browser.get("group", name="billing")).text
    monkeypatch.setattr(Notifications, "handle", lambda *_: None)
    assert f"1 of them {said}" in (await browser.get("group", name="billing")).text


async def test_a_reset_is_shown_before_it_is_done(
    browser: Browser, producer: Producer, admin: Admin
) -> None:
    for number in range(4):
        await producer.send("orders", b"%d" % number, queue=0)
    await admin.groups.create("billing")
    (queue, *_) = (await admin.route("orders")).read_queues
    await admin.offsets.commit("billing", queue, 3)
    asked = {"group": "billing", "topic": "orders", "to": "offset", "value": "1"}
    preview = await browser.get("group/reset", **asked, queue="broker-a:0")
    assert "Nothing has been done yet" in preview.text
    assert "broker-a 0 3 1 -2" in preview.text
    assert "2 messages are consumed again" in preview.text
    assert await admin.offsets.committed("billing", queue) == 3
    assert '<button class="main">Move it' in preview.source
    stays = await browser.get("group/reset", **{**asked, "value": "3"}, queue="broker-a:0")
    assert '<button class="main" disabled>Move it' in stays.source

    for chosen in ("nope:1", "broker-a:9"):
        answer = await browser.get("group/reset", **asked, queue=chosen)
        assert (answer.status, f"has no queue {chosen}" in answer.text) == (400, True)
    below = await browser.get("group/reset", **{**asked, "value": "-5"})
    assert (below.status, "'-5' is not a valid offset" in below.text) == (400, True)

    moved = await browser.post("group/reset", **asked, queue="broker-a:0")
    assert "was reset in 1 of 1 queue of orders" in (await browser.follow(moved)).text
    assert await admin.offsets.committed("billing", queue) == 1
    for to, expected in (("latest", 4), ("earliest", 0)):
        await browser.post("group/reset", **{**asked, "to": to})
        assert await admin.offsets.committed("billing", queue) == expected
    await browser.post("group/reset", **{**asked, "to": "time", "value": "2100-01-01T00:00"})
    assert await admin.offsets.committed("billing", queue) == 4


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"group": ""}, "group or topic is missing"),
        ({"to": "nowhere"}, "can be reset to"),
        ({"value": "x"}, "is not a valid offset"),
        ({"to": "time", "value": "x"}, "is not a time"),
        ({"queue": "x"}, "is not a queue"),
    ],
)
async def test_a_reset_to_nowhere_is_refused(
    browser: Browser, admin: Admin, wrong: dict[str, str], why: str
) -> None:
    await admin.create_topic("orders", queues=1)
    await admin.groups.create("billing")
    await admin.offsets.commit("billing", (await admin.route("orders")).read_queues[0], 0)
    asked = {"group": "billing", "topic": "orders", "to": "offset", "value": "1", **wrong}
    preview = await browser.get("group/reset", **asked)
    for answer in (preview, await browser.post("group/reset", **asked)):
        assert answer.status == 400
        assert why in answer.text
    if asked["group"]:
        for kept in (asked["value"], asked.get("queue", "")):
            assert f'value="{kept}"' in preview.source
        assert "Show what would happen" in preview.text


async def test_a_group_is_shown_without_the_topics_that_are_hidden(
    reader: Browser, root: Admin
) -> None:
    async with Producer(
        str(root.session.name_services), credentials=Credentials("root", "the secret")
    ) as producer:
        for topic in ("orders", "hidden"):
            await producer.send(topic, b"x")
    page = await reader.get("group", name="billing")
    assert page.status == 200, page.text
    assert "1 message behind" in page.text
    assert "It reads topics that you may not see" in page.text
    assert "dead letters: no permission" in page.text
    listed = (await reader.get("groups")).text
    assert re.search(r"billing offline 1 [\d.]+ s orders", listed)
    topic = (await reader.get("topic", name="orders")).text
    assert re.search(r"billing 1 [\d.]+ s", topic)
    for shown in (page.text, listed, topic, (await reader.get()).text):
        assert "hidden" not in shown


async def test_a_preview_says_that_the_move_would_be_refused(reader: Browser) -> None:
    asked = {"group": "billing", "topic": "orders", "to": "latest"}
    preview = await reader.get("group/reset", **asked)
    assert (preview.status, "is not allowed to Update Topic:orders" in preview.text) == (200, True)
    assert "disabled" in preview.source
    assert (await reader.post("group/reset", **asked)).status == 403
