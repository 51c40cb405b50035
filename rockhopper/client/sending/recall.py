"""Recall of a delayed message before its delivery, by the handle in its receipt.

A handle is URL-safe base64 of "v1 <topic> <broker name> <delivery time, ms> <message id>".
"""

import base64
import binascii

from rockhopper.client.errors import MessageRejectedError
from rockhopper.client.receipts import SendReceipt
from rockhopper.protocol.names import topic_error


def read_topic_and_handle(recalled: SendReceipt | tuple[str, str]) -> tuple[str, str]:
    """Return the topic and the handle of the message to recall.

    Raises MessageRejectedError, TypeError.
    """
    if isinstance(recalled, tuple | list) and list(map(type, recalled)) == [str, str]:
        topic, handle = recalled
        if reason := topic_error(topic):
            raise MessageRejectedError(reason)
        return topic, handle
    if not isinstance(recalled, SendReceipt):
        raise TypeError(
            f"recalled is {recalled!r}: it must be a SendReceipt, or a topic and a recall handle"
        )
    if recalled.recall_handle is None:
        raise MessageRejectedError(
            f"message {recalled.message_id} cannot be recalled: only messages with delay_s, "
            "deliver_at_ms or deliver_at can, at brokers that support it"
        )
    return recalled.queue.topic, recalled.recall_handle


def read_broker_of_handle(handle: str) -> str:
    """Return the name of the broker that stores the message. Raises MessageRejectedError."""
    try:
        fields = base64.urlsafe_b64decode(handle.encode()).decode().split(" ")
    except (binascii.Error, ValueError):
        fields = []
    if len(fields) != 5 or fields[0] != "v1":
        raise MessageRejectedError(f"{handle[:80]!r} is not a recall handle of this version")
    return fields[2]
