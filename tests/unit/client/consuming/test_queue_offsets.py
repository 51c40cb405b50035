"""Questions about single queues: asked of the queue's broker, in RocketMQ's words."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import (
    BrokerUnreachableError,
    MalformedAnswerError,
    RequestRefusedError,
)
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.command import Command
from tests.support.fake_broker import FakeBroker
from tests.support.fake_server import FakeServer

QUEUE = MessageQueue("orders", "a", 1)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as server:
        yield server


@pytest.fixture
async def offsets(broker: FakeBroker) -> AsyncIterator[QueueOffsets]:
    session = Session(broker.address)
    await session.start()
    yield QueueOffsets(session)
    await session.close()


async def test_where_a_queue_begins_and_ends(broker: FakeBroker, offsets: QueueOffsets) -> None:
    await broker.append(1, b"a", b"b", b"c")
    broker.min_offsets[1] = 2
    assert (await offsets.min_offset(QUEUE), await offsets.max_offset(QUEUE)) == (2, 3)


@pytest.mark.parametrize(("upper", "boundary"), [(False, "LOWER"), (True, "UPPER")])
async def test_an_offset_at_a_time_has_a_side(
    broker: FakeBroker, offsets: QueueOffsets, upper: bool, boundary: str
) -> None:
    assert await offsets.offset_at(QUEUE, 77, upper=upper) == 77
    (asked,) = broker.requests_of(29)
    assert (asked.ext or {})["boundaryType"] == boundary


@pytest.mark.parametrize(("told", "time_ms"), [("5", 5), ("0", None), ("-1", None)])
async def test_an_empty_queue_has_no_oldest_message(
    broker: FakeBroker, offsets: QueueOffsets, told: str, time_ms: int | None
) -> None:
    broker.on(32, lambda request: Command(0, ext={"timestamp": told}))
    assert await offsets.earliest_store_time_ms(QUEUE) == time_ms


async def test_a_group_that_never_committed_has_no_offset(
    broker: FakeBroker, offsets: QueueOffsets
) -> None:
    assert await offsets.committed("g", QUEUE) is None
    await offsets.commit("g", QUEUE, 7)
    assert await offsets.committed("g", QUEUE) == 7
    broker.committed["g", 1] = -1
    assert await offsets.committed("g", QUEUE) is None


async def test_a_broker_that_is_not_in_the_route_is_named_with_those_that_are(
    offsets: QueueOffsets,
) -> None:
    with pytest.raises(
        BrokerUnreachableError, match=r"broker 'z' does not serve .*; brokers that do: a"
    ):
        await offsets.min_offset(MessageQueue("orders", "z", 0))


@pytest.mark.parametrize("ext", [{}, {"offset": "x"}, None])
async def test_an_answer_that_cannot_be_read_is_named(
    broker: FakeBroker, offsets: QueueOffsets, ext: dict[str, str] | None
) -> None:
    broker.on(31, lambda request: Command(0, ext=ext))
    with pytest.raises(
        MalformedAnswerError, match="answered GET_MIN_OFFSET with an invalid header"
    ):
        await offsets.min_offset(QUEUE)


async def test_a_refusal_is_one(broker: FakeBroker, offsets: QueueOffsets) -> None:
    broker.on(15, lambda request: Command(1, remark="no"))
    with pytest.raises(RequestRefusedError, match="no"):
        await offsets.commit("g", QUEUE, 7)


def led_by(broker: FakeBroker, master: FakeServer) -> None:
    data = broker.routes["orders"]
    data["brokerDatas"] = [{"brokerAddrs": {"0": master.address}, "brokerName": "a"}]


async def test_a_commit_follows_the_broker_to_the_replica_that_leads(
    broker: FakeBroker, offsets: QueueOffsets
) -> None:
    async with FakeServer() as deposed:

        def depose(request: Command) -> Command:
            led_by(broker, broker)
            return Command(2, remark="[REJECTREQUEST]this broker follows another")

        deposed.on(15, depose)
        led_by(broker, deposed)
        await offsets.commit("billing", QUEUE, 7)
        assert broker.committed == {("billing", 1): 7}
        assert len(deposed.requests_of(15)) == 1


async def test_a_topic_that_is_on_another_broker_by_now_is_asked_for_there(
    broker: FakeBroker, offsets: QueueOffsets
) -> None:
    async with FakeServer() as earlier:

        def is_gone(request: Command) -> Command:
            led_by(broker, broker)
            return Command(17, remark="topic[orders] not exist, apply first please!")

        earlier.on(30, is_gone)
        led_by(broker, earlier)
        await broker.append(1, b"a")
        assert await offsets.max_offset(QUEUE) == 1


async def test_a_broker_that_nobody_else_leads_is_not_asked_twice(
    broker: FakeBroker, offsets: QueueOffsets
) -> None:
    broker.on(15, lambda request: Command(14, remark="shutting down"))
    with pytest.raises(RequestRefusedError):
        await offsets.commit("billing", QUEUE, 7)
    broker.on(30, lambda request: broker.drop_connections())
    with pytest.raises(BrokerUnreachableError):
        await offsets.max_offset(QUEUE)
    assert len(broker.requests_of(15)) == len(broker.requests_of(30)) == 1
