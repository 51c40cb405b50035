"""What a program gets from the client crosses to another process, and is copied, as it is."""

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rockhopper.client import Message, RetryLater, errors
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import NotAllSentError, SendReceipt, SendStatus
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.transactions import Transaction, TransactionState
from rockhopper.protocol import errors as protocol_errors
from rockhopper.protocol.message import StoredMessage
from rockhopper.tasks import ApplicationCodeError

QUEUE = MessageQueue("orders", "broker-a", 1)
RECEIPT = SendReceipt("id", "offset-id", QUEUE, 7, SendStatus.OK)

# Those whose constructor takes more than a text.
MADE: dict[type[BaseException], Callable[[], BaseException]] = {
    errors.ClientError: lambda: errors.ClientError("what", code=1, remark="r", address="a:1"),
    errors.RequestRefusedError: lambda: errors.RequestRefusedError(10, 17, "no topic", "a:1"),
    errors.RequestTimeoutError: lambda: errors.RequestTimeoutError(10, "a:1", 3.0),
    errors.RouteNotFoundError: lambda: errors.RouteNotFoundError("x").about(topic="t"),
    protocol_errors.FieldError: lambda: protocol_errors.FieldError("field", "reason"),
    protocol_errors.SqlSyntaxError: lambda: protocol_errors.SqlSyntaxError("reason", 3),
}


def every_error() -> Iterator[BaseException]:
    for module in (errors, protocol_errors):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, BaseException) and kind.__module__ == module.__name__:
                yield MADE.get(kind, lambda kind=kind: kind("what"))()
    yield NotAllSentError([RECEIPT, RECEIPT])
    yield RetryLater(delay_s=3.0)
    yield RetryLater(-1, "never")
    yield ApplicationCodeError("panic")


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


ways = pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])


@ways
@pytest.mark.parametrize("error", list(every_error()), ids=lambda each: type(each).__name__)
def test_an_error_is_the_same_afterwards(error: BaseException, way: Callable[[Any], Any]) -> None:
    error.add_note("tried before")
    back = way(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert vars(back) == vars(error)


@ways
@pytest.mark.parametrize(
    "value",
    [
        Message("orders", b"x", tags="new", keys=["k"], properties={"a": "b"}),
        QUEUE,
        RECEIPT,
        TransactionState.COMMIT,
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_value_is_equal_afterwards(value: object, way: Callable[[Any], Any]) -> None:
    assert way(value) == value


@ways
def test_a_received_message_is_the_same_afterwards(way: Callable[[Any], Any]) -> None:
    stored = StoredMessage("orders", 1, 7, 70, b"body")
    back = way(ReceivedMessage(QUEUE, stored))
    assert (back.body, back.queue, back.queue_offset) == (b"body", QUEUE, 7)


@ways
def test_a_transaction_is_the_same_afterwards(way: Callable[[Any], Any]) -> None:
    transaction = Transaction(Message("orders", b"x"), RECEIPT)
    back = way(transaction)
    assert (back.message, back.receipt, back.state) == (
        transaction.message,
        transaction.receipt,
        transaction.state,
    )
