"""The console: who comes in, by which name, and which forms are taken."""

import re
import subprocess
import sys

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.signing import Credentials
from tests.support.console import USERS, Answered, Browser

LOOK = """
import asyncio, sys
from rockhopper.broker.app import Broker
from tests.support.console import Browser

HEAVY = ("jinja2", "rockhopper.client", "rockhopper.broker.gateways.console.site")

def loaded():
    return [name for name in HEAVY if name in sys.modules]

async def main():
    async with Broker.temporary() as broker:
        browser = Browser(broker.http_address)
        await browser.ask("GET", "/metrics")
        before = loaded()
        await browser.get()
        print(before, loaded())

asyncio.run(main())
"""


@pytest.mark.costly
def test_nothing_of_it_is_loaded_before_the_first_page() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=300
    )
    before, _, after = done.stdout.strip().partition("] ")
    assert before == "["
    assert "jinja2" in after
    assert "rockhopper.client" in after


async def test_the_root_leads_to_it(browser: Browser) -> None:
    for path in ("/", "/console"):
        moved = await browser.ask("GET", path)
        assert (moved.status, moved.headers["Location"]) == (303, "/console/")


async def test_it_can_be_switched_off() -> None:
    async with Broker.temporary({"consoleEnable": False}) as broker:
        browser = Browser(broker.http_address)
        assert (await browser.get()).status == 404
        assert (await browser.ask("GET", "/")).status == 404


async def test_every_answer_forbids_what_pages_do_not_need(browser: Browser) -> None:
    for page in ("", "nothing", "static/console.css", "rates.json"):
        headers = (await browser.get(page)).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        kept = "max-age=86400" if page.startswith("static") else "no-store"
        assert headers["Cache-Control"] == kept


@pytest.mark.parametrize("page", ["", "static/console.css", "rates.json"])
async def test_other_names_are_refused_with_a_sentence(browser: Browser, page: str) -> None:
    browser.headers["Host"] = "evil.example"
    answer = await browser.get(page)
    assert answer.status == 421
    assert "consoleHosts" in answer.source


async def test_a_request_without_a_name_or_with_two_is_refused(browser: Browser) -> None:
    browser.headers = {}
    assert (await browser.get()).status == 421
    answer = await browser.ask("GET", "/console/", headers={"Host": "localhost", "host": "evil"})
    assert answer.status == 400


async def test_only_get_head_and_post_are_served(browser: Browser) -> None:
    assert (await browser.ask("PUT", "/console/send")).status == 405
    head = await browser.ask("HEAD", "/console/")
    assert (head.status, head.body) == (200, b"")


async def test_a_form_needs_its_token(browser: Browser) -> None:
    for token in ("", "0" * 64):
        answer = await browser.post("send", token=token, topic="orders", body="x")
        assert answer.status == 403
        assert "Nothing was done: since this page was loaded" in answer.text


async def test_a_form_of_an_older_page_is_shown_again(browser: Browser, admin: Admin) -> None:
    await admin.create_topic("orders", queues=1)
    await admin.groups.create("billing")
    stale = {"token": "0" * 64}
    for form, fields, shown in (
        ("send", {"topic": "orders", "body": "typed text", "keys": "k1"}, "typed text"),
        ("group/reset", {"group": "billing", "topic": "orders", "to": "latest"}, "Move it"),
        (
            "settings",
            {"key": "brokerPermission", "value": "4", "broker": "broker-a"},
            "Change brokerPermission",
        ),
        ("dead-letters/of", {"group": "billing", "count": "1"}, "has no dead letters"),
        ("nothing", {"x": "typed text"}, "This page cannot be shown"),
    ):
        answer = await browser.post(form, **stale, **fields)
        assert (answer.status, "Nothing was done" in answer.text) == (403, True)
        assert shown in answer.text
        if form in ("send", "group/reset", "settings"):
            again = {**fields, "token": fresh(answer)}
            assert (await browser.post(form, **again)).status == 303


def fresh(page: Answered) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', page.source)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}],
)
async def test_forms_of_other_pages_are_refused(browser: Browser, headers: dict[str, str]) -> None:
    token = await browser.token()
    browser.headers |= headers
    answer = await browser.post("send", token=token, topic="orders", body="x")
    assert answer.status == 403
    assert "another site" in answer.text


