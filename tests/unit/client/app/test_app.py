"""An app against a broker: it consumes, sends on, and ends well."""

import asyncio
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from rockhopper import App, Broker, ClientStateError, Connections, MessageRejectedError, Producer
from tests.support.hang import HANG_S


@dataclass
class Order:
    number: int


def shop() -> tuple[App, asyncio.Queue[tuple[str, object]]]:
    app = App()
    seen: asyncio.Queue[tuple[str, object]] = asyncio.Queue()

    @app.subscriber("orders", group="billing", to="invoices")
    async def bill(order: Order) -> dict[str, int] | None:
        seen.put_nowait(("bill", order))
        return {"amount": order.number * 2} if order.number else None

    @app.subscriber("invoices", group="letters", bad_body="skip", concurrency=1)
    async def write(invoice: dict[str, int]) -> None:
        seen.put_nowait(("write", invoice))

    return app, seen


async def test_results_are_sent_on_and_it_may_start_again() -> None:
    app, seen = shop()
    async with asyncio.timeout(HANG_S), Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        for number in (7, 8):
            async with app.lifespan():
                await app.producer.send("orders", Order(number))
                assert await seen.get() == ("bill", Order(number))
                assert await seen.get() == ("write", {"amount": number * 2})
    with pytest.raises(ClientStateError, match="not running"):
        _ = app.producer


async def test_a_plain_function_has_as_many_threads_as_it_asks_for() -> None:
    app = App()
    together = threading.Barrier(33)  # asyncio has 32 at most, for all functions

    @app.subscriber("orders", group="billing", concurrency=33)
    def bill(_order: int) -> None:
        together.wait(HANG_S)
        loop.call_soon_threadsafe(done.release)

    loop = asyncio.get_running_loop()
    done = asyncio.Semaphore(0)
    async with asyncio.timeout(HANG_S), Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        async with app:
            for number in range(33):
                await app.producer.send("orders", number)
            for _ in range(33):
                await done.acquire()


class Invoice(pydantic.BaseModel):
    amount: int


async def test_text_stays_the_same_from_hand_to_hand() -> None:
    app = App()
    seen: asyncio.Queue[str] = asyncio.Queue()

    @app.subscriber("orders", group="billing", to="invoices")
    async def bill(order: str) -> str:
        return order + "!"

    @app.subscriber("invoices", group="letters")
    async def write(invoice: str) -> None:
        seen.put_nowait(invoice)

    async with asyncio.timeout(HANG_S), Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        async with app:
            await app.producer.send("orders", "ü")
            assert await seen.get() == "ü!"
            with pytest.raises(MessageRejectedError, match="a body of object is not JSON"):
                await app.producer.send("orders", object())


async def test_models_come_and_go() -> None:
    app = App()
    seen: asyncio.Queue[Invoice] = asyncio.Queue()

    @app.subscriber("orders", group="billing", to="invoices")
    async def bill(order: Invoice) -> Invoice:
        return Invoice(amount=order.amount + 1)

    @app.subscriber("invoices", group="letters")
    async def write(invoice: Invoice) -> None:
        seen.put_nowait(invoice)

    async with asyncio.timeout(HANG_S), Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        async with app:
            await app.producer.send("orders", Invoice(amount=7))
            assert await seen.get() == Invoice(amount=8)


async def test_a_second_start_is_refused() -> None:
    app, _ = shop()
    async with Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        async with app:
            with pytest.raises(ClientStateError, match="running already"):
                await app.start()


async def noted(order: Order) -> None:
    """A subscriber."""


async def test_a_subscriber_after_the_start_is_refused() -> None:
    app = App()
    async with Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        async with app:
            with pytest.raises(
                ClientStateError, match="noted subscribes after its app has started"
            ):
                app.subscriber("orders", group="billing")(noted)
    app.subscriber("orders", group="billing")(noted)


def test_a_second_subscriber_of_a_group_is_refused() -> None:
    app, _ = shop()
    with pytest.raises(ValueError, match=r"'billing' has the subscriber .*bill already"):
        app.subscriber("refunds", group="billing")(noted)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [({"bad_body": "drop"}, ValueError), ({"poll_s": -1.0}, ValueError)],
)
def test_wrong_options_are_told_where_they_stand(
    options: dict[str, Any], wrong: type[Exception]
) -> None:
    with pytest.raises(wrong, match="the subscriber noted"):
        App().subscriber("orders", group="billing", **options)(noted)


@pytest.mark.skipif(
    sys.platform == "win32" or threading.current_thread() is not threading.main_thread(),
    reason="event loops handle signals in the main thread, and not on Windows",
)
async def test_a_signal_ends_it() -> None:
    app, seen = shop()
    async with asyncio.timeout(HANG_S), Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        serving = asyncio.create_task(app.serve())
        while not serving.done():
            try:
                await app.producer.send("orders", Order(0))
                break
            except ClientStateError:
                await asyncio.sleep(0)
        assert await seen.get() == ("bill", Order(0))
        os.kill(os.getpid(), signal.SIGTERM)
        await serving


@pytest.mark.parametrize("by_handler", [True, False], ids=["handler", "another task"])
async def test_closing_an_app_ends_serve(*, by_handler: bool) -> None:
    app = App()
    received = asyncio.Event()

    @app.subscriber("orders", group="billing")
    async def bill(_order: Order) -> None:
        if by_handler:
            await app.close()
        received.set()

    async with asyncio.timeout(HANG_S), Broker.temporary() as broker:
        app.nameserver = broker.nameserver
        async with Producer(broker.nameserver) as producer:
            await producer.send("orders", b'{"number": 7}')
        serving = asyncio.create_task(app.serve())
        if not by_handler:
            await received.wait()
            await app.close()
        await serving


async def test_an_app_shares_the_connections_that_it_is_given() -> None:
    async with Broker.temporary() as broker, Connections(broker.nameserver) as shared:
        app = App(connections=shared)
        seen: asyncio.Queue[int] = asyncio.Queue()

        @app.subscriber("orders", group="billing")
        async def bill(order: Order) -> None:
            seen.put_nowait(order.number)

        for number in (7, 8):  # they stay open when it closes
            async with app, asyncio.timeout(HANG_S):
                await app.producer.send("orders", Order(number))
                assert await seen.get() == number
                addresses = {each.address for each in shared.pool.connections}
                assert addresses == {broker.address, broker.nameserver}
    with pytest.raises(ValueError, match="come from the Connections"):
        App("127.0.0.1:9876", connections=shared)


@pytest.mark.parametrize(
    ("given", "shown"), [({}, logging.INFO), ({"log_level": "ERROR"}, logging.ERROR)]
)
def test_run_shows_log_messages_where_the_program_does_not(
    given: dict[str, Any], shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(App, "serve", lambda _app: asyncio.sleep(0))
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    App().run(**given)
    assert root.level == shown
    (handler,) = root.handlers
    App().run(log_level="DEBUG")
    assert (root.handlers, root.level) == ([handler], shown)
    handler.close()
