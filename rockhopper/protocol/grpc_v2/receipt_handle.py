"""What a consumer gets with a message, and gives back to acknowledge it.

    ckOffset popTime invisibleTime reviveQid retryFlag brokerName queueId queueOffset logOffset

separated by blanks, as RocketMQ's ReceiptHandle has it: the extra info of a pop and the place of
the record. So handles outlive restarts, and hold whichever protocol they are given back by.
"""

from typing import NamedTuple

_PARTS = 8
_LENGTH_MAX = 1024


class ReceiptHandle(NamedTuple):
    """A handle, taken apart."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry_flag: str
    broker_name: str
    queue_id: int
    queue_offset: int
    log_offset: int
    """−1 in a handle that does not say."""

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @property
    def visible_ms(self) -> int:
        """When the message comes back if nothing is said of it."""
        return self.pop_ms + self.invisible_ms


def parse_receipt_handle(text: str) -> ReceiptHandle:
    """The handle in *text*. Raises ValueError."""
    parts = text.split(" ") if len(text) <= _LENGTH_MAX else []
    if not _PARTS <= len(parts) <= _PARTS + 1:
        raise ValueError(f"{text[:100]!r} is no receipt handle: it has {len(parts)} parts")
    try:
        start, pop_ms, invisible_ms, revive = map(int, parts[:4])
        queue_id, queue_offset = int(parts[6]), int(parts[7])
        log_offset = int(parts[8]) if len(parts) > _PARTS else -1
    except ValueError:
        raise ValueError(f"{text[:100]!r} is no receipt handle: a part is no number") from None
    return ReceiptHandle(
        start, pop_ms, invisible_ms, revive, parts[4], parts[5], queue_id, queue_offset, log_offset
    )
