"""Arguments and results of storing single messages."""

from collections.abc import Callable
from typing import NamedTuple

from rockhopper.protocol.message import StoredMessage

# Topic, queue and properties (changed in place) of a message -> its final topic and queue.
Redirect = Callable[[str, int, dict[str, str]], tuple[str, int]]


class PutResult(NamedTuple):
    """The place of a message; once the log is flushed up to ``end_offset``, it is durable."""

    commit_log_offset: int
    queue_offset: int
    end_offset: int
    store_time_ms: int


class Copy(NamedTuple):
    """A stored message to be stored again elsewhere, with its original birth time and host."""

    topic: str
    queue_id: int
    message: StoredMessage
    properties: dict[str, str]
    sys_flag: int | None = None
    """None: the message's."""
    reconsume_times: int | None = None
    """None: the message's."""
    prepared_offset: int = 0


class MessageToStore(NamedTuple):
    """One message as ``put`` accepts it; *born_host* is 8 or 20 bytes as in the record."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    flag: int = 0
    sys_flag: int = 0
    born_time_ms: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
