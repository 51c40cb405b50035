"""A group that fails on messages until they are dead letters, and takes them back."""

import asyncio
from collections.abc import Mapping
from uuid import uuid4

from rockhopper.broker import Broker
from rockhopper.client import (
    Admin,
    Consumer,
    Message,
    Producer,
    RetryLater,
)
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.protocol.properties import join_properties
from tests.support.hang import HANG_S
from tests.support.turns import until


async def send(broker: Broker, count: int) -> list[str]:
    async with Producer(broker.nameserver) as producer:
        return [(await producer.send(_message(number))).message_id for number in range(count)]


def _message(number: int) -> Message:
    return Message(
        "orders", b"%d" % number, tags="new", keys=[f"o-{number}"], properties={"region": "eu"}
    )


def dead(broker: Broker) -> int:
    """Return the number of dead letters so far."""
    return broker.store.reading.queue_range("%DLQ%billing", 0)[1]


async def fail_on_all(broker: Broker, count: int, *, at_once: bool = True) -> int:
    """Let a group fail on all messages until `count` are dead; return the number of failures."""
    failures = 0

    async def fail(_message: ReceivedMessage) -> None:
        nonlocal failures
        failures += 1
        raise RetryLater(delay_level=-1 if at_once else 0)

    async with Consumer("billing", "orders", nameserver=broker.nameserver, handler=fail):
        async with asyncio.timeout(HANG_S):
            await until(lambda: dead(broker) >= count)
    return failures


async def take_all(broker: Broker, count: int) -> list[ReceivedMessage]:
    async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
        messages = aiter(consumer)
        async with asyncio.timeout(HANG_S):
            return [await anext(messages) for _ in range(count)]


async def forge(broker: Broker, properties: Mapping[str, str]) -> None:
    """Send a dead letter that no group gave up."""
    told = join_properties({"UNIQ_KEY": uuid4().hex.upper(), **properties})
    letter = OutgoingMessage("%DLQ%billing", b"forged", told, "", 0, 0, 0, None)
    async with Admin(broker.nameserver) as admin:
        await GroupSender(admin.session, "anybody", timeout_s=HANG_S, retries=0).send(
            letter, [letter]
        )
