"""UnreachableBrokers: a broker of two that hangs costs a second once, and its pages say so."""

import json
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console.views import sending
from rockhopper.client import Producer
from rockhopper.client.admin import unreachable_brokers
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.unreachable_brokers import ASKED_AGAIN_AFTER_S, UnreachableBrokers
from tests.support.console import Browser
from tests.support.hung import Hung, hanging


@pytest.fixture
async def hung(served: Broker) -> AsyncIterator[Hung]:
    """Instead of one of two brokers, each of which has half of everything."""
    settings = {"role": "broker", "brokerName": "broker-b", "namesrvAddr": served.nameserver}
    async with Broker.temporary(settings) as other:
        await other.announce()
        async with Producer(served.nameserver) as producer, Admin(served.nameserver) as admin:
            await admin.groups.create("billing")
            for topic in ("orders", "%DLQ%billing"):
                await admin.create_topic(topic, queues=1)
                await other.announce()
                queues = (await admin.route(topic)).write_queues
                assert len(queues) == 2
                for queue in queues:
                    await producer.send(topic, b"of " + queue.broker_name.encode(), queue=queue)
                    if topic == "orders":
                        await admin.offsets.commit("billing", queue, 0)
        async with hanging(other) as hung:
            yield hung


async def test_every_page_shows_the_others_and_names_it(
    browser: Browser, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreachable_brokers, "ASKED_AGAIN_AFTER_S", 1e9)
    reset = {"group": "billing", "topic": "orders", "to": "earliest"}
    for page, query, shown in (
        ("", {}, "broker-b does not answer: "),
        ("brokers", {}, "did not answer"),
        ("topics", {}, "orders 1 "),
        ("topics", {"sort": "messages"}, "orders 1 "),
        ("topic", {"name": "orders"}, "billing 1 "),
        ("messages", {"topic": "orders"}, "of broker-a"),
        ("messages", {"topic": "orders", "by": "time", "q": "1"}, "of broker-a"),
        ("messages", {"topic": "orders", "by": "key", "q": "none"}, "has the key"),
        ("message", {"topic": "orders", "queue": "broker-a:0", "offset": 0}, "billing"),
        ("groups", {}, "billing "),
        ("group", {"name": "billing"}, "1 message behind"),
        ("group/reset", reset, "broker-a"),
        ("dead-letters", {}, "billing 1 1 "),
        ("dead-letters/of", {"group": "billing"}, "of broker-a"),
        ("later", {}, "broker-b"),
        ("settings", {}, "brokerPermission"),
        ("send", {"topic": "orders"}, "broker-a:0"),
    ):
        answer = await browser.get(page, **query)
        assert answer.status == 200, page
        assert shown in answer.text, page
        assert "broker-b" in answer.text, page
        assert "of broker-b" not in answer.text, page
    assert hung.requests == 1


async def test_the_live_view_is_told_who_is_away(browser: Browser, hung: Hung) -> None:
    rates = json.loads((await browser.get("rates.json")).body)
    assert (list(rates["brokers"]), rates["away"]) == (["broker-a/0"], {"broker-b/0": "broker-b"})


async def test_what_is_only_there_is_told_to_be_away(browser: Browser, hung: Hung) -> None:
    there = await browser.get("message", topic="orders", queue="broker-b:0", offset=0)
    assert (there.status, "Broker broker-b is not included" in there.text) == (502, True)


async def test_its_settings_are_told_to_be_away(browser: Browser, hung: Hung) -> None:
    for there in (
        await browser.get("settings", broker="broker-b"),
        await browser.post("settings", key="brokerPermission", value="4", broker="broker-b"),
    ):
        assert (there.status, "broker-b does not answer: " in there.text) == (502, True)


async def test_nothing_is_sent_to_it(browser: Browser, hung: Hung) -> None:
    to_it = await browser.post("send", topic="orders", body="x", queue="broker-b:0")
    assert (to_it.status, "broker-b does not answer: " in to_it.text) == (400, True)
    assert "may be stored" not in to_it.text
    anywhere = [await browser.post("send", topic="orders", body="x") for _ in range(3)]
    assert [each.status for each in anywhere] == [303] * 3


async def test_what_it_may_have_stored_is_told(
    browser: Browser, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it hangs since the page was begun."""

    async def all_answer(self: UnreachableBrokers, admin: Admin) -> object:
        return [], 2

    monkeypatch.setattr(UnreachableBrokers, "leave_out", all_answer)
    monkeypatch.setattr(sending, "TIMEOUT_S", 0.01)
    lost = await browser.post("send", topic="orders", body="typed text", queue="broker-b:0")
    assert (lost.status, "The message may be stored nevertheless" in lost.text) == (400, True)
    assert "typed text" in lost.text


async def test_its_own_topic_is_still_no_application_s(browser: Browser, hung: Hung) -> None:
    assert "name=orders" in (page := await browser.get("topics")).source
    assert "name=broker-b" not in page.source


async def test_one_that_was_killed_is_named_on_every_page(served: Broker, browser: Browser) -> None:
    settings = {"role": "broker", "brokerName": "broker-b", "namesrvAddr": served.nameserver}
    async with Broker.temporary(settings), Admin(served.nameserver) as admin:
        await admin.create_topic("orders", queues=1)
        await admin.groups.create("billing")
        assert "has left the cluster" not in (await browser.get("topics")).text
    for page, query in (
        ("", {}),
        ("brokers", {}),
        ("topics", {}),
        ("topic", {"name": "orders"}),
        ("groups", {}),
        ("group", {"name": "billing"}),
    ):
        answer = await browser.get(page, **query)
        assert answer.status == 200, page
        assert answer.text.count("broker-b has left the cluster") == 1, page
    assert json.loads((await browser.get("rates.json")).body)["away"] == {"broker-b": "broker-b"}


async def test_it_is_asked_again_after_a_while(served: Broker, hung: Hung) -> None:
    now_s = 100.0
    found = UnreachableBrokers(lambda: now_s)
    async with Admin(served.nameserver) as admin:
        routes = admin.session.routes
        assert list((await routes.route("orders")).masters) == ["broker-a", "broker-b"]
        for after_s, requests in ((0.0, 1), (ASKED_AGAIN_AFTER_S - 1, 1), (1.0, 2)):
            now_s += after_s
            (silent,), there = await found.leave_out(admin)
            assert (silent.broker.name, there, hung.requests) == ("broker-b", 1, requests)
            assert [each.name for each in await admin.masters()] == ["broker-a"]
            assert list((await routes.route("orders")).masters) == ["broker-a"]


async def test_one_that_hangs_meanwhile_is_done_without(
    served: Broker, browser: Browser, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had answered when the page was begun."""
    looked = 0

    async def leave_out(self: UnreachableBrokers, admin: Admin) -> object:
        nonlocal looked
        looked += 1
        return ([], 2) if looked == 1 else await as_it_is(self, admin)

    as_it_is = UnreachableBrokers.leave_out
    monkeypatch.setattr(UnreachableBrokers, "leave_out", leave_out)
    answer = await browser.get("topic", name="orders")
    assert (answer.status, looked, hung.requests >= 1) == (200, 2, True)
    assert "Broker broker-b is not included" in answer.text


async def test_without_any_that_answers_pages_are_a_sentence(
    served: Broker, browser: Browser, hung: Hung
) -> None:
    await served.servers.remoting.close()
    for page, status in (("", 200), ("groups", 502), ("settings", 502)):
        answer = await browser.get(page)
        assert (answer.status, "broker-a" in answer.text, "broker-b" in answer.text) == (
            status,
            True,
            True,
        )
