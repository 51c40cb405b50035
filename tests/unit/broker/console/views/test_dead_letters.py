"""Dead letters: seen, and sent back."""

import asyncio
import re

from rockhopper.broker.broker import Broker
from rockhopper.client.admin.admin import Admin
from tests.support.console import Answered, Browser
from tests.support.dead_letters import fail_on_all, send, take_all


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
    assert "Nothing is done yet. 1 would go back" in one.text
    assert "orders 1" in one.text
    assert (sent(served), letters(page)[1] in one.source) == (3, True)
    moved = await browser.post("dead-letters/of", group="billing", id=ids[1])
    assert "1 of the dead letters of billing went back" in (await browser.follow(moved)).text
    moved = await browser.post("dead-letters/of", group="billing", count=1000)
    page = await browser.follow(moved)
    assert "2 of the dead letters of billing went back" in page.text
    assert "There are none." in page.text
    assert sorted(each.message_id for each in await take_all(served, 3)) == sorted(ids)
    every = await browser.get("dead-letters/of", group="billing", all=1)
    assert every.text.count("was sent") == 3


async def test_it_is_shown_what_goes_where_first(served: Broker, browser: Browser) -> None:
    await send(served, 3)
    await fail_on_all(served, 3)
    some = await browser.get("dead-letters/back", group="billing", count=2)
    assert "Nothing is done yet. 2 would go back" in some.text
    assert "orders 2" in some.text
    alone = await browser.get("dead-letters/back", group="billing", count=9, to="group")
    assert "%RETRY%billing 3" in alone.text
    assert sent(served) == 3
    moved = await browser.post("dead-letters/of", group="billing", count=9, to="group")
    assert (
        "3 of the dead letters of billing went back to billing alone"
        in (await browser.follow(moved)).text
    )
    assert sent(served) == 3
    assert len(await take_all(served, 3)) == 3


async def test_a_form_without_a_group_is_refused(browser: Browser) -> None:
    assert (await browser.post("dead-letters/of", count=1)).status == 400
    assert (await browser.post("dead-letters/of", group="nobody", count=1)).status == 404


async def test_what_several_send_back_at_once_goes_once(served: Broker, browser: Browser) -> None:
    ids = await send(served, 4)
    await fail_on_all(served, 4)
    page = await browser.get("dead-letters/of", group="billing")
    forms = letters(page)
    token = await browser.token()
    at_once = [
        browser.post("dead-letters/of", token=token, group="billing", id=forms[2]) for _ in range(4)
    ]
    assert [each.status for each in await asyncio.gather(*at_once)] == [303] * 4
    assert sent(served) == 4 + 1
    in_bulk = [
        browser.post("dead-letters/of", token=token, group="billing", count=1000) for _ in range(3)
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
        assert "1 of the dead letters of billing went back" in (await browser.follow(moved)).text
    assert sent(served) == 3


def letters(page: Answered) -> list[str]:
    """What can be sent back by itself."""
    return re.findall(r'/dead-letters/back\?group=billing&amp;id=([^"]+)"', page.source)


def sent(broker: Broker) -> int:
    """How many messages were sent to the topic that they failed in, ever."""
    queues = range(broker.topics.configs["orders"].write_queue_nums)
    return sum(broker.store.queue_range("orders", queue)[1] for queue in queues)
