"""Receipts: the results of sends."""

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from rockhopper.client.errors import ClientError, MalformedAnswerError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.outgoing import OutgoingMessage, list_message_ids
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command


class SendStatus(IntEnum):
    """How safely a message is stored; the values are response codes."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    """Stored, but not flushed to disk within the broker's timeout (SYNC_FLUSH)."""
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


SENT_CODES = frozenset(int(status) for status in SendStatus)


class SendReceipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message is stored."""

    message_id: str
    """The producer's id, which stays the same through retries (UNIQ_KEY)."""
    offset_message_id: str
    """The broker's id: its address and the position in its commit log."""
    queue: MessageQueue
    queue_offset: int
    status: SendStatus = SendStatus.OK
    transaction_id: str | None = None
    recall_handle: str | None = None
    """Cancels the delivery of a delayed message; see Producer.recall."""


class NotAllSentError(ClientError):
    """Some messages of a `send_many` failed; the others are stored.

    `outcomes` has a SendReceipt or an error for each message, in order.
    """

    def __init__(self, outcomes: Sequence[SendReceipt | Exception]) -> None:
        self.outcomes = list(outcomes)
        failures = self.failures
        first = next(iter(failures), None)
        about = "" if first is None else f"; the first is number {first}: {failures[first]}"
        super().__init__(
            f"{len(failures):,} of {len(self.outcomes):,} messages failed{about}",
            remedy="`failures` has the error of each",
        )

    @property
    def failures(self) -> dict[int, Exception]:
        """The errors, by the number of their message in the call, from 0 on."""
        return {
            number: outcome
            for number, outcome in enumerate(self.outcomes)
            if isinstance(outcome, Exception)
        }


_STATUSES = {int(status): status for status in SendStatus}


def read_receipts(
    answer: Command, messages: Sequence[OutgoingMessage], queue: MessageQueue, address: str
) -> list[SendReceipt]:
    """Turn the answer to a send, or to a batch, into one receipt per message."""
    ext = answer.ext or {}
    try:
        queue_id = int(ext["queueId"])
        first_offset = int(ext["queueOffset"])
        offset_id = ext["msgId"]
    except (KeyError, ValueError) as error:
        raise MalformedAnswerError(
            f"{address} stored the message, but its answer to {RequestCode.SEND_MESSAGE_V2.name} "
            f"is invalid ({error!r})",
            address=address,
        ) from error
    status = _STATUSES[answer.code]
    transaction_id = ext.get("transactionId")
    recall_handle = ext.get("recallHandle")
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    if len(messages) == 1:
        if "," in offset_id:
            offset_id = offset_id.partition(",")[0]
        return [
            SendReceipt(
                messages[0].message_id,
                offset_id,
                queue,
                first_offset,
                status,
                transaction_id,
                recall_handle,
            )
        ]
    ids = list_message_ids(messages)
    offset_ids = offset_id.split(",")
    if len(offset_ids) != len(ids):
        # An inner batch (topic of type BatchCQ) is one record and has one id.
        offset_ids = [offset_ids[0]] * len(ids)
    return [
        SendReceipt(
            message_id, offset_id, queue, queue_offset, status, transaction_id, recall_handle
        )
        for message_id, offset_id, queue_offset in zip(
            ids, offset_ids, range(first_offset, first_offset + len(ids)), strict=True
        )
    ]
