"""A queue changes hands once its owner has finished with its messages, or at the time limit."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Producer
from rockhopper.client.received import ReceivedMessage
from tests.support.billing import AT_ONCE, billing
from tests.support.turns import until

QUEUES = 4


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


class Jobs:
    """A handler whose jobs end when a test says so."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.done: list[bytes] = []
        self.may_end = asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.begun.append(message.body)
        await self.may_end.wait()
        self.done.append(message.body)


def refused(caplog: pytest.LogCaptureFixture) -> int:
    """How often a successor has found a queue locked."""
    return caplog.text.count("is still in progress at another member")


async def send_jobs(producer: Producer) -> list[bytes]:
    bodies = [b"job-%d" % queue for queue in range(QUEUES)]
    for queue, body in enumerate(bodies):
        await producer.send("orders", body, queue=queue)
    return bodies


async def test_what_is_in_work_is_not_started_again_by_a_new_member(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rockhopper.client.consuming.assignment")
    old, new = Jobs(), Jobs()
    jobs = await send_jobs(producer)
    async with billing(broker, handler=old, hand_over_s=0.05) as first:
        await until(lambda: len(old.begun) == QUEUES)
        async with billing(broker, handler=new, hand_over_s=0.05) as second:
            await until(lambda: len(second.assigned) > 1 and len(first.assigned) < 5)
            taken = [queue for queue in second.assigned if queue.topic == "orders"]
            for queue in taken:
                await producer.send("orders", b"later", queue=queue)
            await until(lambda: refused(caplog) > 2 * len(taken))
            assert new.begun == []
            new.may_end.set()
            old.may_end.set()
            await until(lambda: len(new.done) == len(taken))
            assert set(new.done) == {b"later"}
    assert sorted(old.done) == jobs


async def test_after_the_bound_it_is_started_again_and_both_members_say_so(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = Jobs(), Jobs()
    new.may_end.set()
    jobs = await send_jobs(producer)
    options = {"hand_over_s": 0.05, "close_timeout_s": 0.3}
    async with billing(broker, handler=old, **options):
        await until(lambda: len(old.begun) == QUEUES)
        async with billing(broker, handler=new, **options):
            await until(lambda: len(new.done) >= 2)
            old.may_end.set()
    assert set(new.done) <= set(jobs)
    assert (
        "is given up with 1 messages in progress, which another member starts again" in caplog.text
    )


async def test_a_queue_with_nothing_in_work_is_not_waited_for(
    broker: Broker, producer: Producer
) -> None:
    old, new = Jobs(), Jobs()
    old.may_end.set()
    new.may_end.set()
    await send_jobs(producer)
    async with billing(broker, handler=old, hand_over_s=0.05) as first:
        await until(lambda: len(old.done) == QUEUES)
        async with billing(broker, handler=new, hand_over_s=0.05, close_timeout_s=3600) as second:
            await until(lambda: len(second.assigned) > 1 and len(first.assigned) < 5)
            await send_jobs(producer)
            await until(lambda: len(old.done) + len(new.done) == 2 * QUEUES)
    assert new.done
