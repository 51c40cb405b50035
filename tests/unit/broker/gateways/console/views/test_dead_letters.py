"""Dead letters: seen, and sent back."""

import asyncio
import re
from typing import Any

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import BrokerUnreachableError
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from tests.support.console import Answered, Browser
from tests.support.dead_letters import fail_on_all, forge, send, take_all


async def test_there_may_be_none(browser: Browser, admin: Admin) -> None:
    assert "There are none." in (await browser.get("dead-letters")).text
    assert (await browser.get("dead-letters/of", group="billing")).status == 404
    await admin.groups.create("billing")
    page = await browser.get("dead-letters/of", group="billing")
    assert (page.status, "There are none." in page.text) == (200, True)


async def test_they_are_seen_and_go_back(served: Broker, browser: Browser) -> None:
    ids = await send(served, 3)
    await fail_on_all(served, 3)
    assert "billing 3 3" in (await browser.get("dead-letters")).text
    page = await browser.get("dead-letters/of", group="billing")
    assert "gave up 3; 3 were not sent back" in page.text
    assert len(letters(page)) == 3

    one = await browser.get("dead-letters/back", group="billing", id=letters(page)[1])
    assert "Nothing has been done yet. 1 would be sent back" in one.text
    assert "orders 1" in one.text
    assert (sent(served), letters(page)[1] in one.source) == (3, True)
    moved = await browser.post("dead-letters/of", group="billing", id=ids[1])
    assert "Sent back 1 of the dead letters of billing" in (await browser.follow(moved)).text
    page = await browser.get("dead-letters/back", group="billing", count=1000)
    page = await browser.follow(await browser.post("dead-letters/of", **form(page)))
    assert "Sent back 2 of the dead letters of billing" in page.text
    assert "There are none." in page.text
    assert sorted(each.message_id for each in await take_all(served, 3)) == sorted(ids)
    every = await browser.get("dead-letters/of", group="billing", all=1)
    assert every.text.count("was sent") == 3


async def test_it_is_shown_what_goes_where_first(served: Broker, browser: Browser) -> None:
    await send(served, 3)
    await fail_on_all(served, 3)
    some = await browser.get("dead-letters/back", group="billing", count=2)
    assert "Nothing has been done yet. 2 would be sent back" in some.text
    assert "orders 2" in some.text
    alone = await browser.get("dead-letters/back", group="billing", count=9, to="group")
    assert "%RETRY%billing 3" in alone.text
    assert sent(served) == 3
    moved = await browser.post("dead-letters/of", **form(alone))
    assert (
        "Sent back 3 of the dead letters of billing, to billing alone"
        in (await browser.follow(moved)).text
    )
    assert sent(served) == 3
    assert len(await take_all(served, 3)) == 3


async def test_a_form_without_a_group_is_refused(browser: Browser) -> None:
    assert (await browser.post("dead-letters/of", letters="x")).status == 400
    assert (await browser.post("dead-letters/of", group="nobody", letters="x")).status == 404


async def test_what_several_send_back_at_once_goes_once(served: Broker, browser: Browser) -> None:
    ids = await send(served, 4)
    await fail_on_all(served, 4)
    page = await browser.get("dead-letters/of", group="billing")
    here = letters(page)
    token = await browser.token()
    at_once = [
        browser.post("dead-letters/of", token=token, group="billing", id=here[2]) for _ in range(4)
    ]
    assert [each.status for each in await asyncio.gather(*at_once)] == [303] * 4
    assert sent(served) == 4 + 1
    in_bulk = [
        browser.post("dead-letters/of", token=token, group="billing", letters=" ".join(here))
        for _ in range(3)
    ]
    assert [each.status for each in await asyncio.gather(*in_bulk)] == [303] * 3
    assert sent(served) == 4 + 4
    assert sorted(each.message_id for each in await take_all(served, 4)) == sorted(ids)


async def test_a_message_that_died_twice_goes_back_twice(served: Broker, browser: Browser) -> None:
    await send(served, 1)
    for died in (1, 2):
        await fail_on_all(served, died)
        page = await browser.get("dead-letters/of", group="billing")
        (letter,) = letters(page)
        moved = await browser.post("dead-letters/of", group="billing", id=letter)
        assert "Sent back 1 of the dead letters of billing" in (await browser.follow(moved)).text
    assert sent(served) == 3


