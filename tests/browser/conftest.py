"""Chromium, and pages that must not do anything but show what they are told to."""

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from rockhopper.broker.testing.threaded import ThreadedBroker

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # What somebody does who rebinds a name: it leads to this machine.
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)
REQUIRED = "BROWSER_REQUIRED"
WAIT_MS = float(os.environ.get("BROWSER_WAIT_MS", "60000"))
"""A bound on hangs, not a clock."""
_Result = TypeVar("_Result")
Do = Callable[[Coroutine[Any, Any, _Result]], _Result]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get(REQUIRED):
            pytest.fail("there is no chromium: apt-get install chromium")
        pytest.skip("there is no chromium: apt-get install chromium")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def do() -> Iterator[Do[Any]]:
    """Runs a coroutine to its end, beside the event loop that Playwright has in this thread."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with ThreadedBroker() as broker:
        yield broker


class Watched:
    """What pages did beside showing themselves."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wrong: list[str] = []

    def watch(self, page: Page) -> None:
        """Note what *page* does from now on."""
        page.on("console", lambda said: self._note("console", said.type, said.text))
        page.on("pageerror", lambda error: self.wrong.append(f"error {error}"))
        page.on("dialog", lambda dialog: self._dialog(dialog))
        page.on("request", lambda request: self._request(request.url))

    def _note(self, kind: str, level: str, text: str) -> None:
        # Chromium reports each answer that is no success; tests look at those themselves.
        if not text.startswith("Failed to load resource"):
            self.wrong.append(f"{kind} {level} {text}")

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str) -> None:
        if not url.startswith((f"http://{self.address}/", "data:image/svg+xml")):
            self.wrong.append(f"request {url}")


@pytest.fixture
def watched(broker: ThreadedBroker) -> Watched:
    return Watched(broker.http_address)


@pytest.fixture
def context(chromium: Browser, broker: ThreadedBroker) -> Iterator[BrowserContext]:
    context = chromium.new_context(
        base_url=f"http://{broker.http_address}/console/",
        viewport={"width": 1200, "height": 800},
    )
    context.set_default_timeout(WAIT_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, watched: Watched) -> Iterator[Page]:
    page = context.new_page()
    watched.watch(page)
    yield page
    assert watched.wrong == []
