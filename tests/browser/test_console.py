"""The console as an operator uses it: by clicking through it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from rockhopper.broker.testing.threaded import ThreadedBroker
from rockhopper.client import Consumer, Message, Producer
from rockhopper.client.admin.admin import Admin
from tests.support.console_pages import PAGES

pytestmark = pytest.mark.browser

Do = Any


async def fill(nameserver: str) -> None:
    """Twenty orders, a group that read five and failed on one, and what waits."""
    async with Producer(nameserver) as producer, Admin(nameserver) as admin:
        await admin.create_topic("orders", queues=2)
        for number in range(20):
            body = json.dumps({"order": number, "to": "Žofín"}, ensure_ascii=False).encode()
            await producer.send(
                Message("orders", body, tags="new", keys=[f"o-{number}"]), queue=number % 2
            )
        await producer.send("letters", b"a bad one", queue=0)
        await producer.send(Message("orders", b"in an hour", delay_s=3600))
        await admin.groups.create("billing", retries_max=0)
        await admin.groups.create("postmen", retries_max=0)
        for queue in (await admin.route("orders")).read_queues:
            await admin.offsets.commit("billing", queue, 3)
    async with Consumer("postmen", "letters", nameserver=nameserver) as consumer:
        async for message in consumer:
            await consumer.retry_later(message)
            break


@pytest.fixture(scope="module", autouse=True)
def filled(broker: ThreadedBroker, do: Do) -> None:
    do(fill(broker.nameserver))


def test_from_the_first_page_to_the_body_of_a_message(page: Page, tmp_path: Path) -> None:
    page.goto("")
    page.get_by_role("link", name=re.compile(r"\d topics")).click()
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    page.get_by_role("link", name="Browse messages").click()
    expect(page.locator("tbody tr")).to_have_count(20)
    page.get_by_role("row").filter(has_text='"order": 7').get_by_role("link").click()
    expect(page.locator("pre")).to_contain_text('"to": "Žofín"')
    page.get_by_role("link", name="Hex").click()
    expect(page.locator("pre")).to_contain_text("7b 22 6f")
    page.get_by_role("link", name="Text").click()
    expect(page.locator("pre")).to_have_text('{"order": 7, "to": "Žofín"}')
    expect(page.get_by_role("region", name="Delivery")).to_contain_text("billing")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the body").click()
    download.value.save_as(tmp_path / "body")
    assert json.loads((tmp_path / "body").read_bytes()) == {"order": 7, "to": "Žofín"}
    page.get_by_role("link", name="Next →").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Message 4")


def test_messages_are_found_by_key_offset_time_and_id(page: Page) -> None:
    page.goto("messages?topic=orders")
    for way, wanted, count in (
        ("with the key", "o-3", 1),
        ("from an offset on", "8", 4),
        ("from a time on", "2020-01-01T00:00", 20),
    ):
        page.get_by_label("Look for").select_option(way)
        page.get_by_label("Offset, time, key or id").fill(wanted)
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody tr")).to_have_count(count)
    page.locator("tbody a").first.click()
    message_id = page.locator("dd code").first.inner_text()
    page.get_by_role("link", name="Messages").click()
    page.get_by_label("Look for").select_option("with the id")
    page.get_by_label("Offset, time, key or id").fill(message_id)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("dd code").first).to_have_text(message_id)


def test_a_message_is_sent(page: Page) -> None:
    page.goto("")
    page.get_by_role("link", name="Send").click()
    page.get_by_label("Topic").fill("fresh")
    page.get_by_label("Body", exact=True).fill("first line\nsecond ž")
    page.get_by_label("Tag").fill("new")
    page.get_by_label("Properties").fill("region=eu")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no topic fresh")
    page.get_by_label("Create the topic fresh").check()
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_have_text("The message was stored.")
    expect(page.locator("pre")).to_have_text("first line\nsecond ž")
    expect(page.get_by_role("region", name="Properties")).to_contain_text("region")


def test_a_group_is_moved_after_a_preview(page: Page, broker: ThreadedBroker, do: Do) -> None:
    page.goto("groups")
    page.get_by_role("link", name="billing").click()
    expect(page.locator(".tile").first).to_contain_text("14")
    page.get_by_label("To", exact=True).select_option("the end")
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.locator("main")).to_contain_text("Nothing has been done yet")
    expect(page.locator("main")).to_contain_text("14 are skipped")
    page.get_by_role("link", name="Cancel").click()
    expect(page.locator(".tile").first).to_contain_text("14")
    page.get_by_label("To", exact=True).select_option("the end")
    page.get_by_role("button", name="Show what would happen").click()
    page.get_by_role("button", name="Move it").click()
    expect(page.get_by_role("status")).to_contain_text("billing was reset in 2 of 2 queues")
    expect(page.locator(".tile").first).to_contain_text("0")


def test_a_dead_letter_goes_back(page: Page) -> None:
    page.goto("")
    page.get_by_role("link", name="Dead letters", exact=True).click()
    page.get_by_role("link", name="postmen").click()
    expect(page.locator("main")).to_contain_text("a bad one")
    page.get_by_role("link", name="Send back message 0").click()
    expect(page.locator("main")).to_contain_text("Nothing has been done yet. 1 would be sent back")
    page.get_by_role("link", name="To postmen alone instead").click()
    page.get_by_role("link", name="To their original topics instead").click()
    page.get_by_role("button", name="Send them back").click()
    expect(page.get_by_role("status")).to_contain_text("1 of the dead letters")
    expect(page.locator("main")).to_contain_text("There are none.")


def test_what_waits_is_listed(page: Page) -> None:
    page.goto("")
    page.get_by_role("link", name="Waiting").click()
    expect(page.get_by_role("region", name="Messages for a time")).to_contain_text("in an hour")


def test_a_setting_is_changed_live(page: Page) -> None:
    page.goto("settings")
    page.get_by_label("Name or description contains").fill("brokerPermission")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Change brokerPermission").click()
    page.get_by_role("textbox", name="brokerPermission").fill("9")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("alert")).to_contain_text("brokerPermission")
    page.go_back()
    page.get_by_role("textbox", name="brokerPermission").fill("6")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status")).to_contain_text("brokerPermission is 6")


def test_rates_live(page: Page, broker: ThreadedBroker, do: Do) -> None:
    async def send() -> None:
        async with Producer(broker.nameserver) as producer:
            for _ in range(50):
                await producer.send("busy", b"x")

    page.goto("")
    expect(page.locator("#rates")).to_be_visible()
    expect(page.locator("path.in")).to_have_attribute("d", re.compile(r"\d"))
    do(send())
    expect(page.locator("[data-rate=in]")).to_have_text(re.compile(r"[1-9]"))


class Rates:
    """Answers in the broker's place what the open first page asks for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked = self.time_ms = 0
        page.clock.install(time=0)
        page.clock.pause_at(1)
        page.route("**/rates.json", self._answer)
        self.status = 200
        self.away: dict[str, str] = {}
        page.goto("")
        expect(page.locator("#live-note")).to_have_text("Of all brokers, every two seconds.")

    def _answer(self, route: Route) -> None:
        self.asked += 1
        if not self.status:
            return route.abort()
        cells = {"in": "7", "out": "8", "started": "now", "state": "serves"}
        counted = {"in": 10 * self.asked, "out": 0, "booted": 1, "cells": cells}
        brokers = {} if self.away else {"broker-a/0": counted}
        body = {"timeMs": self.time_ms, "brokers": brokers, "away": self.away}
        return route.fulfill(status=self.status, json=body)

    def again(self, **changes: Any) -> None:
        """Let the page ask, with another answer."""
        vars(self).update(changes)
        self.time_ms += 2000
        with self.page.expect_event("requestfinished" if self.status else "requestfailed"):
            self.page.clock.run_for(2000)

    def shows(self, row: str, beside: str) -> None:
        """Expect this in the table, and beside the figures."""
        expect(self.page.get_by_role("region", name="Brokers")).to_contain_text(row)
        expect(self.page.locator("section", has=self.page.locator("#rates"))).to_contain_text(
            beside
        )


