"""Messages: the ways to find them, and one of them."""

import re
import zlib

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console.bodies import DECOMPRESSED_SIZE_BYTES_MAX
from rockhopper.broker.gateways.console.views.messages import time_of
from rockhopper.broker.gateways.console.visit import WrongInput
from rockhopper.client import Message, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.receipts import SendReceipt
from tests.support.console import Answered, Browser
from tests.support.dead_letters import fail_on_all, send


def bodies(answer: Answered) -> list[str]:
    return re.findall(r'<td class="preview"><code>(.*?)</code>', answer.source)


@pytest.fixture
async def sent(producer: Producer) -> list[SendReceipt]:
    return [
        await producer.send("orders", b"body %d" % number, queue=0, keys=[f"k{number % 3}"])
        for number in range(6)
    ]


async def test_every_way_to_look(browser: Browser, sent: list[SendReceipt]) -> None:
    every = [f"body {number}" for number in range(6)]
    assert bodies(await browser.get("messages", topic="orders")) == every[::-1]
    found = await browser.get("messages", topic="orders", by="offset", q="4")
    assert bodies(found) == every[4:]
    found = await browser.get("messages", topic="orders", by="time", q="2020-01-01T00:00")
    assert bodies(found) == every
    found = await browser.get("messages", topic="orders", by="time", q="4102444800000")
    assert bodies(found) == []
    found = await browser.get("messages", topic="orders", by="key", q="k1")
    assert sorted(bodies(found)) == ["body 1", "body 4"]
    assert (
        "has the key “none”"
        in (await browser.get("messages", topic="orders", by="key", q="none")).text
    )
    for by, number in (("id", 0), ("id", 2), ("newest", 3)):
        for message_id in (sent[number].message_id, sent[number].offset_message_id):
            for typed in (message_id, message_id.lower()):
                moved = await browser.get("messages", topic="orders", by=by, q=typed)
                assert f"body {number}" in (await browser.follow(moved)).text
    assert "Type an id" in (await browser.get("messages", topic="orders", by="id")).text


async def test_what_is_typed_without_saying_what_it_is_is_a_key(
    browser: Browser, producer: Producer
) -> None:
    await producer.send("orders", b"body", keys=["k1", "ab" * 16])
    for key in ("k1", "ab" * 16):
        found = await browser.get("messages", topic="orders", by="newest", q=key)
        assert bodies(found) == ["body"]
        assert '<option value="key" selected>' in found.source
    assert "has the key “no”" in (await browser.get("messages", topic="orders", q="no")).text


async def test_an_offset_has_to_be_one(browser: Browser, sent: list[SendReceipt]) -> None:
    for typed in ("abc", "1e9", "-5", "9" * 22):
        page = await browser.get("messages", topic="orders", by="offset", q=typed)
        assert (page.status, f"'{typed}' is not a valid offset" in page.text) == (400, True)
        assert f'value="{typed}"' in page.source
        page = await browser.get("message", topic="orders", queue="broker-a:0", offset=typed)
        assert (page.status, f"'{typed}' is not a valid offset" in page.text) == (400, True)
    page = await browser.get("messages", topic="orders", by="time", q="soon")
    assert (page.status, "is not a time" in page.text) == (400, True)
    assert len(bodies(await browser.get("messages", topic="orders", by="offset"))) == 6


async def test_the_ends_of_a_queue_lead_nowhere(browser: Browser, sent: list[SendReceipt]) -> None:
    for offset, ways in ((0, ["next"]), (3, ["prev", "next"]), (5, ["prev"])):
        page = await browser.get("message", topic="orders", queue="broker-a:0", offset=offset)
        assert re.findall(r'rel="(prev|next)"', page.source) == ways


async def test_one_queue_can_be_chosen(browser: Browser, sent: list[SendReceipt]) -> None:
    assert len(bodies(await browser.get("messages", topic="orders", queue="broker-a:0"))) == 6
    assert bodies(await browser.get("messages", topic="orders", queue="broker-a:1")) == []
    assert (await browser.get("messages", topic="orders", queue="broker-a:99")).status == 400
    assert (await browser.get("messages", topic="orders", queue="x")).status == 400


async def test_a_message_has_all_there_is(browser: Browser, producer: Producer) -> None:
    message = Message("orders", b'{"a":1}', tags="new", keys=["k"], properties={"region": "eu"})
    receipt = await producer.send(message)
    place = {
        "topic": "orders",
        "queue": f"broker-a:{receipt.queue.queue_id}",
        "offset": receipt.queue_offset,
    }
    page = await browser.get("message", **place)
    assert '{ "a": 1 }' in page.text
    for part in ("7 bytes", "region eu", receipt.message_id, "No group has read this topic"):
        assert part in page.text
    hexed = await browser.get("message", **place, **{"as": "hex"})
    assert "7b 22 61" in hexed.text
    saved = await browser.get("message/body", **place)
    assert saved.body == b'{"a":1}'
    assert saved.headers["Content-Type"] == "application/octet-stream"
    assert saved.headers["Content-Disposition"].startswith('attachment; filename="orders-')


