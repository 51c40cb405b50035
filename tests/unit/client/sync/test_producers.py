"""Producers without await: from any thread, in transactions."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rockhopper import (
    BrokerUnreachableError,
    ClientStateError,
    Message,
    ReceivedMessage,
    ThreadedBroker,
)
from rockhopper.sync import Consumer, Producer, PullConsumer, TransactionProducer
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


def test_a_question_is_answered(broker: ThreadedBroker) -> None:
    with Producer(timeout_s=HANG_S) as producer, Consumer("answering", "questions") as consumer:
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(producer.request, Message("questions", b"Hello?"))
            for message in consumer:
                producer.reply(message, b"Yes")
                break
            assert asked.result(HANG_S).body == b"Yes"


@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_ends_with_its_block(broker: ThreadedBroker, fails: bool) -> None:
    def check(message: ReceivedMessage) -> str:
        return "unknown"

    def pay() -> None:
        with producer.transaction(Message("payments", b"7 EUR")):
            if fails:
                raise RuntimeError("no money")

    with TransactionProducer("payers", check=check, timeout_s=HANG_S) as producer:
        if fails:
            with pytest.raises(RuntimeError, match="no money"):
                pay()
        else:
            pay()
    with PullConsumer("payments") as consumer:
        ends = [consumer.end_offset(queue) for queue in consumer.queues()]
    assert sum(ends) == (0 if fails else 1)


def test_a_broker_that_is_away_is_a_short_traceback() -> None:
    with ThreadedBroker() as broker:
        producer = Producer(broker.nameserver)
        producer.send("orders", b"x")
        unheard = Producer(broker.nameserver)
    for each in (producer, unheard):
        with each, pytest.raises(BrokerUnreachableError) as caught:
            each.send("orders", b"x", timeout_s=0.1)
        assert len(caught.traceback) <= 4  # this test's, and the two of the face
