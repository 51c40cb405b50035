"""Consumer: its arguments, a start that fails, and a stop from anywhere."""

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime

import pytest

from rockhopper.client import Consumer, RequestRefusedError, RetryLater, Sql
from rockhopper.client.errors import ClientStateError
from rockhopper.client.middleware.hooks import Middleware, ReceiveNext, Receiving
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import SubscriptionError
from tests.support.group_broker import GroupBroker
from tests.support.hang import HANG_S
from tests.unit.client.consuming.test_handout import queue_of


@pytest.mark.parametrize(
    ("option", "value", "bound"),
    [
        ("commit_interval_s", 0, "above 0"),
        ("commit_interval_s", -1.0, "above 0"),
        ("suspend_s", -1.0, "0 or above"),
        ("poll_s", -1.0, "0 or above"),
        ("close_timeout_s", -1.0, "0 or above"),
        ("request_timeout_s", 0, "above 0"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(option: str, value: float, bound: str) -> None:
    with pytest.raises(ValueError, match=rf"{option} is {value} s: it must be {bound}"):
        Consumer("billing", "orders", **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("topics", [None, 5, b"orders", ["orders", 5], {5: "*"}])
def test_topics_that_are_no_texts_are_refused(topics: object) -> None:
    with pytest.raises(TypeError, match="topics are strings"):
        Consumer("billing", topics)  # type: ignore[arg-type]


async def test_a_consumer_whose_start_failed_can_be_started_again() -> None:
    async with GroupBroker() as broker:
        broker.on(46, lambda _request: Command(24, remark="the filter is wrong"))
        consumer = Consumer("billing", {"orders": Sql("a > 5")}, nameserver=broker.address)
        for _ in range(2):
            with pytest.raises(RequestRefusedError):
                await consumer.start()
        broker.on(46, lambda _request: Command(0))
        async with consumer:
            await broker.wait_for(34)
            consumer.stop()
            await consumer.run(_unused)


async def test_a_stop_while_a_start_fails_ends_the_next_run() -> None:
    async with GroupBroker() as broker:

        def refuse(_request: Command) -> Command:
            consumer.stop()
            return Command(24, remark="the filter is wrong")

        broker.on(46, refuse)
        consumer = Consumer("billing", {"orders": Sql("a > 5")}, nameserver=broker.address)
        with pytest.raises(RequestRefusedError):
            await consumer.start()
        broker.on(46, lambda _request: Command(0))
        async with consumer:
            async with asyncio.timeout(HANG_S):
                await consumer.run(_unused)


async def test_stop_in_another_thread_ends_run_also_in_debug_mode() -> None:
    asyncio.get_running_loop().set_debug(True)
    async with (
        GroupBroker() as broker,
        Consumer("billing", "orders", nameserver=broker.address) as consumer,
    ):
        running = asyncio.ensure_future(consumer.run(_unused))
        await broker.wait_for(11)
        await asyncio.to_thread(consumer.stop)
        async with asyncio.timeout(HANG_S):
            await running


async def test_single_messages_of_a_batch_are_put_back_and_the_others_acknowledged() -> None:
    async with (
        GroupBroker() as broker,
        Consumer("billing", "orders", nameserver=broker.address) as consumer,
    ):
        held = queue_of(4)
        consumer.engine.handout.offer(held)
        batches = consumer.batches(3, 0.0)
        batch = await anext(batches)
        assert [each.queue_offset for each in batch] == [0, 1, 2]
        consumer.put_back(batch[1])
        with pytest.raises(ClientStateError, match="received last"):
            consumer.put_back(batch[1])
        assert [each.queue_offset for each in await anext(batches)] == [1, 3]
        assert held.in_flight == 2
        consumer.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
        assert (held.position, consumer.engine.handout.finished) == (4, 4)


async def test_a_message_that_cannot_be_given_back_changes_nothing_for_the_loop() -> None:
    async with (
        GroupBroker() as broker,
        Consumer("billing", "orders", nameserver=broker.address) as consumer,
    ):
        held = queue_of(3)
        other = held.waiting[2]
        consumer.engine.handout.offer(held)
        loop = consumer.__aiter__()
        message = await anext(loop)
        with pytest.raises(ClientStateError, match="received last"):
            consumer.put_back(other)
        assert (await anext(loop)).queue_offset == 1
        assert (consumer.engine.handout.finished, held.position) == (1, 1)
        with pytest.raises(ClientStateError, match="received last"):
            consumer.put_back(message)


async def test_a_new_loop_has_the_unfinished_messages_of_the_last_one_redelivered() -> None:
    async with (
        GroupBroker() as broker,
        Consumer("billing", "orders", nameserver=broker.address) as consumer,
    ):
        broker.on(36, lambda _request: Command(0))
        held = queue_of(3)
        consumer.engine.handout.offer(held)
        first = consumer.__aiter__()
        assert [(await anext(first)).queue_offset for _ in range(2)] == [0, 1]
        second = consumer.__aiter__()
        assert (await anext(second)).queue_offset == 2
        with pytest.raises(ClientStateError, match="another loop"):
            await anext(first)
        assert (consumer.engine.handout.finished, consumer.engine.handout.failed) == (1, 1)


class Greedy(Middleware):
    """Fails behind the wait, so that its messages do not reach the loop."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    async def on_receive(
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        """Raise the error, once."""
        messages = await call_next(receiving)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return messages


@pytest.mark.parametrize(
    ("error", "failed"), [(RetryLater(), 3), (ValueError(), 3), (asyncio.CancelledError(), 0)]
)
async def test_a_hook_that_fails_loses_no_message_of_a_batch(
    error: BaseException, failed: int
) -> None:
    async with GroupBroker() as broker:
        broker.on(36, lambda _request: Command(0))
        consumer = Consumer(
            "billing", "orders", nameserver=broker.address, middleware=[Greedy(error)]
        )
        async with consumer:
            held, other = queue_of(2, 0), queue_of(2, 1)
            for each in (held, other):
                consumer.engine.handout.offer(each)
            batches = consumer.batches(3, 60.0)
            with pytest.raises(type(error)):
                await anext(batches)
            assert consumer.engine.handout.failed == failed
            consumer.engine.handout.stop()
            if not failed:
                assert (held.position, other.position) == (0, 0)
                assert held.in_flight == other.in_flight == 0


async def _unused(message: object) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize(
    ("wanted", "form"),
    [
        ("new | paid", "new || paid"),
        ("new, paid", "new || paid"),
        ("price > 5", "Sql('price > 5')"),
        ("a = 'b' AND c = 5", "Sql("),
        ("region IS NOT NULL", "Sql("),
    ],
)
def test_a_filter_that_cannot_be_tags_is_refused_with_the_correct_form(
    wanted: str, form: str
) -> None:
    with pytest.raises(SubscriptionError, match=re.escape(form)):
        Consumer("billing", {"orders": wanted})


@pytest.mark.parametrize(
    "wanted", ["new || paid", " new ", "a b", "a=b", "in stock", "*", "", None]
)
def test_a_filter_that_may_be_tags_is_taken(wanted: str | None) -> None:
    Consumer("billing", {"orders": wanted})


@pytest.mark.parametrize(
    ("start_from", "said"),
    [
        (datetime(2026, 11, 29, 12, 0), "no time zone"),
        (1_795_945_779, "seconds"),
        (1_795_945_779_000_000, "microseconds"),
    ],
)
def test_a_start_in_another_unit_or_without_a_zone_is_refused(
    start_from: datetime | int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Consumer("billing", "orders", start_from=start_from)


def test_a_list_of_name_servers_is_refused_with_the_correct_form() -> None:
    with pytest.raises(TypeError, match="'a:9876;b:9876'"):
        Consumer("billing", "orders", nameserver=["a:9876", "b:9876"])  # type: ignore[arg-type]
