"""The recall handle: part of the answer to a timed message, and the input of RECALL_MESSAGE.

URL-safe base64 of ``v1 <topic> <broker name> <due ms> <unique key>``.
"""

import base64
import binascii
from typing import NamedTuple

_VERSION = "v1"
_FIELD_COUNT = 5


class RecallHandle(NamedTuple):
    """Identifies a timed message; ``due_ms`` is its TIMER_OUT_MS plus 1."""

    topic: str
    broker_name: str
    due_ms: int
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Encode a handle for a client."""
    topic, broker_name, due_ms, unique_key = handle
    text = f"{_VERSION} {topic} {broker_name} {due_ms} {unique_key}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a client's handle.

    Raises:
        ValueError: it is invalid; the message gives the reason.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        decoded = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ValueError("it is not URL-safe base64") from None
    fields = decoded.split(" ")
    if fields[0] != _VERSION or len(fields) != _FIELD_COUNT:
        raise ValueError(f"it does not contain {_VERSION} and four more words")
    _, topic, broker_name, due, unique_key = fields
    if not (due.isascii() and due.isdecimal() and len(due) < 19):
        raise ValueError("its time is not a number")
    return RecallHandle(topic, broker_name, int(due), unique_key)
