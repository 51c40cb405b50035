"""Transaction ids: a producer gets one with a half message and returns it to end the transaction.

    uniqueKey.halfQueueOffset.commitLogOffset        the offsets in hex

RocketMQ's proxy stores the two offsets in memory for 30 s. In the id they survive restarts.
"""

import re
from typing import NamedTuple

_split = re.compile(r"(.{1,200})\.([0-9a-f]{1,15})\.([0-9a-f]{1,15})", re.ASCII).fullmatch


class TransactionId(NamedTuple):
    """The parts of an id."""

    unique_key: str
    half_offset: int
    log_offset: int

    def __str__(self) -> str:
        return f"{self.unique_key}.{self.half_offset:x}.{self.log_offset:x}"


def parse_transaction_id(text: str) -> TransactionId:
    """Parse an id. Raises ValueError."""
    parts = _split(text)
    if parts is None:
        raise ValueError(f"{text[:100]!r} is not a transaction id of this broker")
    return TransactionId(parts[1], int(parts[2], 16), int(parts[3], 16))