async def test_forms_have_a_size(browser: Browser) -> None:
    answer = await browser.ask("POST", "/console/send", "x" * ((1 << 20) + 1))
    assert (answer.status, "rockhopper send TOPIC --file" in answer.source) == (413, True)
    chunked = {"Content-Length": "1, 2"}
    browser.headers |= chunked
    assert (await browser.ask("POST", "/console/send")).status in (400, 403, 411)
    del browser.headers["Content-Length"]
    fields = "&".join(f"f{n}=1" for n in range(300))
    assert (await browser.ask("POST", "/console/send", fields)).status == 400


async def test_where_there_are_users_everybody_says_who_he_is(guarded: Broker) -> None:
    for user in (None, ("root", "no"), ("nobody", "no")):
        stranger = await Browser(guarded.http_address, user).get()
        assert stranger.status == 401
        assert "WWW-Authenticate" in stranger.headers
        assert "text/html" in stranger.headers["Content-Type"]
        assert "Sign in with the name of a user and his secret" in stranger.text
    root = Browser(guarded.http_address, ("root", "the secret"))
    assert "You are root" in (await root.get()).text
    sent = await root.post("send", topic="orders", body="x", new=1)
    assert "was stored" in (await root.follow(sent)).text


async def test_a_user_sees_and_does_what_the_rules_allow(guarded: Broker) -> None:
    root = Credentials("root", "the secret")
    async with Admin(guarded.nameserver, credentials=root) as admin:
        await admin.create_topic("orders")
        await admin.create_topic("secrets")
        await admin.accounts.add_user("al", "al's secret")
        browser = Browser(guarded.http_address, ("al", "al's secret"))
        for page in ("", "static/console.css"):
            refused = await browser.get(page)
            assert refused.status == 403
            assert "al is not allowed to Get Cluster:*" in refused.text
        await admin.accounts.add_rule("al", "Cluster:*", ["Get", "List"], is_allowed=True)
        await admin.accounts.add_rule("al", "Topic:orders", ["All"], is_allowed=True)
    assert (await browser.get("messages", topic="orders")).status == 200
    refused = await browser.get("messages", topic="secrets")
    assert refused.status == 403
    assert "is not allowed to Sub Topic:secrets" in refused.text
    sent = await browser.post("send", topic="secrets", body="x")
    assert "is not allowed to Pub Topic:secrets" in sent.text
    # A token is the user's own.
    other = Browser(guarded.http_address, ("root", "the secret"))
    answer = await other.post("send", token=await browser.token(), topic="orders", body="x")
    assert answer.status == 403


async def test_from_elsewhere_nothing_changes_without_remote_admin() -> None:
    settings = {"proxyProtocol": True, "proxyProtocolFrom": "127.0.0.0/8"}
    for is_allowed in (False, True):
        async with Broker.temporary({**settings, "remoteAdmin": is_allowed}) as broker:
            browser = Browser(broker.http_address)
            token = await browser.token()
            browser.first = FROM_AFAR
            page = await browser.get("send")
            assert "You are at 192.0.2.7" in page.text
            assert ("set remoteAdmin=true" in page.text) is not is_allowed
            shown = (await browser.get("settings")).text
            assert ("Settings are only shown on this host" in shown) is not is_allowed
            assert ("<form" in page.source) is is_allowed
            assert re.search(r"\STimes are of", page.text) is None
            sent = await browser.post("send", token=token, topic="orders", body="x", new=1)
            assert sent.status == (303 if is_allowed else 403)
            for once in (page, sent):
                assert once.text.count("set remoteAdmin=true") == (not is_allowed)
            assert (await browser.get("settings")).status == (200 if is_allowed else 403)


FROM_AFAR = "PROXY TCP4 192.0.2.7 198.51.100.1 56324 9464\r\n"


