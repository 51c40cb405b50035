"""Check that a record really starts at an offset of the commit log, wherever that offset came from.

A body may hold the image of a record, even with the offset at which it happens to be, and so may
pass every check of its own bytes. But no body can be where the log has a record. That is checked in
two ways:

- The entry of the record's own topic, queue and queue offset points at it. This confirms nearly
  all.
- Records in no queue (their topic was deleted, or they are not dispatched yet, or prepared) are
  reached, by the stated sizes, from a confirmed record before them; from the start of the file; or
  from the offset up to which records are dispatched.

The search backwards is limited; beyond the limit, a record in no queue is not returned.
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
        """*dispatched* returns up to where records are in their queues.

        That offset is the start or the end of a record.
        """
        self._log = log
        self._queues = queues
        self._dispatched = dispatched

    def record(self, log_offset: int) -> tuple[bytes, RecordCheck] | None:
        """Return the record that starts at *log_offset*, its body unchecked; None if none does."""
        found = self.claimed(log_offset)
        if found is None or not (self.is_noted(found[1]) or self.is_reached(log_offset)):
            return None
        return found

    def claimed(self, log_offset: int) -> tuple[bytes, RecordCheck] | None:
        """Return the bytes at *log_offset* if they claim to be the record there, else None."""
        record = self._log.record_at(log_offset) if log_offset >= 0 else b""
        if not record:
            return None
        check = check_record(record, 0, len(record), log_offset, False)
        return (record, check) if check.is_ok else None

    def is_noted(self, check: RecordCheck) -> bool:
        """Return whether the entry of a record's own place points at it."""
        queue = self._queues.get(check.topic, check.queue_id)
        unit = None if queue is None else queue.noted(check.queue_offset)
        return unit is not None and unit[:2] == (check.commit_log_offset, check.size_bytes)

    def is_reached(self, log_offset: int) -> bool:
        """Return whether consecutive records lead from a confirmed one to *log_offset*."""
        at = self._proven_in_front(log_offset)
        for _ in range(STEPS_MAX):
            if at is None or at >= log_offset:
                break
            at = self.end_of(at)
        return at == log_offset

    def end_of(self, log_offset: int) -> int | None:
        """Return where the record at *log_offset* ends, by its stated size; None without one."""
        head = self._log.read(log_offset, log_offset + _HEAD.size)
        if len(head) < _HEAD.size:
            return None
        size, magic, stated = _HEAD.unpack(head)
        is_record = stated == log_offset and magic in (MAGIC_V1, MAGIC_V2)
        return log_offset + size if is_record and size >= RECORD_SIZE_BYTES_MIN else None

    def _proven_in_front(self, log_offset: int) -> int | None:
        """Return a confirmed start of a record at or shortly before *log_offset*, or None."""
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
        """Return the next confirmed start of a record in the same file; None if none is near."""
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
