"""Whether a record starts at an offset of the commit log, whoever names that offset.

A body may hold the image of a record, down to the offset at which it happens to stand, and so may
pass every check of its own bytes. What no body can do is to stand where the log has a record:

- the entry of the record's own topic, queue and queue offset points at it. That answers for
  nearly all.
- Records in no queue (their topic was deleted, they are half dispatched or prepared) are reached
  from a record in front of them that is proven, from size to size; from the start of the file; or
  from where dispatch stands.

How far back that is looked for is bounded; beyond that, a record in no queue is not shown.
"""

from collections.abc import Callable

from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.protocol.store.message_codec import RecordCheck, check_record
from rockhopper.protocol.store.record_head import (
    MAGIC_AT,
    MAGIC_START,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
    head_struct,
)

# Each takes some microseconds of the event loop.
CANDIDATES_MAX = 1000
STEPS_MAX = 20_000

_HEAD = head_struct("size_bytes", "magic", "log_offset")


class RecordPlaces:
    """Where the records of one commit log start. Belongs to the event loop's thread."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueueTable, dispatched: Callable[[], int]
    ) -> None:
        """*dispatched* tells up to where records are in their queues: where one starts, or ends."""
        self._log = log
        self._queues = queues
        self._dispatched = dispatched

    def record(self, log_offset: int) -> tuple[bytes, RecordCheck] | None:
        """The record that starts at *log_offset*, its body unchecked; None where none does."""
        found = self.claimed(log_offset)
        if found is None or not (self.is_noted(found[1]) or self.is_reached(log_offset)):
            return None
        return found

    def claimed(self, log_offset: int) -> tuple[bytes, RecordCheck] | None:
        """What says of itself that it is a record and stands at *log_offset*."""
        record = self._log.record_at(log_offset) if log_offset >= 0 else b""
        if not record:
            return None
        check = check_record(record, 0, len(record), log_offset, False)
        return (record, check) if check.is_ok else None

    def is_noted(self, check: RecordCheck) -> bool:
        """Whether the entry of a record's own place points at it."""
        queue = self._queues.get(check.topic, check.queue_id)
        unit = None if queue is None else queue.noted(check.queue_offset)
        return unit is not None and unit[:2] == (check.commit_log_offset, check.size_bytes)

    def is_reached(self, log_offset: int) -> bool:
        """Whether records, one behind the other, lead from a proven one to *log_offset*."""
        at = self._proven_in_front(log_offset)
        for _ in range(STEPS_MAX):
            if at is None or at >= log_offset:
                break
            at = self.end_of(at)
        return at == log_offset

    def end_of(self, log_offset: int) -> int | None:
        """Where what starts at *log_offset* ends by its own word; None if it is no record."""
        head = self._log.read(log_offset, log_offset + _HEAD.size)
        if len(head) < _HEAD.size:
            return None
        size, magic, stated = _HEAD.unpack(head)
        is_record = stated == log_offset and magic in (MAGIC_V1, MAGIC_V2)
        return log_offset + size if is_record and size >= RECORD_SIZE_BYTES_MIN else None

    def _proven_in_front(self, log_offset: int) -> int | None:
        """Where a record starts for sure, at or in front of *log_offset* and near it."""
        stretch = self._log.mapped(log_offset)
        if stretch is None:
            return None
        mapping, base, _ = stretch
        dispatched = self._dispatched()
        if base <= dispatched <= log_offset:
            return dispatched
        stop = log_offset - base
        for _ in range(CANDIDATES_MAX):
            at = mapping.rfind(MAGIC_START, MAGIC_AT, stop + 3)
            if at < 8:
                return base
            stop = at - MAGIC_AT
            found = self.claimed(base + stop)
            if found is not None and self.is_noted(found[1]):
                return base + stop
        return None

    def proven_behind(self, log_offset: int) -> int | None:
        """Where the next record starts for sure, in the same file; None if none is near."""
        stretch = self._log.mapped(log_offset)
        if stretch is None:
            return None
        mapping, base, end = stretch
        at = mapping.find(MAGIC_START, log_offset + 1 - base + MAGIC_AT, end - base)
        for _ in range(CANDIDATES_MAX):
            if at < 0:
                break
            found = self.claimed(base + at - MAGIC_AT)
            if found is not None and self.is_noted(found[1]):
                return base + at - MAGIC_AT
            at = mapping.find(MAGIC_START, at + 1, end - base)
        return None
