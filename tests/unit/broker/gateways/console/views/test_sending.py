"""Sending from a form."""

import html
import re

from rockhopper.client import PullConsumer
from rockhopper.client.admin.admin import Admin
from tests.support.console import Browser


async def test_everything_typed_is_sent(browser: Browser, admin: Admin) -> None:
    moved = await browser.post(
        "send",
        topic="orders",
        new="1",
        body="two\r\nlines ž",
        tags="new",
        keys="a  b",
        properties="region=eu\nformula=x=y",
        sharding_key="s",
    )
    page = await browser.follow(moved)
    assert "The message was stored." in page.text
    (message,) = await admin.messages_by_key("orders", "b")
    assert message.body == "two\nlines ž".encode()
    assert (message.tags, message.keys) == ("new", ["a", "b"])
    assert message.properties["region"] == "eu"
    assert message.properties["formula"] == "x=y"


async def test_hex_and_a_queue_can_be_chosen(browser: Browser, admin: Admin) -> None:
    await admin.create_topic("orders", queues=4)
    moved = await browser.post(
        "send", topic="orders", body="00 ff\n7f", form="hex", queue="broker-a:3"
    )
    assert "queue=broker-a%3A3" in moved.headers["Location"]
    async with PullConsumer("orders", nameserver=admin_address(admin)) as consumer:
        (message,) = await consumer.pull(1, timeout_s=60)
    assert message.body == b"\x00\xff\x7f"


def admin_address(admin: Admin) -> str:
    return str(admin.session.name_services)


async def test_it_may_be_delivered_later(browser: Browser) -> None:
    moved = await browser.post("send", topic="orders", new=1, body="x", when="after", later="3600")
    assert "will be delivered later" in (await browser.follow(moved)).text
    page = await browser.get("later")
    assert "in 59 min" in page.text or "in 1 h" in page.text
    found = re.search(r'href="(/console/message\?topic=rmq_sys_wheel_timer[^"]*)"', page.source)
    assert found is not None
    assert (await browser.ask("GET", html.unescape(found[1]))).status == 200


async def test_a_mistyped_topic_is_not_made_without_a_word(browser: Browser, admin: Admin) -> None:
    await admin.create_topic("orders", queues=1)
    answer = await browser.post("send", topic="oders", body="two\r\nlines \u200d\x1b")
    assert "two\r\nlines \u200d\x1b" in answer.source  # none of it spelt out: it is sent again
    answer = await browser.post("send", topic="oders", body="typed text")
    assert (answer.status, "There is no topic oders. Is it orders?" in answer.text) == (400, True)
    assert "Create the topic oders" in answer.text
    assert "typed text" in answer.text
    assert "oders" not in await admin.topics()
    assert "Create the topic oders" in (await browser.get("send", topic="oders")).text
    moved = await browser.post("send", topic="oders", body="typed text", new="1")
    assert "The message was stored." in (await browser.follow(moved)).text
    assert "Create the topic" not in (await browser.get("send", topic="orders")).text


async def test_what_is_wrong_is_shown_beside_what_was_typed(browser: Browser) -> None:
    await browser.post("send", topic="orders", body="x", new="1")
    for wrong, why in (
        ({"topic": ""}, "topic is missing"),
        ({"topic": "not a topic!"}, "topic"),
        ({"form": "zzz"}, "'zzz' is not a body format"),
        ({"when": "zz"}, "'zz' is not a delivery"),
        ({"properties": "a=1\na=2"}, "'a' is given twice"),
        ({"form": "hex", "body": "0\nz"}, "the body is not hex: 'z' is not a digit"),
        ({"form": "hex", "body": "012"}, "it has an odd number of digits, 3"),
        ({"properties": "no equals sign"}, "is not a property"),
        ({"properties": "UNIQ_KEY=1"}, "UNIQ_KEY"),
        ({"when": "after", "later": "soon"}, "not a valid number of seconds"),
        ({"when": "after", "later": "-5"}, "not a valid number of seconds"),
        ({"when": "after", "later": "9" * 12}, "more than brokers allow"),
        ({"when": "at", "later": "soon"}, "is not a time"),
        ({"when": "at", "later": "2020-01-01T00:00"}, "is in the past"),
        ({"topic": "%RETRY%billing"}, "is written by brokers only"),
        ({"topic": "%DLQ%billing"}, "is written by brokers only"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "is written by brokers only"),
        ({"queue": "x"}, "is not a queue"),
    ):
        answer = await browser.post("send", **{"topic": "orders", "body": "typed text", **wrong})
        assert answer.status == 400
        assert why in answer.text
        if "body" not in wrong:
            assert "typed text" in answer.text


async def test_it_ends_where_the_sender_may_look(alice: Browser, root: Admin) -> None:
    for actions, page in (
        (["Pub", "Sub", "Get"], "message?"),
        (["Pub", "Get"], "topic?name=orders"),
        (["Pub"], "send?topic=orders"),
    ):
        await root.accounts.add_rule(
            "alice", "Topic:orders", actions, is_allowed=True, replaces=True
        )
        moved = await alice.post("send", topic="orders", body="x")
        assert f"/console/{page}" in moved.headers["Location"]
        assert "The message was stored." in (await alice.follow(moved)).text


async def test_what_was_typed_stays_where_sending_is_refused(alice: Browser) -> None:
    refused = await alice.post("send", topic="secret", body="typed text")
    assert (refused.status, "typed text" in refused.text) == (403, True)
    assert "alice at 127.0.0.1 is not allowed to Pub Topic:secret" in refused.text
    assert "GET_ROUTEINFO" not in refused.text
    shown = await alice.get("send", topic="secret")
    assert (shown.status, "is not allowed to Pub Topic:secret" in shown.text) == (200, True)
