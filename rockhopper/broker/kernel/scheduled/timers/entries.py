"""What the index keeps of a timer message.

An entry of a slot file, 40 bytes, big-endian, in the order of queue offsets:

    offset  size  field
         0     8  when it is due, ms
         8     8  commit log offset of the record
        16     4  size of the record
        20     4  kind: 0 a pending message, 1 one that is withdrawn
        24     8  queue offset of the record in rmq_sys_wheel_timer
        32     8  kind 0: hash of real topic and unique key; 1: queue offset of what it withdraws

A withdrawal stands in the slot of the message that it withdraws, behind it.
"""

import hashlib
import struct
from typing import NamedTuple

ENTRY = struct.Struct(">qqiIqQ")
ENTRY_SIZE_BYTES = ENTRY.size
KIND_MESSAGE, KIND_WITHDRAWAL = 0, 1
# Where the last byte of the kind is, and where the last field begins.
KIND_AT = 23
LAST_FIELD_AT = 32

SLOT_MS = 60_000


class Entry(NamedTuple):
    """One entry; ``mark`` is the last field."""

    due_ms: int
    log_offset: int
    size_bytes: int
    kind: int
    queue_offset: int
    mark: int

    @property
    def slot(self) -> int:
        """The slot that it belongs to."""
        return self.due_ms // SLOT_MS


def key_hash(topic: str, unique_key: str) -> int:
    """What a recall looks for; the record itself decides."""
    key = f"{topic}+{unique_key}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
