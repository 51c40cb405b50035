"""LOG_HISTORY: epochs, and where the queues of an older one end."""

import pytest

from rockhopper.protocol.bodies.log_history import (
    HistoryQuestion,
    decode_history_answer,
    encode_history,
)
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.served_broker import ServedBroker


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.tables.catalog.history.start_run(0)
    for _ in range(15):
        broker.put("orders")


async def test_an_older_epoch_is_told_where_its_queues_end(broker: ServedBroker) -> None:
    """Of a queue without messages, too, and one that has them only since."""
    broker.put("orders", queue_id=1)
    (older,) = broker.tables.catalog.history.ids(1)
    broker.tables.catalog.history.start_run(broker.store.log.written_offset)
    broker.put("orders")
    places = [("orders", 0), ("orders", 1), ("orders", 2)]
    question = encode_history(HistoryQuestion(None, [older], places))
    answer = decode_history_answer((await broker.ask(RequestCode.LOG_HISTORY, {}, question)).body)
    assert (answer.common_id, answer.ends) == (older, [15, 1, 0])
    assert answer.ids == broker.tables.catalog.history.ids(2)
    unknown = encode_history(HistoryQuestion(None, ["elsewhere"], places))
    answer = decode_history_answer((await broker.ask(RequestCode.LOG_HISTORY, {}, unknown)).body)
    assert (answer.common_id, answer.ends) == (None, [0, 0, 0])


async def test_too_much_is_asked_for_at_once(broker: ServedBroker) -> None:
    question = encode_history(HistoryQuestion(None, ["id"] * 33, []))
    answer = await broker.ask(RequestCode.LOG_HISTORY, {}, question)
    assert answer.code == ResponseCode.INVALID_PARAMETER
