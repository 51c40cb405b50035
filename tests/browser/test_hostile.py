"""What producers, other sites and crowds do to the console."""

import asyncio
import http.server
import json
import re
import socket
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rockhopper.broker.testing.threaded import ThreadedBroker
from rockhopper.client import Consumer, Message, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command, encode_command
from tests.support.raw_send import send_compressed

pytestmark = pytest.mark.browser

Do = Any

SCRIPT = "<script>alert(1)</script><img src='https://evil.example/x' onerror=alert(2)>"
TOPICS = 10_000
BODIES = (
    SCRIPT.encode(),
    b"</code></td></pre></main><iframe srcdoc='<script>parent.alert(3)</script>'>",
    "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u202c \u2066x \u200b\u0000".encode(),
    b"\xff\xfe\xfa no text \x80",
    b"{{ 7 * 7 }}{% for x in range(10**9) %}x{% endfor %}",
    b"[" * 200_000,
    b'{"a": "' + SCRIPT.encode() + b'"}',
    b"A" * 3_900_000,
    "\u0301".encode() * 100_000,
)


async def fill(nameserver: str) -> None:
    """Hostile messages, in a topic that a hostile member reads."""
    async with Producer(nameserver) as producer:
        for body in BODIES:
            await producer.send(
                Message(
                    "hostile",
                    body,
                    tags=SCRIPT.replace(" ", "/"),
                    keys=["<b>key</b>", "\u202ekey"],
                    properties={f"\"'>{SCRIPT}": f"javascript:alert(4)//{SCRIPT}\u2066"},
                ),
                queue=0,
            )
    await send_compressed(nameserver, "hostile", zlib.compress(bytes(100 << 20), 9))
    await send_compressed(nameserver, "hostile", b"this is no zlib stream")
    async with Consumer("readers", "hostile", nameserver=nameserver) as consumer:
        async for _ in consumer:
            break


