"""Sending from a form."""

from rockhopper.client import PullConsumer
from rockhopper.client.admin.admin import Admin
from tests.support.console import Browser


async def test_everything_typed_is_sent(browser: Browser, admin: Admin) -> None:
    moved = await browser.post(
        "send",
        topic="orders",
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
    moved = await browser.post("send", topic="orders", body="x", when="after", later="3600")
    assert "is to be delivered later" in (await browser.follow(moved)).text
    later = (await browser.get("later")).text
    assert "in 59 min" in later or "in 1 h" in later


async def test_what_is_wrong_is_shown_beside_what_was_typed(browser: Browser) -> None:
    for wrong, why in (
        ({"topic": ""}, "say to which topic"),
        ({"topic": "not a topic!"}, "topic"),
        ({"form": "hex", "body": "xyz"}, "the body is no hex"),
        ({"properties": "no equals sign"}, "is no property"),
        ({"properties": "UNIQ_KEY=1"}, "UNIQ_KEY"),
        ({"when": "after", "later": "soon"}, "no number of seconds"),
        ({"when": "at", "later": "soon"}, "is no time"),
        ({"queue": "x"}, "names no queue"),
    ):
        answer = await browser.post("send", **{"topic": "orders", "body": "typed text", **wrong})
        assert answer.status == 400
        assert why in answer.text
        if "body" not in wrong:
            assert "typed text" in answer.text
