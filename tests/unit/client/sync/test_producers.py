"""Producers without await: from any thread, in transactions."""

import inspect
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from rockhopper import (
    BrokerUnreachableError,
    ClientStateError,
    Message,
    Middleware,
    ReceivedMessage,
    Sending,
    SendReceipt,
    ThreadedBroker,
    Transaction,
    TransactionState,
    client,
)
from rockhopper.client.middleware.hooks import SendNext
from rockhopper.client.sync.producers import TransactionOptions
from rockhopper.sync import Consumer, Producer, PullConsumer, TransactionProducer
from tests.support.features import needs
from tests.support.hang import HANG_S


def test_many_threads_share_a_producer_that_the_first_call_opens(broker: ThreadedBroker) -> None:
    producer = Producer(timeout_s=HANG_S)
    with ThreadPoolExecutor(8) as threads:
        receipts = list(threads.map(lambda n: producer.send("orders", b"%d" % n), range(64)))
    producer.close()
    producer.close()
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 64
    with pytest.raises(ClientStateError, match="closed"):
        producer.send("orders", b"late")


def test_what_is_wrong_with_the_arguments_is_raised_where_they_stand() -> None:
    with pytest.raises(ValueError, match="the group"):
        Producer(group="no group")


@needs("request_reply")
def test_a_question_is_answered(broker: ThreadedBroker) -> None:
    with Producer(timeout_s=HANG_S) as producer, Consumer("answering", "questions") as consumer:
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(producer.request, Message("questions", b"Hello?"))
            for message in consumer:
                producer.reply(message, b"Yes")
                break
            assert asked.result(HANG_S).body == b"Yes"


def unknown(message: ReceivedMessage) -> str:
    return "unknown"


def stored(topic: str) -> int:
    with PullConsumer(topic) as consumer:
        return sum(consumer.end_offset(queue) for queue in consumer.queues())


@needs("transactions")
@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_ends_with_its_block(broker: ThreadedBroker, fails: bool) -> None:
    def pay() -> None:
        with producer.transaction(Message("payments", b"7 EUR")):
            if fails:
                raise RuntimeError("no money")

    with TransactionProducer("payers", check=unknown, timeout_s=HANG_S) as producer:
        if fails:
            with pytest.raises(RuntimeError, match="no money"):
                pay()
        else:
            pay()
    assert stored("payments") == (0 if fails else 1)


@needs("transactions")
@pytest.mark.parametrize(("answer", "count"), [("commit", 1), ("rollback", 0)])
def test_a_local_transaction_is_a_plain_function_of_the_calling_thread(
    broker: ThreadedBroker, answer: str, count: int
) -> None:
    threads = []

    def pay(transaction: Transaction) -> str:
        threads.append(threading.current_thread())
        return answer

    with TransactionProducer("payers", check=unknown, timeout_s=HANG_S) as producer:
        transaction = producer.send_in_transaction(Message("payments", b"7 EUR"), pay)
    assert transaction.state is TransactionState(answer)
    assert threads == [threading.current_thread()]
    assert stored("payments") == count


@needs("transactions")
def test_a_coroutine_function_is_no_local_transaction_and_no_check(broker: ThreadedBroker) -> None:
    async def late(_: object) -> str:
        raise AssertionError

    def hidden(transaction: Transaction) -> object:
        begun.append(late(transaction))
        return begun[0]

    begun: list[Coroutine[object, object, str]] = []
    with pytest.raises(TypeError, match=r"the check .* is a coroutine function"):
        TransactionProducer("payers", check=late)  # type: ignore[arg-type]
    with TransactionProducer("payers", check=unknown, timeout_s=HANG_S) as producer:
        message = Message("payments", b"7 EUR")
        with pytest.raises(TypeError, match=r"the local transaction .* is a coroutine function"):
            producer.send_in_transaction(message, late)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"the local transaction .* never awaited"):
            producer.send_in_transaction(message, hidden)  # type: ignore[arg-type]
    begun[0].close()
    assert stored("payments") == 0


def test_the_options_that_a_type_checker_sees_are_all_there_are() -> None:
    taken = inspect.signature(client.TransactionProducer).parameters.keys()
    assert TransactionOptions.__annotations__.keys() == taken - {"group", "check"}


@needs("transactions")
def test_a_transaction_goes_through_middleware(broker: ThreadedBroker) -> None:
    class Noting(Middleware):
        async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
            operations.append(sending.operation)
            return await call_next(sending)

    operations: list[str] = []
    hooks = [Noting()]
    with TransactionProducer("p", check=unknown, middleware=hooks, timeout_s=HANG_S) as producer:
        with producer.transaction(Message("payments", b"7 EUR")):
            pass
    assert operations == ["transaction"]


def test_a_broker_that_is_away_is_a_short_traceback() -> None:
    with ThreadedBroker() as broker:
        producer = Producer(broker.nameserver)
        producer.send("orders", b"x")
        unheard = Producer(broker.nameserver)
    for each in (producer, unheard):
        with each, pytest.raises(BrokerUnreachableError) as caught:
            each.send("orders", b"x", timeout_s=0.1)
        assert len(caught.traceback) <= 4  # this test's, and the two of the face
