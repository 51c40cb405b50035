"""What waits: levels, timers, transactions."""

from datetime import datetime, timedelta

from rockhopper.broker.app import Broker
from rockhopper.client import Message, Producer, TransactionProducer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.transactions import Transaction
from tests.support.console import Browser
from tests.support.features import needs


async def test_nothing_waits_at_first(browser: Browser) -> None:
    text = (await browser.get("later")).text
    assert text.count("None waits.") == 2
    assert "None is open." in text


async def test_levels_and_timers_are_listed(browser: Browser, producer: Producer) -> None:
    await producer.send(Message("orders", b"on a level", delay_level=18))
    await producer.send(Message("orders", b"in two hours", delay_s=7200))
    await producer.send(Message("orders", b"in an hour", delay_s=3600))
    text = (await browser.get("later")).text
    assert text.index("in an hour") < text.index("in two hours")
    assert "broker-a 18 2 h 1 newest" in text
    assert "2 of them are not due yet." in text


async def test_the_time_is_the_one_that_was_asked_for(browser: Browser, producer: Producer) -> None:
    """And not the millisecond before it, as brokers store it."""
    at = datetime.now().astimezone().replace(microsecond=0) + timedelta(hours=2)
    await producer.send(Message("orders", b"one", deliver_at=at))
    assert at.isoformat(timespec="milliseconds") in (await browser.get("later")).source


@needs("transactions")
async def test_open_transactions_are_listed_until_they_end(
    served: Broker, browser: Browser
) -> None:
    async def undecided(_transaction: Transaction) -> str:
        return "UNKNOW"

    async def unknown(_message: object) -> None:
        return None

    async with TransactionProducer(
        "ordering", check=unknown, nameserver=served.nameserver
    ) as producer:
        async with producer.transaction(Message("orders", b"the first")):
            pass
        await producer.send_in_transaction(Message("orders", b"the second"), undecided)
        page = await browser.get("later")
        assert "the second" in page.text
        assert "the first" not in page.text
        assert "1 half message with a transaction" in page.text
        assert "ordering" in page.text


async def test_what_may_be_seen_of_it_is_shown(reader: Browser, root: Admin) -> None:
    text = (await reader.get("later")).text
    assert text.count("No permission") == 3
    await root.accounts.add_rule("al", "Topic:rmq_sys_wheel_timer", ["Sub", "Get"], is_allowed=True)
    text = (await reader.get("later")).text
    assert (text.count("No permission"), text.count("None waits.")) == (2, 1)
