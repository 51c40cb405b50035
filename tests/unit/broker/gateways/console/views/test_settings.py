"""Settings: seen with what they cost, and changed where that is possible."""

import ast
import asyncio

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console.views.settings import list_known
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import properties_of
from tests.support.console import Browser


def test_every_setting_has_a_default_and_a_text() -> None:
    for key in properties_of(BrokerConfig()):
        if key in list_known():
            assert list_known()[key].about, key
    assert set(properties_of(BrokerConfig())) - set(list_known()) <= {"autoCreateTopicEnable"}
    assert list_known()["brokerPermission"].is_live
    assert not list_known()["listenPort"].is_live
    assert list_known()["listenPort"].default == "10911"


async def test_several_may_open_it_first_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 raises SystemError when threads take turns while they make syntax trees."""
    within = 0

    def parse(text: str) -> ast.Module:
        nonlocal within
        within += 1
        found = as_it_is(text)
        assert within == 1
        within -= 1
        return found

    as_it_is = ast.parse
    list_known.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", parse)
        found = await asyncio.gather(*(asyncio.to_thread(list_known) for _ in range(8)))
    assert all(each == found[0] for each in found)


async def test_they_are_searched(browser: Browser) -> None:
    page = await browser.get("settings", search="brokerPermission")
    assert "brokerPermission live" in page.text
    assert "listenPort" not in page.text
    live = await browser.get("settings", live=1)
    assert "brokerPermission" in live.text
    assert "storePathRootDir" not in live.text
    changed = await browser.get("settings", changed=1)
    assert (
        "maxHashSlotNum 50000" in changed.text.replace(" ", " ") or "maxHashSlotNum" in changed.text
    )
    assert "brokerPermission" not in changed.text


async def test_a_live_one_is_changed(served: Broker, browser: Browser) -> None:
    form = await browser.get("settings", edit="brokerPermission")
    assert "Change brokerPermission" in form.text
    moved = await browser.post("settings", key="brokerPermission", value="4", broker="broker-a")
    page = await browser.follow(moved)
    assert "brokerPermission is 4 on broker-a until the next start" in page.text
    assert served.config.live.broker_permission == 4
    await browser.post("settings", key="brokerPermission", value="6", everywhere="1")
    assert served.config.live.broker_permission == 6


async def test_what_makes_no_sense_is_refused(served: Broker, browser: Browser) -> None:
    answer = await browser.post("settings", key="listenPort", value="1", broker="broker-a")
    assert (answer.status, "not a setting that can change" in answer.text) == (400, True)
    answer = await browser.post("settings", key="brokerPermission", value="9", broker="broker-a")
    assert answer.status == 400
    assert "broker-a refuses brokerPermission=9" in answer.text
    assert 'name="value" value="9"' in answer.source
    answer = await browser.post("settings", key="brokerPermission", value="4", broker="nobody")
    assert answer.status == 404
    assert served.config.live.broker_permission == 6