async def test_a_body_that_cannot_be_opened_is_saved_as_it_is_stored(
    served: Broker, browser: Browser
) -> None:
    async with Producer(served.nameserver, message_size_bytes_max=32 << 20) as producer:
        await producer.send("orders", bytes(DECOMPRESSED_SIZE_BYTES_MAX + 1), queue=0)
    place = {"topic": "orders", "queue": "broker-a:0", "offset": 0}
    assert "Save the body as stored, with zlib" in (await browser.get("message", **place)).text
    saved = await browser.get("message/body", **place)
    assert saved.headers["Content-Disposition"].endswith('-0-0.bin.zlib"')
    assert len(zlib.decompress(saved.body)) == DECOMPRESSED_SIZE_BYTES_MAX + 1


async def test_hostile_messages_stay_text(browser: Browser, producer: Producer) -> None:
    script = "<script>alert(1)</script>"
    message = Message(
        "orders",
        f"</pre>{script}\u202e\x1b[31m".encode(),
        tags=script,
        keys=["<b>"],
        properties={f'"{script}': f"javascript:{script}\u2066"},
    )
    receipt = await producer.send(message, queue=0)
    place = {"topic": "orders", "queue": "broker-a:0", "offset": receipt.queue_offset}
    for page in (
        await browser.get("messages", topic="orders"),
        await browser.get("message", **place),
        await browser.get("messages", topic="orders", by="key", q=script),
    ):
        assert page.status == 200
        assert "<script>alert" not in page.source
        assert "<b>" not in page.source.replace("<b>alert", "")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\u2066]", page.source)


async def test_what_is_not_there_says_what_is(browser: Browser, sent: list[SendReceipt]) -> None:
    beyond = await browser.get("message", topic="orders", queue="broker-a:0", offset=6)
    assert beyond.status == 400
    assert "its offsets are 0 to 5" in beyond.text
    empty = await browser.get("message", topic="orders", queue="broker-a:1", offset=0)
    assert "which is empty" in empty.text
    assert (await browser.get("messages", topic="orders", by="magic")).status == 400


def test_times_are_dates_or_milliseconds() -> None:
    assert time_of("1700000000000") == 1_700_000_000_000
    assert time_of("2023-11-14T22:13:20+00:00") == 1_700_000_000_000
    for text in ("", "yesterday", "9999999-01-01", "0001-01-01T00:00"):
        with pytest.raises(WrongInput, match="is not a time"):
            time_of(text)


async def test_a_message_that_waits_says_when_it_comes_and_for_which_topic(
    browser: Browser, producer: Producer
) -> None:
    await producer.send("orders", b"now")
    receipt = await producer.send(Message("orders", b"later", delay_level=17))
    moved = await browser.get("messages", topic="orders", by="id", q=receipt.message_id)
    page = await browser.follow(moved)
    assert "It is delivered at 2" in page.text
    assert "in the topic orders." in page.text


async def test_the_page_of_a_dead_letter_says_where_it_was_sent_and_when_it_was_given_up(
    served: Broker, browser: Browser
) -> None:
    await send(served, 1)
    await fail_on_all(served, 1)
    letter = await browser.get("message", topic="%DLQ%billing", queue="broker-a:0", offset="0")
    assert "a copy of a message that was sent to the topic orders." in letter.text
    assert "in %DLQ%billing, given up 2" in letter.text


async def test_what_is_looked_at_is_not_handed_out(
    served: Broker, browser: Browser, sent: list[SendReceipt], admin: Admin
) -> None:
    """Nor after the connection has asked twice, which is when compiled code takes over."""
    await admin.groups.create("billing")
    await admin.offsets.commit("billing", sent[0].queue, 1)
    for _ in range(3):
        assert len(bodies(await browser.get("messages", topic="orders"))) == len(sent)
        for page in ("message", "message/body"):
            found = await browser.get(page, topic="orders", queue="broker-a:0", offset=0)
            assert b"body 0" in found.body
        assert "billing" in (await browser.get("topic", name="orders")).text
        assert "billing" in (await browser.get("group", name="billing")).text
    stats = served.stats
    assert (stats.get_found, stats.get_missed, list(stats.iterate_by_key("get"))) == (0, 0, [])


async def test_who_may_read_a_topic_may_look_at_it(alice: Browser) -> None:
    moved = await alice.post("send", topic="orders", body="of alice")
    message = await alice.follow(moved)
    assert "of alice" in message.text
    assert "billing group is offline" in message.text
    assert "you may not read the copies in %DLQ%billing, " in message.text
    assert "SCHEDULE_TOPIC_XXXX, rmq_sys_wheel_timer" in message.text
    assert "payroll" not in message.text
    assert "1 more group read this topic; you may not see them." in message.text
    assert "of alice" in (await alice.get("messages", topic="orders")).text
    group = (await alice.get("group", name="billing")).text
    assert "1 message behind" in group
    assert "– the longest wait" not in group