def test_an_open_page_tells_that_a_broker_stopped(page: Page) -> None:
    rates = Rates(page)
    rates.shows("now serves", "Of all brokers")
    rates.again(away={"broker-a/0": "broker-a"})
    rates.shows("– does not answer", "Without broker-a")
    rates.again(away={"broker-a": "broker-a"})
    rates.shows("– went", "Without broker-a")
    rates.again(away={})
    rates.shows("now serves", "Of all brokers")
    rates.again(status=0)
    rates.shows("– not known", "the broker does not answer")


def test_the_line_breaks_where_nothing_was_known(page: Page) -> None:
    rates = Rates(page)
    rates.again()
    rates.again()
    rates.again(status=0)
    rates.again(status=200, time_ms=60_000)
    rates.again()
    steps = r"M280\.0 .+L290\.0 .+L300\.0 .+M590\.0 .+L600\.0 [\d.]+"
    expect(page.locator("path.in")).to_have_attribute("d", re.compile(steps))


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(401, "no longer signed in"), (403, "no longer have permission"), (421, "this host name")],
)
def test_a_page_that_is_refused_says_so_and_asks_no_more(
    page: Page, status: int, sentence: str
) -> None:
    rates = Rates(page)
    rates.again(status=status)
    rates.shows("– not known", sentence)
    asked = rates.asked
    page.clock.run_for(60_000)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.clock.run_for(60_000)
    assert rates.asked == asked