def join(address: str) -> socket.socket:
    """Join the group with an expression that our clients refuse."""
    topic = {"topic": "hostile", "subString": SCRIPT, "tagsSet": [], "codeSet": []}
    group: dict[str, Any] = {"groupName": "readers", "consumeType": "CONSUME_PASSIVELY"}
    group |= {"messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    group["subscriptionDataSet"] = [topic | {"subVersion": 1}]
    body = json.dumps({"clientID": SCRIPT, "consumerDataSet": [group]}).encode()
    host, _, port = address.rpartition(":")
    member = socket.create_connection((host, int(port)))
    member.sendall(encode_command(Command(int(RequestCode.HEART_BEAT), body=body)))
    assert member.recv(1)
    return member


@pytest.fixture(scope="module")
def hostile(broker: ThreadedBroker, do: Do) -> Iterator[None]:
    do(fill(broker.nameserver))
    with join(broker.address):
        yield


@pytest.mark.usefixtures("hostile")
def test_hostile_messages_show_and_do_nothing(page: Page) -> None:
    page.goto("messages?topic=hostile&by=offset&q=0&queue=broker-a:0")
    count = page.locator("tbody tr").count()
    assert count == len(BODIES) + 2
    assert page.locator("iframe, main script, main img").count() == 0
    for offset in range(count):
        for form in ("json", "text", "hex"):
            page.goto(f"message?topic=hostile&queue=broker-a:0&offset={offset}&as={form}")
            expect(page.locator("pre")).to_be_visible()
            assert page.locator("iframe, main script, main img").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    for other in ("topic?name=hostile", "group?name=readers", f"topics?search={SCRIPT}"):
        page.goto(other)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.locator("iframe, main script, main img").count() == 0


@pytest.mark.usefixtures("hostile")
def test_a_bomb_is_not_opened(page: Page) -> None:
    page.goto(f"message?topic=hostile&queue=broker-a:0&offset={len(BODIES)}")
    expect(page.locator("main")).to_contain_text("larger than")
    page.goto(f"message?topic=hostile&queue=broker-a:0&offset={len(BODIES) + 1}")
    expect(page.locator("main")).to_contain_text("not a zlib stream")


@pytest.fixture
def elsewhere(broker: ThreadedBroker) -> Iterator[str]:
    """Another site: its page sends a form to the console, and shows it in a frame."""
    console = f"http://{broker.http_address}/console"
    document = (
        f"<form method=post action={console}/send><input name=topic value=stolen>"
        f"<input name=body value=x><button>go</button></form><iframe src={console}/></iframe>"
    ).encode()

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(document)

        def log_message(self, format: str, *arguments: object) -> None:
            del format, arguments

    server = http.server.HTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_other_sites_neither_send_forms_nor_frame_it(
    chromium: Browser, elsewhere: str, broker: ThreadedBroker, do: Do
) -> None:
    async def topics() -> list[str]:
        async with Admin(broker.nameserver) as admin:
            return await admin.topics()

    page = chromium.new_page()
    page.goto(elsewhere)
    page.frames[1].wait_for_url(re.compile("^chrome-error:"))
    page.get_by_role("button").click()
    expect(page.locator("main")).to_contain_text("sent from another site")
    page.close()
    assert "stolen" not in do(topics())


def test_a_name_that_was_rebound_sees_nothing(chromium: Browser, broker: ThreadedBroker) -> None:
    page = chromium.new_page()
    port = broker.http_address.rpartition(":")[2]
    answer = page.goto(f"http://evil.example:{port}/console/")
    assert answer is not None
    assert answer.status == 421
    assert "consoleHosts" in page.content()
    page.close()


@pytest.fixture(scope="module")
def crowded(do: Do) -> Iterator[ThreadedBroker]:
    async def make(nameserver: str) -> None:
        async with Admin(nameserver) as admin, Producer(nameserver) as producer:
            names = [f"topic-{number:05d}" for number in range(TOPICS)]
            for at in range(0, TOPICS, 100):
                some = names[at : at + 100]
                await asyncio.gather(*(admin.create_topic(name, queues=1) for name in some))
            for number in (4321, 8765):
                for _ in range(number // 1000):
                    await producer.send(f"topic-{number:05d}", b"x")

    with ThreadedBroker() as broker:
        do(make(broker.nameserver))
        yield broker


def test_ten_thousand_topics(chromium: Browser, crowded: ThreadedBroker) -> None:
    page = chromium.new_page(base_url=f"http://{crowded.http_address}/console/")
    page.goto("")
    expect(page.locator(".tile").first).to_contain_text("10,000")
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator("main")).to_contain_text("Page 1 of 200")
    page.get_by_role("link", name="Next →").click()
    expect(page.locator("tbody tr").first).to_contain_text("topic-00050")
    page.get_by_role("link", name="Messages").click()
    expect(page.locator("tbody tr").first).to_contain_text("topic-08765")
    expect(page.locator("tbody tr").nth(1)).to_contain_text("topic-04321")
    page.get_by_label("Name contains").fill("432")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr").first).to_contain_text("topic-04321")
    page.locator("tbody a").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("topic-04321")
    page.close()


def test_users_sign_in(chromium: Browser) -> None:
    settings = {
        "authenticationEnabled": True,
        "initAuthenticationUser": '{"username":"root","password":"the secret"}',
    }
    with ThreadedBroker(settings) as broker:
        context = chromium.new_context(
            base_url=f"http://{broker.http_address}/console/",
            http_credentials={"username": "root", "password": "the secret"},
        )
        page = context.new_page()
        page.goto("send")
        expect(page.locator("footer")).to_contain_text("You are root")
        page.get_by_label("Topic").fill("orders")
        page.get_by_role("button", name="Send").click()
        page.get_by_label("Create the topic orders").check()
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_have_text("The message was stored.")
        context.close()
        stranger = chromium.new_context()
        answer = stranger.request.get(f"http://{broker.http_address}/console/")
        assert answer.status == 401
        stranger.close()
