"""DueTimers: the pending messages of slots that are due now or within minutes.

They are in buckets of one millisecond, in order of arrival, 20 packed bytes each. A minute with a
million messages takes some tens of megabytes, and only the milliseconds that occur are sorted.
"""

import heapq
import struct
from collections.abc import Iterable
from typing import NamedTuple

_PACKED = struct.Struct(">qqi")
_OFFSET = struct.Struct(">q")
_SIZE_BYTES = _PACKED.size


class DueMessage(NamedTuple):
    """One pending message: its due time, its queue offset, and the place of its record."""

    due_ms: int
    queue_offset: int
    log_offset: int
    size_bytes: int


class DueTimers:
    """Messages by due time."""

    __slots__ = ("_buckets", "_times_ms", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, bytearray] = {}
        self._times_ms: list[int] = []
        self.count = 0

    def insert(self, due_ms: int, queue_offset: int, log_offset: int, size_bytes: int) -> None:
        """Add a message after those with the same time."""
        bucket = self._buckets.get(due_ms)
        if bucket is None:
            bucket = self._buckets[due_ms] = bytearray()
            heapq.heappush(self._times_ms, due_ms)
        bucket += _PACKED.pack(queue_offset, log_offset, size_bytes)
        self.count += 1

    @property
    def next_ms(self) -> int | None:
        """When the first message is due; None if there is none."""
        return self._times_ms[0] if self._times_ms else None

    def take(self, now_ms: int, count_max: int, size_bytes_max: int) -> list[DueMessage]:
        """Remove and return the messages due at *now_ms*, in order.

        Return at least one, whatever the limits.
        """
        taken: list[DueMessage] = []
        size_all = 0
        times_ms, buckets = self._times_ms, self._buckets
        while times_ms and times_ms[0] <= now_ms:
            due_ms = times_ms[0]
            bucket = buckets[due_ms]
            used = 0
            for start in range(0, len(bucket), _SIZE_BYTES):
                queue_offset, log_offset, size_bytes = _PACKED.unpack_from(bucket, start)
                size_all += size_bytes
                if taken and (len(taken) >= count_max or size_all > size_bytes_max):
                    break
                taken.append(DueMessage(due_ms, queue_offset, log_offset, size_bytes))
                used = start + _SIZE_BYTES
            if used < len(bucket):
                del bucket[:used]
                break
            del buckets[due_ms]
            heapq.heappop(times_ms)
        self.count -= len(taken)
        return taken

    def put_back(self, messages: Iterable[DueMessage]) -> None:
        """Put messages that could not be delivered back to the front."""
        fronts: dict[int, bytearray] = {}
        for due_ms, queue_offset, log_offset, size_bytes in messages:
            fronts.setdefault(due_ms, bytearray()).extend(
                _PACKED.pack(queue_offset, log_offset, size_bytes)
            )
            self.count += 1
        for due_ms, front in fronts.items():
            bucket = self._buckets.get(due_ms)
            if bucket is None:
                heapq.heappush(self._times_ms, due_ms)
                self._buckets[due_ms] = front
            else:
                bucket[:0] = front

    def holds(self, due_ms: int, queue_offset: int) -> bool:
        """Return whether a message is still pending."""
        bucket = self._buckets.get(due_ms, b"")
        key = _OFFSET.pack(queue_offset)
        at = bucket.find(key)
        while at >= 0:
            if at % _SIZE_BYTES == 0:
                return True
            at = bucket.find(key, at + 1)
        return False