async def test_what_goes_is_what_the_preview_showed(served: Broker, browser: Browser) -> None:
    """And nothing in its place, where somebody goes back and presses once more."""
    await send(served, 4)
    await fail_on_all(served, 4)
    asked = form(await browser.get("dead-letters/back", group="billing", count=2))
    first = await browser.follow(await browser.post("dead-letters/of", **asked))
    assert "Sent back 2 of the dead letters of billing" in first.text
    again = await browser.follow(await browser.post("dead-letters/of", **asked))
    assert "Sent back 0 of the dead letters of billing" in again.text
    assert "2 of those shown had already been sent back, or no longer exist." in again.text
    assert sent(served) == 4 + 2
    unnamed = await browser.post("dead-letters/of", group="billing", count=2)
    assert (unnamed.status, "use the preview" in unnamed.text) == (400, True)


async def test_what_cannot_go_back_stays_and_the_others_go(
    served: Broker, browser: Browser
) -> None:
    await send(served, 2)
    await fail_on_all(served, 2)
    refused = {"RETRY_TOPIC": TRANSACTION_HALF_TOPIC}
    for properties in ({}, refused, {"RETRY_TOPIC": "orders"}):
        await forge(served, properties)
    page = await browser.get("dead-letters/back", group="billing", count=9)
    assert (page.status, "4 would be sent back" in page.text) == (200, True)
    assert "1 would not be sent:" in page.text
    assert "offset 2 does not name its original topic" in page.text
    moved = await browser.follow(await browser.post("dead-letters/of", **form(page)))
    assert "Sent back 3 of the dead letters of billing" in moved.text
    assert "1 could not be sent: " in moved.text
    assert TRANSACTION_HALF_TOPIC in moved.text
    assert sent(served) == 2 + 3

    alone = await browser.get("dead-letters/back", group="billing", count=9, to="group")
    assert "%RETRY%billing 3" in alone.text
    moved = await browser.follow(await browser.post("dead-letters/of", **form(alone)))
    assert "Sent back 2 of the dead letters of billing, to billing alone" in moved.text
    assert "1 had already been sent back." in moved.text
    assert "There are none." in moved.text


async def test_one_that_is_refused_by_itself_is_told_as_that(
    served: Broker, browser: Browser
) -> None:
    await send(served, 1)
    await fail_on_all(served, 1)
    await forge(served, {"RETRY_TOPIC": TRANSACTION_HALF_TOPIC})
    page = await browser.get("dead-letters/of", group="billing")
    refused = await browser.post("dead-letters/of", group="billing", id=letters(page)[1])
    assert (refused.status, TRANSACTION_HALF_TOPIC in refused.text) == (403, True)


async def test_what_went_before_a_failure_is_told(
    served: Broker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(served, 3)
    await fail_on_all(served, 3)
    count = 0

    async def once(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count > 1:
            raise BrokerUnreachableError("it went away", address=served.address)
        return await as_it_is(*arguments)

    as_it_is = GroupSender.send
    page = await browser.get("dead-letters/back", group="billing", count=9)
    monkeypatch.setattr(GroupSender, "send", once)
    moved = await browser.follow(await browser.post("dead-letters/of", **form(page)))
    assert "Sent back 1 of the dead letters of billing" in moved.text
    assert "Then it stopped, and 2 were not sent: it went away." in moved.text


def form(page: Answered) -> dict[str, str]:
    """What the button of a preview sends."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.source))


def letters(page: Answered) -> list[str]:
    """What can be sent back by itself."""
    return re.findall(r'/dead-letters/back\?group=billing&amp;id=([^"]+)"', page.source)


def sent(broker: Broker) -> int:
    """How many messages were sent to the topic that they failed in, ever."""
    queues = range(broker.tables.topics.configs["orders"].write_queue_nums)
    return sum(broker.store.reading.queue_range("orders", queue)[1] for queue in queues)
