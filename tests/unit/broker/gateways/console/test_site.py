"""The site: paths, and what is shown of what fails."""

import asyncio

import pytest
import structlog.testing

from rockhopper.broker.app import Broker
from rockhopper.client import Producer
from rockhopper.client.admin.admin import Admin
from tests.support.console import Browser


async def test_what_is_not_there_is_a_page_with_a_sentence(browser: Browser) -> None:
    for page in ("nothing", "views/topics", "../metrics", "%2e%2e/x"):
        answer = await browser.get(page)
        assert answer.status == 404
        assert "This page does not exist." in answer.text
    assert (await browser.get("static/../console.py")).status == 404
    assert (await browser.post("nothing")).status == 404


async def test_what_is_asked_wrongly_is_told_so(browser: Browser) -> None:
    missing = await browser.get("topic")
    assert (missing.status, "the parameter name=" in missing.text) == (400, True)
    unknown = await browser.get("topic", name="<script>alert(1)</script>")
    assert unknown.status == 404
    assert "<script>alert" not in unknown.source
    assert "<script>alert(1)</script>" in unknown.text


async def test_a_notice_is_shown_only_as_it_was_sealed(
    browser: Browser, producer: Producer
) -> None:
    moved = await browser.post("send", topic="orders", body="x", new=1)
    place = moved.headers["Location"]
    assert "The message was stored." in (await browser.ask("GET", place)).text
    forged = place.replace("notice=The", "notice=Your+password+is+wrong.+The")
    assert forged != place
    assert "password" not in (await browser.ask("GET", forged)).text


async def test_brokers_that_are_away_are_a_sentence(served: Broker, browser: Browser) -> None:
    assert (await browser.get("topics")).status == 200
    await served.servers.remoting.close()
    answer = await browser.get("groups")
    assert answer.status == 502
    assert "This page cannot be shown" in answer.text


async def test_a_broker_without_a_name_service_says_so() -> None:
    async with Broker.temporary({"role": "broker"}) as broker:
        answer = await Browser(broker.http_address).get("topics")
    assert answer.status == 503
    assert "set namesrvAddr" in answer.text


async def test_one_broker_that_is_away_hides_nothing_of_the_others(
    served: Broker, browser: Browser
) -> None:
    settings = {"role": "broker", "brokerName": "broker-b", "namesrvAddr": served.nameserver}
    async with Broker.temporary(settings) as other:
        await other.announce()
        async with Producer(served.nameserver) as producer, Admin(served.nameserver) as admin:
            await admin.create_topic("orders", queues=1)
            await admin.groups.create("billing")
            for queue in (await admin.route("orders")).write_queues:
                await producer.send("orders", b"x", queue=queue)
        assert "2 messages kept" in (await browser.get("topic", name="orders")).text
        await other.servers.remoting.close()
        overview = (await browser.get()).text
        assert "broker-b does not answer" in overview
        assert "broker-a" in overview
        topic = (await browser.get("topic", name="orders")).text
        assert "Broker broker-b is not included" in topic
        assert "1 message kept" in topic
        for page in ("topics", "brokers", "later"):
            assert (await browser.get(page)).status == 200
            assert (await browser.get(page, sort="messages")).status == 200
        by_number = (await browser.get("topics", sort="messages")).text
        assert "Broker broker-b is not included" in by_number
        assert "orders 1 " in by_number
        groups = await browser.get("groups")
        assert (groups.status, "Broker broker-b is not included" in groups.text) == (200, True)
        assert "billing" in groups.text


@pytest.mark.costly
async def test_a_crowd_of_visitors_waits_and_is_not_refused(browser: Browser, admin: Admin) -> None:
    for number in range(50):
        await admin.create_topic(f"many-{number}", queues=1)
    pages = await asyncio.gather(*(browser.get("topics") for _ in range(12)))
    assert {page.status for page in pages} == {200}
    assert {page.text.count("many-") for page in pages} == {50}


async def test_the_log_tells_who_did_what(browser: Browser, admin: Admin) -> None:
    await admin.create_topic("orders", queues=1)
    with structlog.testing.capture_logs() as lines:
        await browser.post("send", topic="orders", body="secret", new=1)
        await browser.post("dead-letters/of", group="nobody", count=1)
    (line,) = [line for line in lines if line["event"] == "console action done"]
    assert (line["form"], line["topic"], line["by"]) == ("send", "orders", "nobody")
    assert line["host"] == "127.0.0.1"
    assert "secret" not in str(line)
