"""Delayed messages and taking them back."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from rockhopper.client import (
    Message,
    MessageRejectedError,
    Producer,
    RequestRefusedError,
    RouteNotFoundError,
)
from rockhopper.client.sending.recall import read_broker_of_handle
from rockhopper.protocol.command import Command
from tests.support.message_broker import MessageBroker

# v1 orders a 99 ID
HANDLE = "djEgb3JkZXJzIGEgOTkgSUQ="
HANDLE_OF_ANOTHER_BROKER = "djEgb3JkZXJzIGIgOTkgSUQ="


@pytest.fixture
async def broker() -> AsyncIterator[MessageBroker]:
    async with MessageBroker() as broker:
        yield broker


@pytest.fixture
async def producer(broker: MessageBroker) -> AsyncIterator[Producer]:
    async with Producer(broker.address, group="later") as producer:
        yield producer


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message("orders", delay_level=3), "DELAY", "3"),
        (Message("orders", delay_s=1.5), "TIMER_DELAY_MS", "1500"),
        (Message("orders", deliver_at_ms=1_700_000_000_123), "TIMER_DELIVER_MS", "1700000000123"),
        (
            Message("orders", deliver_at=datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
            "TIMER_DELIVER_MS",
            "1700000000123",
        ),
    ],
)
async def test_each_way_to_delay_has_its_property(
    producer: Producer, broker: MessageBroker, message: Message, name: str, value: str
) -> None:
    assert message.is_delayed
    await producer.send(message)
    assert broker.stored[0][1][name] == value


def test_two_times_of_delivery_and_times_without_a_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="mutually exclusive"):
        Message("orders", delay_s=0.005, delay_level=1)
    with pytest.raises(ValueError, match="no time zone"):
        Message("orders", deliver_at=datetime(2023, 11, 14))
    with pytest.raises(ValueError, match="0 or above"):
        Message("orders", delay_s=-0.001)
    assert not Message("orders").is_delayed


async def test_a_batch_cannot_be_delayed(producer: Producer) -> None:
    with pytest.raises(MessageRejectedError, match="delayed"):
        await producer.send_batch([Message("orders", delay_s=0.005)])


async def test_a_receipt_recalls_its_message(producer: Producer, broker: MessageBroker) -> None:
    receipt = await producer.send(Message("orders", b"x", delay_s=60))
    assert await producer.recall(receipt) == receipt.message_id
    (request,) = broker.requests_of(370)
    fields = {k: v for k, v in (request.ext or {}).items() if k != "rh"}
    assert fields == {
        "producerGroup": "later",
        "topic": "orders",
        "recallHandle": receipt.recall_handle,
    }


async def test_a_handle_that_was_written_down_recalls_too(producer: Producer) -> None:
    assert await producer.recall(("orders", HANDLE)) == "ID"


async def test_what_has_no_handle_cannot_be_recalled(
    producer: Producer, broker: MessageBroker
) -> None:
    receipt = await producer.send(Message("orders", b"x"))
    assert receipt.recall_handle is None
    with pytest.raises(MessageRejectedError, match="cannot be recalled"):
        await producer.recall(receipt)
    assert broker.requests_of(370) == []


async def test_a_recall_that_comes_too_late_says_so(
    producer: Producer, broker: MessageBroker
) -> None:
    broker.on(370, lambda request: Command(604, remark="recall failed, timestamp invalid"))
    with pytest.raises(RequestRefusedError, match="timestamp invalid"):
        await producer.recall(("orders", HANDLE))


async def test_a_broker_that_is_not_in_the_route_is_named(producer: Producer) -> None:
    with pytest.raises(RouteNotFoundError, match="broker 'b'"):
        await producer.recall(("orders", HANDLE_OF_ANOTHER_BROKER))


@pytest.mark.parametrize("handle", ["", "!!", "djEgb25seQ==", "djIgb3JkZXJzIGEgOTkgSUQ="])
def test_what_is_no_handle_is_refused(handle: str) -> None:
    with pytest.raises(MessageRejectedError, match="not a recall handle"):
        read_broker_of_handle(handle)