async def test_rules_hold_for_where_the_visitor_is() -> None:
    proxied = {"proxyProtocol": True, "proxyProtocolFrom": "127.0.0.0/8"}
    root = Credentials("root", "the secret")
    async with (
        Broker.temporary(USERS | proxied) as broker,
        Admin(broker.nameserver, credentials=root) as admin,
    ):
        await admin.create_topic("orders")
        await admin.groups.create("billing")
        for user, source in (("near", "127.0.0.1"), ("far", "192.0.2.7")):
            await admin.accounts.add_user(user, f"the secret of {user}")
            for what in ("Topic:*", "Group:*"):
                await admin.accounts.add_rule(
                    user, what, ["All"], is_allowed=True, sources=[source]
                )
        await admin.accounts.add_rule("near", "Cluster:*", ["Get"], is_allowed=True)
        await admin.accounts.add_rule(
            "far", "Cluster:*", ["Get"], is_allowed=True, sources=["192.0.2.7"]
        )
        near = Browser(broker.http_address, ("near", "the secret of near"))
        far = Browser(broker.http_address, ("far", "the secret of far"))
        far.first = FROM_AFAR
        move = {"group": "billing", "topic": "orders", "to": "latest"}
        for allowed in (near, far):
            assert "orders" in (await allowed.get("topics")).text
            assert "billing" in (await allowed.get("groups")).text
            assert (await allowed.get("topic", name="orders")).status == 200
            moved = await allowed.post("group/reset", **move)
            assert moved.status == 303, moved.text
        near.first = FROM_AFAR
        assert "orders" not in (await near.get("topics")).text
        assert "billing" not in (await near.get("groups")).text
        assert (await near.get("topic", name="orders")).status == 403
        # His rights to a group are not to be enough where the topic is another place's.
        await admin.accounts.add_rule("near", "Group:*", ["All"], is_allowed=True)
        refused = await near.post("group/reset", **move)
        assert refused.status == 403
        assert "near at 192.0.2.7 is not allowed" in refused.text


async def test_lists_hold_what_a_user_may_see(guarded: Broker) -> None:
    root = Credentials("root", "the secret")
    async with Admin(guarded.nameserver, credentials=root) as admin:
        for name in ("orders", "secrets"):
            await admin.create_topic(name)
            await admin.groups.create(f"of-{name}")
        await admin.accounts.add_user("al", "al's secret")
        for what in ("Cluster:*", "Topic:orders", "Group:of-orders"):
            await admin.accounts.add_rule("al", what, ["Get"], is_allowed=True)
    browser = Browser(guarded.http_address, ("al", "al's secret"))
    for page in ("topics", "groups", "topics?sort=messages", "groups?sort=lag", "dead-letters", ""):
        answer = await browser.ask("GET", f"/console/{page}")
        assert answer.status == 200, answer.text
        assert "secrets" not in answer.text
        if page.startswith(("topics", "groups")):
            assert "orders" in answer.text


@pytest.mark.parametrize("page", ["", "topics", "groups", "dead-letters", "topic?name=orders"])
async def test_pages_say_that_something_is_left_out(alice: Browser, page: str) -> None:
    part = "The page contains only what alice may see."
    text = (await alice.ask("GET", f"/console/{page}")).text
    assert part in text
    assert "There are none" not in text
    assert "0 groups with" not in text
    root = Browser(alice.address, ("root", "the secret"))
    assert "may see" not in (await root.ask("GET", f"/console/{page}")).text


async def test_what_somebody_may_not_do_is_not_offered(alice: Browser, root: Admin) -> None:
    await root.accounts.add_rule("alice", "Topic:secret", ["Get"], is_allowed=True)
    admin = Browser(alice.address, ("root", "the secret"))
    for page, form in (
        ("settings", "&amp;edit="),
        ("group?name=billing", "Show what would happen"),
        ("topic?name=secret", "Browse messages"),
        ("topic?name=secret", "Send one"),
    ):
        assert form in (await admin.ask("GET", f"/console/{page}")).source, page
        shown = await alice.ask("GET", f"/console/{page}")
        assert (shown.status, form in shown.source) == (200, False), page
    assert (
        "alice at 127.0.0.1 is not allowed to Update Cluster:*."
        in (await alice.get("settings")).text
    )
    group = (await alice.get("group", name="billing")).text
    assert "You cannot do this: alice at 127.0.0.1 is not allowed to Update Group:billing" in group
    letters = await alice.get("dead-letters/of", group="billing")
    assert (letters.status, "is not allowed to" in letters.text) == (403, True)
    assert "GET_ROUTEINFO" not in letters.text
    own = (await alice.get("topic", name="orders")).text
    assert "Browse messages Send one" in own


async def test_metrics_are_no_page_elsewheres_either(browser: Browser) -> None:
    evil = {"Host": "rebind.example", "accept-language": ""}
    for path in ("/metrics", "/healthz"):
        answer = await browser.ask("GET", path, headers=evil)
        assert (answer.status, "consoleHosts" in answer.source) == (421, True)
        assert (await browser.ask("GET", path, headers={"Accept-Language": "en"})).status == 200
    other = {"Host": "broker.svc:9464"}
    assert (await browser.ask("GET", "/metrics", headers=other)).status == 421
    assert (await browser.ask("GET", "/healthz", headers=other)).status == 200
