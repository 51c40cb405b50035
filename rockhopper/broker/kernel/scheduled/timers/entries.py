"""The entries of timed messages in the index.

An entry of a slot file has 40 bytes, big-endian, in the order of queue offsets:

    offset  size  field
         0     8  due time, ms
         8     8  commit log offset of the record
        16     4  size of the record
        20     4  kind: 0 a pending message, 1 a recall
        24     8  queue offset of the record in rmq_sys_wheel_timer
        32     8  kind 0: hash of real topic and unique key; 1: queue offset of the recalled message

A recall is in the slot of the message that it recalls, behind it.
"""

import hashlib
import struct
from typing import NamedTuple

ENTRY = struct.Struct(">qqiIqQ")
ENTRY_SIZE_BYTES = ENTRY.size
KIND_MESSAGE, KIND_WITHDRAWAL = 0, 1
# The positions of the last byte of the kind, and of the last field.
KIND_AT = 23
LAST_FIELD_AT = 32

SLOT_MS = 60_000


class TimerEntry(NamedTuple):
    """One entry; ``mark`` is the last field."""

    due_ms: int
    log_offset: int
    size_bytes: int
    kind: int
    queue_offset: int
    mark: int

    @property
    def slot(self) -> int:
        """The entry's slot."""
        return self.due_ms // SLOT_MS


def key_hash(topic: str, unique_key: str) -> int:
    """Return the hash by which a recall searches; the record itself decides."""
    key = f"{topic}+{unique_key}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
