"""A consumer that pops: it acknowledges most messages and leaves the rest to be delivered again."""

import asyncio
from collections.abc import Awaitable, Callable

from rockhopper.client.receipts import SendReceipt
from rockhopper.protocol.codes import ResponseCode
from tests.chaos import topics
from tests.chaos.ledger import Fact, Kind, Ledger
from tests.support.popping import PopConsumer
from tests.support.raw_peer import RawPeer

INVISIBLE_MS = 3000
LEFT_EVERY = 4


async def pop_and_acknowledge(
    address: str,
    ledger: Ledger,
    send: Callable[[Fact], Awaitable[SendReceipt]],
    rest: Callable[[], Awaitable[None]],
) -> None:
    """Send parcels and pop them, until something fails."""
    async with RawPeer(address) as peer:
        consumer = PopConsumer(peer, topics.PICKERS, topics.PARCELS)
        for turn in range(1 << 30):
            await send(ledger.expect(topics.PARCELS, Kind.POPPED))
            await pop_once(consumer, ledger, is_left=turn % LEFT_EVERY == 0)
            await rest()


async def pop_once(consumer: PopConsumer, ledger: Ledger, *, is_left: bool) -> None:
    """Pop and note the messages; acknowledge them unless *is_left*."""
    popped_s = ledger.now_s()
    try:
        messages = await consumer.pop(invisibleTime=INVISIBLE_MS)
    except AssertionError as error:
        raise OSError(f"the pop was refused: {error}") from error
    facts = [ledger.facts.get((topics.PARCELS, message.body)) for message in messages]
    for message, fact in zip(messages, facts, strict=True):
        if fact is None:
            ledger.problems.append(f"a pop brought {message.body[:40]!r}, which nobody sent")
            continue
        if fact.settled_s is not None:
            ledger.popped_again.append((fact, fact.settled_s, ledger.now_s()))
        if is_left:
            continue
        fact.settling_s = ledger.now_s()
        answer = await consumer.ack(message)
        now_s = ledger.now_s()
        # A late acknowledgement gets the same answer but has no effect.
        is_in_time = now_s - popped_s < INVISIBLE_MS / 2000 and ledger.clock_set_s < popped_s
        if answer.code == ResponseCode.SUCCESS and is_in_time:
            fact.settled_s = now_s


async def pop_everything(
    address: str, wanted: set[bytes], patience_s: float, invisible_ms: int = 600_000
) -> dict[bytes, int]:
    """Pop until nothing is left and all of *wanted* arrived; return how often each body arrived."""
    popped: dict[bytes, int] = {}
    deadline_s = asyncio.get_running_loop().time() + patience_s
    async with RawPeer(address) as peer:
        consumer = PopConsumer(peer, topics.PICKERS, topics.PARCELS)
        while True:
            messages = await consumer.pop(invisibleTime=invisible_ms)
            for message in messages:
                popped[message.body] = popped.get(message.body, 0) + 1
            if messages:
                continue
            is_late = asyncio.get_running_loop().time() > deadline_s
            if wanted <= popped.keys() or is_late:
                return popped
            await asyncio.sleep(0.1)