def test_a_page_that_nobody_looks_at_asks_for_nothing(page: Page) -> None:
    page.goto("")
    expect(page.locator("path.in")).to_have_attribute("d", re.compile(r"\d"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(4500)  # two of its intervals: there is nothing to wait for
    assert len(asked) <= 1  # one may have been under way


@pytest.mark.parametrize("path", PAGES)
def test_pages_fit_a_phone_and_have_a_name_for_everything(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(_CUT_OR_SMALL) == []
    assert page.evaluate(_NAMELESS) == []
    assert page.locator("h1").count() == 1
    page.emulate_media(color_scheme="dark")
    red, green, blue = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert max(red, green, blue) < 64


@pytest.mark.parametrize(
    ("path", "table", "count"),
    [
        ("", "Brokers", 8),
        ("topics", "Topics", 8),
        ("topic?name=orders", "Queues", 14),
        ("group?name=billing", "Queues of orders", 16),
        ("group/reset?group=billing&topic=orders&to=earliest", "Moves", 10),
    ],
)
def test_figures_are_seen_on_a_phone(page: Page, path: str, table: str, count: int) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(path)
    rows = page.get_by_role("region", name=re.compile(f"^{table}"))
    ends = rows.locator("td").evaluate_all("all => all.map((e) => e.getBoundingClientRect().right)")
    assert len(ends) >= count
    assert max(ends) <= 360


def test_a_list_is_sorted_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto("topics")
    page.get_by_role("link", name="Newest").click()
    expect(page).to_have_url(re.compile("sort=newest"))


_CUT_OR_SMALL = """
[...document.querySelectorAll("table.cards td, main td a, main td button, main .button")]
.filter((each) => {
  const box = each.getBoundingClientRect();
  if (each.matches("td")) return box.right > innerWidth;
  return Math.min(box.width, box.height) < 24;
}).map((each) => each.outerHTML.slice(0, 120))
"""


_NAMELESS = """
[...document.querySelectorAll("input:not([type=hidden]), select, textarea, a, button, table")]
.filter((each) => {
  if (each.matches("input, select, textarea")) return !each.labels.length;
  if (each.matches("table")) return !each.closest("[role=region][aria-label]");
  return !(each.getAttribute("aria-label") || each.textContent.trim());
}).map((each) => each.outerHTML.slice(0, 120))
"""


def test_by_keyboard_alone(page: Page) -> None:
    page.goto("topics")
    page.keyboard.press("Tab")
    assert _focused(page) == "Skip to the page"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    _tab_to(page, "search")
    page.keyboard.type("ord")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("search=ord"))
    _tab_to(page, "orders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    _tab_to(page, "Send one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Send a message")
    _tab_to(page, "body")
    page.keyboard.type("by keyboard")
    _tab_to(page, "Send")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("The message was stored.")


_FOCUSED = """
(({id, tagName, textContent}) => /INPUT|TEXTAREA|SELECT/.test(tagName) ? id : textContent.trim())(
  document.activeElement)
"""


def _focused(page: Page) -> str:
    return str(page.evaluate(_FOCUSED))


def _tab_to(page: Page, wanted: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        in_nav = page.evaluate("!!document.activeElement.closest('header')")
        if _focused(page) == wanted and not in_nav:
            return
    raise AssertionError(f"no Tab leads to {wanted} ")
