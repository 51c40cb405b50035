"""The result of reading a queue."""

from enum import Enum


class GetStatus(Enum):
    """RocketMQ's GetMessageStatus; the names are remarks of pull responses."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class GetResult:
    """Messages of one queue, and the offset of the next read.

    ``body`` holds ``count`` stored records back to back. ``next_offset`` is the queue offset after
    the last examined message, including filtered ones. ``suggested_broker_id`` is the replica to
    read next, 0 for the master.
    """

    __slots__ = (
        "body",
        "count",
        "max_offset",
        "min_offset",
        "next_offset",
        "status",
        "suggested_broker_id",
    )

    def __init__(
        self,
        status: GetStatus,
        next_offset: int,
        min_offset: int,
        max_offset: int,
        body: bytes = b"",
        count: int = 0,
    ) -> None:
        self.status = status
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.body = body
        self.count = count
        self.suggested_broker_id = 0
