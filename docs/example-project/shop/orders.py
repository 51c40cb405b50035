"""Orders are announced by one service and booked by another."""

import json
from collections.abc import Callable

from rockhopper import Consumer, Message, Producer

TOPIC = "orders"


async def announce(producer: Producer, number: int, amount: int) -> str:
    """Tell everybody of an order; return the id of the message."""
    body = json.dumps({"number": number, "amount": amount}).encode()
    message = Message(TOPIC, body, tags="new", keys=[f"order-{number}"])
    return (await producer.send(message)).message_id


async def book(ledger: Callable[[int, int], None], *, until: int) -> None:
    """Enter orders into a ledger, until that many have been looked at."""
    async with Consumer("booking", {TOPIC: "new"}) as consumer:
        seen = 0
        async for message in consumer:
            order = json.loads(message.body)
            if order["amount"] < 0:
                # To the dead letters: no later try would help.
                await consumer.retry_later(message, delay_level=-1)
            else:
                ledger(order["number"], order["amount"])
            seen += 1
            if seen == until:
                return
