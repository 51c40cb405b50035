"""The recall handle: what the answer to a timer message carries, and RECALL_MESSAGE brings back.

URL-safe base64 of ``v1 <topic> <broker name> <due ms> <unique key>``.
"""

import base64
import binascii
from typing import NamedTuple

_VERSION = "v1"
_FIELD_COUNT = 5


class RecallHandle(NamedTuple):
    """Which timer message is meant; ``due_ms`` is its TIMER_OUT_MS plus 1."""

    topic: str
    broker_name: str
    due_ms: int
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """The handle as a client gets it."""
    topic, broker_name, due_ms, unique_key = handle
    text = f"{_VERSION} {topic} {broker_name} {due_ms} {unique_key}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """The handle that a client brought.

    Raises:
        ValueError: it is none; the message says why.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        decoded = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ValueError("it is no URL-safe base64") from None
    fields = decoded.split(" ")
    if fields[0] != _VERSION or len(fields) != _FIELD_COUNT:
        raise ValueError(f"it does not hold {_VERSION} and four more words")
    _, topic, broker_name, due, unique_key = fields
    if not (due.isascii() and due.isdecimal() and len(due) < 19):
        raise ValueError("its time is no number")
    return RecallHandle(topic, broker_name, int(due), unique_key)
