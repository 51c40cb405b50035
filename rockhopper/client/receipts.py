"""Receipts: the results of sends."""

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from rockhopper.client.errors import MalformedAnswerError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.outgoing import OutgoingMessage
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


_STATUSES = {int(status): status for status in SendStatus}


def read_receipts(
    answer: Command, messages: Sequence[OutgoingMessage], queue: MessageQueue, address: str
) -> list[SendReceipt]:
    """Turn the answer to a send, or to a batch, into one receipt per message."""
    ext = answer.ext or {}
    try:
        queue_id = int(ext["queueId"])
        first_offset = int(ext["queueOffset"])
        offset_ids = ext["msgId"].split(",")
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
        message_id = messages[0].message_id
        return [
            SendReceipt(
                message_id,
                offset_ids[0],
                queue,
                first_offset,
                status,
                transaction_id,
                recall_handle,
            )
        ]
    if len(offset_ids) != len(messages):
        # An inner batch (topic of type BatchCQ) is one record and has one id.
        offset_ids = [offset_ids[0]] * len(messages)
    return [
        SendReceipt(
            message.message_id,
            offset_id,
            queue,
            first_offset + index,
            status,
            transaction_id,
            recall_handle,
        )
        for index, (message, offset_id) in enumerate(zip(messages, offset_ids, strict=True))
    ]
