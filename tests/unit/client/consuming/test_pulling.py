"""Pulls: what is asked, what an answer means, and what is left out of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rockhopper.client.consuming.pulling import GroupPuller, PullResult, Space
from rockhopper.client.errors import (
    BrokerUnreachableError,
    MalformedAnswerError,
    RequestRefusedError,
)
from rockhopper.client.filters import Sql
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.command import Command
from rockhopper.protocol.subscription import Subscription
from tests.support.fake_broker import FakeBroker
from tests.support.fake_server import FakeServer

QUEUE = MessageQueue("orders", "a", 1)
OTHER = MessageQueue("orders", "a", 0)
ENDS = {"suggestWhichBrokerId": "0", "nextBeginOffset": "9", "minOffset": "2", "maxOffset": "9"}


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as server:
        await server.append(1, b"0", b"1", b"2", tag="red")
        await server.append(1, b"3", tag="rose")
        await server.append(1, b"4", tag="blue")
        yield server


@pytest.fixture
async def session(broker: FakeBroker) -> AsyncIterator[Session]:
    made = Session(broker.address)
    await made.start()
    yield made
    await made.close()


async def test_messages_come_from_an_offset_on(broker: FakeBroker, session: Session) -> None:
    result = await GroupPuller(session, "g").pull(QUEUE, 3, 32)
    assert [(m.queue_offset, m.body) for m in result.messages] == [(3, b"3"), (4, b"4")]
    assert (result.next_offset, result.min_offset, result.max_offset) == (5, 0, 5)
    assert not result.has_moved
    (asked,) = broker.requests_of(11)
    ext = asked.ext or {}
    assert (ext["consumerGroup"], ext["subscription"], ext["sysFlag"]) == ("g", "*", "4")
    assert (ext["maxMsgNums"], ext["suspendTimeoutMillis"]) == ("32", "0")


async def test_waiting_is_asked_for_with_its_time(broker: FakeBroker, session: Session) -> None:
    result = await GroupPuller(session, None).pull(QUEUE, 5, 32, wait_s=0.001)
    assert (result.messages, result.next_offset) == ([], 5)
    ext = broker.requests_of(11)[0].ext or {}
    assert (ext["consumerGroup"], ext["sysFlag"]) == ("TOOLS_CONSUMER", "6")
    assert ext["suspendTimeoutMillis"] == "1"


async def test_what_only_has_the_same_hash_is_left_out(session: Session) -> None:
    """The broker lets "rose" pass for "red"; the offset goes on behind it."""
    result = await GroupPuller(session, "g", "red").pull(QUEUE, 2, 32)
    assert [message.body for message in result.messages] == [b"2"]
    assert result.next_offset == 5


@pytest.mark.parametrize(
    ("puller", "expression", "kind"),
    [
        ({"wanted": Sql("a > 1")}, "a > 1", "SQL92"),
        ({"wanted": "red"}, "red", "TAG"),
        ({"subscriptions": {"orders": Subscription("orders", "blue", version=7)}}, "blue", "TAG"),
        ({"subscriptions": {"other": Subscription("other", "blue")}}, "*", "TAG"),
    ],
)
async def test_a_topics_own_subscription_comes_first(
    broker: FakeBroker, session: Session, puller: dict[str, object], expression: str, kind: str
) -> None:
    broker.on(11, lambda request: Command(20, ext=dict(ENDS)))
    await GroupPuller(session, "g", **puller).pull(QUEUE, 0, 32)  # type: ignore[arg-type]
    ext = broker.requests_of(11)[0].ext or {}
    assert (ext["subscription"], ext["expressionType"]) == (expression, kind)


async def test_a_broker_may_send_the_reader_elsewhere(broker: FakeBroker, session: Session) -> None:
    broker.on(11, lambda request: Command(21, ext=dict(ENDS)))
    result = await GroupPuller(session, "g").pull(QUEUE, 0, 32)
    assert (result.has_moved, result.next_offset, result.min_offset) == (True, 9, 2)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Command(0, ext={}), "answered a pull with an invalid header"),
        (
            Command(0, ext=dict(ENDS), body=b"nonsense"),
            "orders/a/1 has an unreadable message at or soon",
        ),
    ],
)
async def test_an_answer_that_cannot_be_read_says_where(
    broker: FakeBroker, session: Session, answer: Command, says: str
) -> None:
    broker.on(11, lambda request: answer)
    with pytest.raises(MalformedAnswerError, match=says):
        await GroupPuller(session, "g").pull(QUEUE, 0, 32)


SPACE = Space(1000, 1 << 20)


def asked(broker: FakeBroker) -> list[tuple[int, int]]:
    """Offset and count of every pull."""
    fields = [request.ext or {} for request in broker.requests_of(11)]
    return [(int(ext["queueOffset"]), int(ext["maxMsgNums"])) for ext in fields]


async def stock(broker: FakeBroker, count: int) -> None:
    await broker.append(0, *[b"%d" % number for number in range(count)])


async def read_through(puller: GroupPuller, offsets: int, space: Space = SPACE) -> list[int]:
    """Offsets of all messages, in the order in which they came."""
    found: list[int] = []
    offset = 0
    while offset < offsets:
        result = await puller.pull(OTHER, offset, 2, space=space)
        found += [message.queue_offset for message in result.messages]
        offset = result.next_offset
    return found


async def test_a_backlog_is_asked_for_with_several_requests_at_once(
    broker: FakeBroker, session: Session
) -> None:
    broker.batch_max = 2
    await stock(broker, 21)
    assert await read_through(GroupPuller(session, "g"), 21) == list(range(21))
    assert asked(broker) == [(offset, 2) for offset in range(0, 22, 2)]
    puller = GroupPuller(session, "g")
    await puller.pull(OTHER, 0, 2, space=SPACE)
    result = await puller.pull(OTHER, 2, 2, space=SPACE)
    assert (result.next_offset, result.max_offset, len(result.messages)) == (18, 21, 16)


@pytest.mark.parametrize(
    ("space", "count"), [(Space(0, 0), 2), (Space(5, 1 << 20), 4), (Space(1000, 1), 2)]
)
async def test_no_more_is_asked_for_than_there_is_space(
    broker: FakeBroker, session: Session, space: Space, count: int
) -> None:
    broker.batch_max = 2
    await stock(broker, 20)
    puller = GroupPuller(session, "g")
    await puller.pull(OTHER, 0, 2, space=space)
    assert len((await puller.pull(OTHER, 2, 2, space=space)).messages) == count


async def test_a_reader_that_goes_elsewhere_asks_once(broker: FakeBroker, session: Session) -> None:
    broker.batch_max = 2
    await stock(broker, 20)
    puller = GroupPuller(session, "g")
    await puller.pull(OTHER, 0, 2, space=SPACE)
    assert len((await puller.pull(OTHER, 10, 2, space=SPACE)).messages) == 2


async def test_what_filters_leave_out_is_no_gap_for_the_next_requests(
    broker: FakeBroker, session: Session
) -> None:
    broker.batch_max = 2
    for number in range(30):
        await broker.append(0, b"x", tag="red" if number % 7 else "blue")
    found = await read_through(GroupPuller(session, "g", "red"), 30)
    assert found == [number for number in range(30) if number % 7]


async def test_a_broker_that_gives_less_than_before_is_asked_again_from_there(
    broker: FakeBroker, session: Session
) -> None:
    broker.batch_max = 2
    await stock(broker, 30)
    puller = GroupPuller(session, "g")
    first = await puller.pull(OTHER, 0, 2, space=SPACE)
    broker.batch_max = 1
    second = await puller.pull(OTHER, first.next_offset, 2, space=SPACE)
    assert [message.queue_offset for message in second.messages] == [2]
    broker.batch_max = 2
    assert await read_through(puller, 30) == list(range(30))


@pytest.mark.parametrize("code", [2, 21])
async def test_of_several_requests_those_before_one_that_fails_count(
    broker: FakeBroker, session: Session, code: int
) -> None:
    broker.batch_max = 2
    await stock(broker, 20)
    puller = GroupPuller(session, "g")
    await puller.pull(OTHER, 0, 2, space=SPACE)
    serve = broker.handlers[11]

    def refuse_one(request: Command) -> Any:
        return Command(code) if (request.ext or {})["queueOffset"] == "8" else serve(request)

    broker.on(11, refuse_one)
    result = await puller.pull(OTHER, 2, 2, space=SPACE)
    assert [message.queue_offset for message in result.messages] == [2, 3, 4, 5, 6, 7]
    assert (result.next_offset, result.has_moved) == (8, False)
    with pytest.raises(RequestRefusedError if code == 2 else MalformedAnswerError):
        await puller.pull(OTHER, 8, 2, space=SPACE)


async def test_a_pull_that_is_cancelled_lets_go_of_all_its_requests(
    broker: FakeBroker, session: Session
) -> None:
    broker.batch_max = 2
    await stock(broker, 20)
    puller = GroupPuller(session, "g")
    await puller.pull(OTHER, 0, 2, space=SPACE)
    serve = broker.handlers[11]
    broker.on(11, lambda request: None)
    pull = asyncio.create_task(puller.pull(OTHER, 2, 2, space=SPACE))
    await broker.wait_for(11, 5)
    pull.cancel()
    await asyncio.gather(pull, return_exceptions=True)
    connection = session.connection(broker.address)
    assert connection is not None
    assert all(entry[0].done() for entry in connection.pending.values())
    broker.on(11, serve)
    assert await read_through(puller, 20) == list(range(20))


class Followed:
    """Follows a queue, and reads on until it has *wanted* messages."""

    def __init__(self, session: Session, wanted: int) -> None:
        self.session = session
        self.puller = GroupPuller(session, "g")
        self.wanted = wanted
        self.offsets: list[int] = []
        self.results = 0
        self.error: Exception | None = None
        self.in_flight: list[int] = []
        """The requests in flight in the iteration after each result."""

    async def follow(self, queue: MessageQueue = OTHER, offset: int = 0) -> None:
        await self.puller.follow(queue, offset, 2, 15.0, SPACE, self.accept)

    def accept(self, offset: int, result: PullResult) -> bool:
        self.results += 1
        self.offsets += [message.queue_offset for message in result.messages]
        if self.error is not None:
            raise self.error
        asyncio.get_running_loop().call_soon(self._look)
        return len(self.offsets) < self.wanted

    def _look(self) -> None:
        (connection,) = self.session.pool.connections
        self.in_flight.append(len(connection.pending))


@pytest.fixture
async def follower(broker: FakeBroker, session: Session) -> Followed:
    """The connection is there, and so the first poll is a long one already."""
    followed = Followed(session, 4)
    await followed.puller.pull(OTHER, 0, 2)
    return followed


async def test_the_next_long_poll_is_sent_before_anything_else_runs(
    broker: FakeBroker, follower: Followed
) -> None:
    following = asyncio.create_task(follower.follow())
    for number in range(4):
        await broker.wait_for(11, number + 2)
        await broker.append(0, b"x")
    await following
    assert follower.offsets == [0, 1, 2, 3]
    assert follower.in_flight[:3] == [1, 1, 1]
    assert asked(broker)[1:] == [(0, 2), (1, 2), (2, 2), (3, 2)]


async def test_of_a_backlog_a_single_result_comes_and_the_next_call_asks_several_times(
    broker: FakeBroker, follower: Followed
) -> None:
    broker.batch_max = 2
    follower.wanted = 100
    await stock(broker, 20)
    await follower.follow()
    assert (follower.results, follower.offsets) == (1, [0, 1])
    await follower.follow(offset=2)
    assert (follower.results, follower.offsets) == (2, list(range(18)))


async def test_a_refusal_ends_long_polls(broker: FakeBroker, follower: Followed) -> None:
    broker.on(11, lambda request: Command(2, remark="busy"))
    with pytest.raises(RequestRefusedError):
        await follower.follow()
    assert follower.results == 0


async def test_an_error_of_who_takes_the_results_ends_long_polls_and_nothing_else(
    broker: FakeBroker, follower: Followed
) -> None:
    await stock(broker, 1)
    follower.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await follower.follow()
    follower.error = None
    follower.wanted = 1
    await follower.follow()
    assert len(broker.requests_of(11)) == 3


async def test_an_answer_after_the_cancellation_of_a_long_poll_is_dropped(
    broker: FakeBroker, session: Session, follower: Followed
) -> None:
    following = asyncio.create_task(follower.follow())
    await broker.wait_for(11, 2)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await broker.append(0, b"x")
    assert len((await follower.puller.pull(OTHER, 0, 2)).messages) == 1
    assert follower.results == 0
    connection = session.connection(broker.address)
    assert connection is not None
    assert not connection.pending


async def test_long_polls_end_with_their_connection(broker: FakeBroker, follower: Followed) -> None:
    following = asyncio.create_task(follower.follow())
    await broker.wait_for(11, 2)
    broker.drop_connections()
    with pytest.raises(BrokerUnreachableError):
        await following


async def test_a_long_poll_moves_to_the_replica_that_an_answer_suggests(
    broker: FakeBroker, follower: Followed
) -> None:
    async with FakeServer() as slave:
        slave.on(11, lambda request: Command(19, ext=dict(ENDS)))
        addresses = {"0": broker.address, "2": slave.address}
        broker.routes["orders"]["brokerDatas"] = [{"brokerAddrs": addresses, "brokerName": "a"}]
        await follower.session.routes.renew("orders")
        broker.on(11, lambda request: Command(19, ext=ENDS | {"suggestWhichBrokerId": "2"}))
        await follower.follow(offset=9)
        await follower.follow(offset=9)
        assert (len(broker.requests_of(11)), len(slave.requests_of(11))) == (2, 1)


@pytest.mark.parametrize("suggested", [2, 7])
async def test_the_replica_that_an_answer_suggests_is_read_next_and_the_master_after_a_failure(
    broker: FakeBroker, session: Session, suggested: int
) -> None:
    ends = ENDS | {"suggestWhichBrokerId": str(suggested)}
    async with FakeServer() as slave:
        slave.on(11, lambda request: Command(19, ext=ENDS | {"suggestWhichBrokerId": "2"}))
        addresses = {"0": broker.address, "2": slave.address}
        broker.routes["orders"]["brokerDatas"] = [{"brokerAddrs": addresses, "brokerName": "a"}]
        broker.on(11, lambda request: Command(19, ext=ends))
        puller = GroupPuller(session, "g")
        for _ in range(3):
            await puller.pull(QUEUE, 9, 32)
        is_known = suggested == 2
        assert len(slave.requests_of(11)) == (2 if is_known else 0)
        assert len(broker.requests_of(11)) == (1 if is_known else 3)
        slave.on(11, lambda request: Command(2, remark="[REJECTREQUEST]it may not be read"))
        if is_known:
            with pytest.raises(RequestRefusedError):
                await puller.pull(QUEUE, 9, 32)
        await puller.pull(QUEUE, 9, 32)
        assert len(broker.requests_of(11)) == (2 if is_known else 4)
