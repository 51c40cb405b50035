"""Receipts: one for each message of an answer, and no guess where an answer cannot be read."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rockhopper.client.errors import MalformedAnswerError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SENT_CODES, SendStatus, read_receipts
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.protocol.command import Command

ASKED = MessageQueue("orders", "broker-a", 9)


def messages(count: int) -> list[OutgoingMessage]:
    return [
        cast(OutgoingMessage, SimpleNamespace(message_id=f"U{number}")) for number in range(count)
    ]


def answer(code: int = 0, **changes: str) -> Command:
    ext = {"queueId": "2", "queueOffset": "40", "msgId": "M0,M1"} | changes
    return Command(code, 1, ext={name: text for name, text in ext.items() if text != "none"})


def read(command: Command, count: int = 2) -> list[Any]:
    return list(read_receipts(command, messages(count), ASKED, "h:1"))


def test_each_message_of_a_batch_has_its_own_place() -> None:
    first, second = read(answer())
    assert (first.message_id, first.offset_message_id, first.queue_offset) == ("U0", "M0", 40)
    assert (second.message_id, second.offset_message_id, second.queue_offset) == ("U1", "M1", 41)
    assert first.queue == MessageQueue("orders", "broker-a", 2)
    assert first.status is SendStatus.OK
    assert (first.transaction_id, first.recall_handle) == (None, None)


def test_an_inner_batch_has_one_id_for_all() -> None:
    assert [each.offset_message_id for each in read(answer(msgId="M0"), 3)] == ["M0"] * 3


def test_what_else_the_broker_says_is_kept() -> None:
    (receipt,) = read(answer(msgId="M0", transactionId="T", recallHandle="R"), 1)
    assert (receipt.transaction_id, receipt.recall_handle) == ("T", "R")


@pytest.mark.parametrize("code", sorted(SENT_CODES))
def test_every_code_of_a_stored_message_is_a_status(code: int) -> None:
    assert read(answer(code))[0].status == code


@pytest.mark.parametrize(
    "changes", [{"queueId": "none"}, {"queueOffset": "x"}, {"msgId": "none"}, {"queueId": ""}]
)
def test_an_answer_that_cannot_be_read_says_that_the_message_is_stored(
    changes: dict[str, str],
) -> None:
    with pytest.raises(MalformedAnswerError, match="h:1 stored the message, but its answer"):
        read(answer(0, **changes))


def test_an_answer_without_any_field_cannot_be_read_either() -> None:
    with pytest.raises(MalformedAnswerError):
        read(Command(0, 1))
