"""A cancellation at any await of the receiving path loses no message, and acknowledges none."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Producer, PullConsumer
from rockhopper.client.middleware.hooks import Middleware, ReceiveNext, Receiving
from rockhopper.client.received import ReceivedMessage
from tests.support.billing import AT_ONCE, billing, send
from tests.support.hang import HANG_S

COUNT = 12
# More than any of the calls awaits.
AWAITS_MAX = 12

_Result = TypeVar("_Result")


class CancelledAt(Generic[_Result]):
    """Runs a coroutine, and cancels it at the await of that number, counted from 0."""

    def __init__(self, work: Coroutine[Any, Any, _Result], number: int) -> None:
        self.work = work
        self.number = number

    def __await__(self) -> Generator[Any, Any, _Result]:
        steps = self.work.__await__()
        count = 0
        try:
            waits_for = next(steps)
            while True:
                if count == self.number:
                    waits_for = steps.throw(asyncio.CancelledError())
                else:
                    try:
                        yield waits_for
                    except asyncio.CancelledError as error:  # of a time-out within
                        waits_for = steps.throw(error)
                    else:
                        waits_for = steps.send(None)
                count += 1
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class Waiting(Middleware):
    """Awaits before and behind the receiving."""

    async def on_receive(
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        await asyncio.sleep(0)
        messages = await call_next(receiving)
        await asyncio.sleep(0)
        return messages


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


async def next_of(items: AsyncIterator[_Result]) -> _Result:
    return await anext(items)


async def receive_all(receive: Callable[[], Coroutine[Any, Any, list[bytes]]]) -> list[bytes]:
    """Receive everything, cancelling each call at each of its awaits before it may succeed."""
    found: list[bytes] = []
    async with asyncio.timeout(HANG_S):
        while len(found) < COUNT:
            for number in range(AWAITS_MAX):
                try:
                    found += await CancelledAt(receive(), number)
                    break
                except asyncio.CancelledError:
                    continue
    return found


hooked = pytest.mark.parametrize("middleware", [[], [Waiting()], [Waiting(), Waiting()]], ids=len)
modes = pytest.mark.parametrize("orderly", [False, True])


@hooked
@modes
async def test_a_loop_hands_out_every_message_once(
    broker: Broker, producer: Producer, middleware: list[Middleware], orderly: bool
) -> None:
    await send(producer, COUNT)
    async with billing(broker, middleware=middleware, orderly=orderly) as consumer:
        items = aiter(consumer)

        async def receive() -> list[bytes]:
            return [(await anext(items)).body]

        assert await receive_all(receive) == [b"%d" % n for n in range(COUNT)]
        assert consumer.engine.handout.finished == COUNT - 1
        assert consumer.engine.handout.failed == 0


@hooked
@modes
async def test_batches_hand_out_every_message_once(
    broker: Broker, producer: Producer, middleware: list[Middleware], orderly: bool
) -> None:
    await send(producer, COUNT)
    async with billing(broker, middleware=middleware, orderly=orderly) as consumer:
        batches = consumer.batches(5, 0.0)

        async def receive() -> list[bytes]:
            return [message.body for message in await anext(batches)]

        assert await receive_all(receive) == [b"%d" % n for n in range(COUNT)]
        assert consumer.engine.handout.failed == 0


@hooked
@pytest.mark.parametrize("way", ["pull", "loop"])
async def test_a_pull_consumer_hands_out_every_message_once(
    broker: Broker, producer: Producer, middleware: list[Middleware], way: str
) -> None:
    await send(producer, COUNT)
    async with PullConsumer(
        "orders", nameserver=broker.nameserver, middleware=middleware, start_from="earliest"
    ) as consumer:
        items = aiter(consumer)

        async def receive() -> list[bytes]:
            if way == "pull":
                return [message.body for message in await consumer.pull(5)]
            return [(await anext(items)).body]

        assert await receive_all(receive) == [b"%d" % n for n in range(COUNT)]


class RaisesOnce(Middleware):
    """Fails behind the receiving, once."""

    has_raised = False

    async def on_receive(
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        messages = await call_next(receiving)
        if not self.has_raised:
            self.has_raised = True
            raise ValueError("the hook failed")
        return messages


async def test_what_a_hook_fails_on_is_asked_for_again_though_the_loop_goes_on(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 1)
    async with billing(broker, middleware=[RaisesOnce()]) as consumer:
        items = aiter(consumer)
        with pytest.raises(ValueError, match="the hook failed"):
            await next_of(items)
        message = await next_of(items)
        assert (message.body, message.reconsume_times) == (b"0", 1)


@pytest.mark.parametrize("number", range(AWAITS_MAX))
async def test_closing_that_is_cancelled_acknowledges_what_was_handed_out_alone(
    broker: Broker, producer: Producer, number: int
) -> None:
    await send(producer, 3)
    consumer = await billing(broker).start()
    first = await next_of(aiter(consumer))
    assert first.body == b"0"
    try:
        await CancelledAt(consumer.close(), number)
    except asyncio.CancelledError:
        await consumer.close()
    async with billing(broker) as other:
        items = aiter(other)
        bodies = {(await next_of(items)).body for _ in range(2)}
        if bodies != {b"1", b"2"}:  # the last commit was cut off: what was handled comes again
            bodies.add((await next_of(items)).body)
            assert bodies == {b"0", b"1", b"2"}
