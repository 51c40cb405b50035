"""Pulls: what is asked, what an answer means, and what is left out of it."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.client.consuming.pulling import Puller
from rockhopper.client.errors import MalformedAnswerError
from rockhopper.client.filters import Sql
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.command import Command
from rockhopper.protocol.subscription import Subscription
from tests.support.fake_broker import FakeBroker

QUEUE = MessageQueue("orders", "a", 1)
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
    result = await Puller(session, "g").pull(QUEUE, 3, 32)
    assert [(m.queue_offset, m.body) for m in result.messages] == [(3, b"3"), (4, b"4")]
    assert (result.next_offset, result.min_offset, result.max_offset) == (5, 0, 5)
    assert not result.has_moved
    (asked,) = broker.requests_of(11)
    ext = asked.ext or {}
    assert (ext["consumerGroup"], ext["subscription"], ext["sysFlag"]) == ("g", "*", "4")
    assert (ext["maxMsgNums"], ext["suspendTimeoutMillis"]) == ("32", "0")


async def test_waiting_is_asked_for_with_its_time(broker: FakeBroker, session: Session) -> None:
    result = await Puller(session, None).pull(QUEUE, 5, 32, wait_s=0.001)
    assert (result.messages, result.next_offset) == ([], 5)
    ext = broker.requests_of(11)[0].ext or {}
    assert (ext["consumerGroup"], ext["sysFlag"]) == ("TOOLS_CONSUMER", "6")
    assert ext["suspendTimeoutMillis"] == "1"


async def test_what_only_has_the_same_hash_is_left_out(session: Session) -> None:
    """The broker lets "rose" pass for "red"; the offset goes on behind it."""
    result = await Puller(session, "g", "red").pull(QUEUE, 2, 32)
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
    await Puller(session, "g", **puller).pull(QUEUE, 0, 32)  # type: ignore[arg-type]
    ext = broker.requests_of(11)[0].ext or {}
    assert (ext["subscription"], ext["expressionType"]) == (expression, kind)


async def test_a_broker_may_send_the_reader_elsewhere(broker: FakeBroker, session: Session) -> None:
    broker.on(11, lambda request: Command(21, ext=dict(ENDS)))
    result = await Puller(session, "g").pull(QUEUE, 0, 32)
    assert (result.has_moved, result.next_offset, result.min_offset) == (True, 9, 2)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Command(0, ext={}), "answered a pull with a header that cannot be read"),
        (Command(0, ext=dict(ENDS), body=b"nonsense"), "orders/a/1 holds a message at or soon"),
    ],
)
async def test_an_answer_that_cannot_be_read_says_where(
    broker: FakeBroker, session: Session, answer: Command, says: str
) -> None:
    broker.on(11, lambda request: answer)
    with pytest.raises(MalformedAnswerError, match=says):
        await Puller(session, "g").pull(QUEUE, 0, 32)
