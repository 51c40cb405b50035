"""Receipt handles: a consumer gets one with a message and returns it to acknowledge the message.

    ckOffset popTime invisibleTime reviveQid retryFlag brokerName queueId queueOffset logOffset

The parts are separated by blanks, as in RocketMQ's ReceiptHandle: the extra info of a pop and the
position of the record. So handles survive restarts, and are valid over either protocol.
"""

from typing import NamedTuple

_PARTS = 8
_LENGTH_MAX = 1024


class ReceiptHandle(NamedTuple):
    """The parts of a handle."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry_flag: str
    broker_name: str
    queue_id: int
    queue_offset: int
    log_offset: int
    """−1 if the handle does not contain it."""

    def __str__(self) -> str:
        start, pop_ms, invisible_ms, revive, flag, broker, queue_id, offset, log_offset = self
        return (
            f"{start} {pop_ms} {invisible_ms} {revive} {flag} {broker} {queue_id} {offset} "
            f"{log_offset}"
        )

    @property
    def visible_ms(self) -> int:
        """When the message becomes visible again without an acknowledgement."""
        return self.pop_ms + self.invisible_ms


def parse_receipt_handle(text: str) -> ReceiptHandle:
    """Parse a handle. Raises ValueError."""
    parts = text.split(" ") if len(text) <= _LENGTH_MAX else []
    if not _PARTS <= len(parts) <= _PARTS + 1:
        raise ValueError(f"{text[:100]!r} is not a receipt handle: it has {len(parts)} parts")
    try:
        start, pop_ms, invisible_ms, revive = map(int, parts[:4])
        queue_id, queue_offset = int(parts[6]), int(parts[7])
        log_offset = int(parts[8]) if len(parts) > _PARTS else -1
    except ValueError:
        raise ValueError(
            f"{text[:100]!r} is not a receipt handle: a part is not a number"
        ) from None
    return ReceiptHandle(
        start, pop_ms, invisible_ms, revive, parts[4], parts[5], queue_id, queue_offset, log_offset
    )
