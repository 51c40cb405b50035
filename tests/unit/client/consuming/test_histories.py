"""Histories: positions are compared once for each connection, and go back where the logs part."""

from collections.abc import AsyncIterator
from copy import copy

import pytest

from rockhopper.client.consuming.histories import Histories
from rockhopper.client.errors import MalformedAnswerError, RequestRefusedError
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies.log_history import (
    HistoryAnswer,
    HistoryQuestion,
    decode_history_question,
    encode_history,
)
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.fake_broker import FakeBroker

QUEUE = MessageQueue("orders", "a", 1)
LOG_HISTORY = int(RequestCode.LOG_HISTORY)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as server:
        yield server


@pytest.fixture
async def session(broker: FakeBroker) -> AsyncIterator[Session]:
    made = Session(broker.address)
    await made.start()
    await made.routes.route("orders")
    yield made
    await made.close()


def answers(broker: FakeBroker, answer: Command) -> None:
    broker.on(LOG_HISTORY, lambda _request: copy(answer))


def history(ids: list[str], common: str | None, end: int | None) -> Command:
    return Command(0, body=encode_history(HistoryAnswer(ids, common, [end])))


def asked(broker: FakeBroker) -> list[HistoryQuestion]:
    return [decode_history_question(each.body) for each in broker.requests_of(LOG_HISTORY)]


async def test_the_first_position_is_taken_as_it_is(broker: FakeBroker, session: Session) -> None:
    answers(broker, history(["b", "a"], None, 0))
    histories = Histories(session, "g")
    assert await histories.compare(QUEUE, 30, broker.address) == 30
    assert histories.read_in(QUEUE) == ("b", "a")
    assert histories.is_compared(QUEUE, broker.address)
    assert asked(broker) == [HistoryQuestion(None, [], [])]


async def test_a_position_of_an_older_log_goes_back_to_where_they_part(
    broker: FakeBroker, session: Session
) -> None:
    answers(broker, history(["b", "a"], "a", 10))
    histories = Histories(session, "g")
    histories.recall(QUEUE, ("a",))
    assert not histories.is_compared(QUEUE, broker.address)
    assert await histories.committable(QUEUE, 30) == 10
    assert await histories.compare(QUEUE, 30, broker.address) == 10
    assert asked(broker)[-1] == HistoryQuestion("g", ["a"], [("orders", 1)])
    assert histories.read_in(QUEUE) == ("b", "a")
    assert await histories.committable(QUEUE, 30) == 30
    assert len(asked(broker)) == 2


async def test_a_position_in_front_of_that_stays(broker: FakeBroker, session: Session) -> None:
    answers(broker, history(["b", "a"], "a", 10))
    histories = Histories(session, "g")
    histories.recall(QUEUE, ("a",))
    assert await histories.compare(QUEUE, 7, broker.address) == 7


@pytest.mark.parametrize("code", [3, 16])
async def test_a_broker_without_histories_is_taken_at_its_word(
    broker: FakeBroker, session: Session, code: int
) -> None:
    answers(broker, Command(code))
    histories = Histories(session, "g")
    histories.recall(QUEUE, ("a",))
    assert await histories.compare(QUEUE, 30, broker.address) == 30
    assert histories.read_in(QUEUE) == ()
    assert histories.is_compared(QUEUE, broker.address)


async def test_what_does_not_answer_is_asked_again(broker: FakeBroker, session: Session) -> None:
    histories = Histories(session, "g")
    histories.recall(QUEUE, ("a",))
    answers(broker, Command(int(ResponseCode.SYSTEM_BUSY)))
    with pytest.raises(RequestRefusedError):
        await histories.compare(QUEUE, 30, broker.address)
    answers(broker, Command(0, body=b"no msgpack"))
    with pytest.raises(MalformedAnswerError, match="LOG_HISTORY"):
        await histories.compare(QUEUE, 30, broker.address)
    assert not histories.is_compared(QUEUE, broker.address)
    answers(broker, history(["a"], "a", None))
    assert await histories.compare(QUEUE, 30, broker.address) == 30
