"""Whether a queue entry and its record agree, where records start, and the repair of an entry.

An entry and the head of its record describe each other. If they disagree, one of them is damaged.

The entry is right and the head is damaged in two cases: the records before and after the entry's
range show that it is the range of a record; or the head states this range and place, but names a
message whose entry is elsewhere or missing. Then the message is lost.

Otherwise the entry is wrong. Its record is searched at each offset that differs in one bit, then by
a walk of the log from the nearest sound entry before it to the nearest one after.

In a queue with few writes, these neighbours are far apart in the log. So a walk takes one slice at
a time; each read of the message, and the scrub (scrubbing.py), continues it.

``RecordPlaces`` checks that a record really starts at an offset, wherever that offset came from. A
body may hold the image of a record, even with the offset at which it happens to be, and so may pass
every check of its own bytes. But no body can be where the log has a record. That is checked in two
ways:

- The entry of the record's own topic, queue and queue offset points at it. This confirms nearly
  all.
- Records in no queue (their topic was deleted, or they are not dispatched yet, or prepared) are
  reached, by the stated sizes, from a confirmed record before them; from the start of the file; or
  from the offset up to which records are dispatched.

The search backwards is limited; beyond the limit, a record in no queue is not returned.
"""

from collections.abc import Callable
from typing import Protocol

import structlog

from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.queues.consume_queue_ext import is_address
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.store.compare import Verdict, compare_unit
from rockhopper.protocol.store.expected import DelayOf, ExpectedUnit, Record, expect_units
from rockhopper.protocol.store.light_queues import light_places
from rockhopper.protocol.store.message_codec import RecordCheck, check_record
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_START,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
    head_struct,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_PREPARED

log = structlog.get_logger("broker.store")

STEPS_PER_SLICE = 2000
# Of records that must be read whole.
BYTES_PER_STEP = 4096
ENTRIES_NEAR = 40
NEIGHBOURS_MAX = 512
_OFFSET_BITS = 48
_OWNER = head_struct("queue_id", "queue_offset")

Extent = tuple[int, int]
Key = tuple[str, int, int]
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
        found = self.read_claimed(log_offset)
        if found is None or not (self.is_noted(found[1]) or self.is_reached(log_offset)):
            return None
        return found

    def read_claimed(self, log_offset: int) -> tuple[bytes, RecordCheck] | None:
        """Return the bytes at *log_offset* if they claim to be the record there, else None."""
        record = self._log.record_at(log_offset) if log_offset >= 0 else b""
        if not record:
            return None
        check = check_record(record, 0, len(record), log_offset, False)
        return (record, check) if check.is_ok else None

    def is_noted(self, check: RecordCheck) -> bool:
        """Return whether the entry of a record's own place points at it."""
        queue = self._queues.get(check.topic, check.queue_id)
        unit = None if queue is None else queue.read_noted(check.queue_offset)
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
        stretch = self._log.find_mapping(log_offset)
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
            found = self.read_claimed(base + stop)
            if found is not None and self.is_noted(found[1]):
                return base + stop
        return None

    def proven_behind(self, log_offset: int) -> int | None:
        """Return the next confirmed start of a record in the same file; None if none is near."""
        stretch = self._log.find_mapping(log_offset)
        if stretch is None:
            return None
        mapping, base, end = stretch
        at = mapping.find(MAGIC_START, log_offset + 1 - base + MAGIC_AT, end - base)
        for _ in range(CANDIDATES_MAX):
            if at < 0:
                break
            found = self.read_claimed(base + at - MAGIC_AT)
            if found is not None and self.is_noted(found[1]):
                return base + at - MAGIC_AT
            at = mapping.find(MAGIC_START, at + 1, end - base)
        return None


class Flag(Protocol):
    """An event of the loop, as far as a search needs it."""

    def set(self) -> None:
        """Set it."""


class _EntrySearch:
    """One walk: its target, its position, and where it ends without success."""

    __slots__ = ("at", "offset", "queue", "stop")

    def __init__(self, queue: UnitQueue, offset: int, at: int, stop: int) -> None:
        self.queue = queue
        self.offset = offset
        self.at = at
        self.stop = stop


class EntryRepair:
    """Judges entries that their records contradict. Belongs to the event loop's thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        places: RecordPlaces,
        delay_ms: DelayOf,
        long_search: Flag,
    ) -> None:
        """A long search sets *long_search*."""
        self._log = commit_log
        self._places = places
        self._delay_ms = delay_ms
        self._searches: dict[Key, _EntrySearch] = {}
        self._lost: set[Key] = set()
        self.mended_count = 0
        """Entries repaired since the start."""
        self._long_search = long_search

    def right_place(
        self, queue: UnitQueue, offset: int, log_offset: int, size: int
    ) -> Extent | str | None:
        """Return offset and size of a message's record, whose entry has *log_offset* and *size*.

        Returns a sentence if the message is lost; None while the search goes on.
        """
        found = self._places.read_claimed(log_offset)
        if found is not None and found[1].size_bytes == size:
            if is_of(found[1], queue, offset):
                return log_offset, size
            if not self._places.is_noted(found[1]):
                return (
                    f"its head names message {found[1].queue_offset} of queue "
                    f"{found[1].queue_id} of topic {found[1].topic}"
                )
        elif found is None and self._is_range_of_a_record(log_offset, size):
            return "its head is damaged"
        if found is not None and self._is_proven(found[1], queue, offset):
            return self._mend(queue, offset, found[1])
        return self._search(queue, offset, log_offset)

    def _is_range_of_a_record(self, log_offset: int, size: int) -> bool:
        end = log_offset + size
        is_border = (
            end == self._log.written_offset
            or self._is_file_end(end)
            or self._places.read_claimed(end) is not None
        )
        return is_border and self._places.is_reached(log_offset)

    def _is_file_end(self, offset: int) -> bool:
        head = self._log.read(offset, offset + BLANK_RECORD.size)
        return len(head) < BLANK_RECORD.size or BLANK_RECORD.unpack(head)[1] == MAGIC_BLANK

    # Searching.

    def _search(self, queue: UnitQueue, offset: int, log_offset: int) -> Extent | str | None:
        key = (queue.topic, queue.queue_id, offset)
        if key in self._lost:
            return _LOST
        search = self._searches.get(key)
        if search is None:
            search = _EntrySearch(queue, offset, *self._bounds(queue, offset))
            near = self._find_near(search, log_offset)
            if near is not None:
                return self._mend(queue, offset, near)
            self._searches[key] = search
        return self._go_on(key, search)

    @property
    def is_searching(self) -> bool:
        """Whether any search is left."""
        return bool(self._searches)

    def go_on(self) -> tuple[UnitQueue, int] | None:
        """Advance the oldest search by a slice.

        If it has ended, return the queue and the tags code of its message.
        """
        for key, search in self._searches.items():
            self._go_on(key, search)
            if key in self._searches:
                break
            unit = search.queue.read_noted(search.offset)
            return search.queue, unit[2] if unit is not None else 0
        return None

    def _go_on(self, key: Key, search: _EntrySearch) -> Extent | str | None:
        check = self._walk(search)
        if check is not None:
            del self._searches[key]
            return self._mend(search.queue, search.offset, check)
        if search.at < search.stop:
            self._long_search.set()
            return None
        del self._searches[key]
        self._lost.add(key)
        return _LOST

    def _bounds(self, queue: UnitQueue, offset: int) -> tuple[int, int]:
        """Return the range of the log that holds a message, by neighbours with sound entries."""
        low, high = self._log.min_offset, self._log.written_offset
        before, behind = queue.around(offset, NEIGHBOURS_MAX)
        for number, unit in before:
            if self._is_sound(queue, number, unit):
                low = unit[0] + unit[1]
                break
        for number, unit in behind:
            if self._is_sound(queue, number, unit):
                high = unit[0]
                break
        return low, high

    def _is_sound(self, queue: UnitQueue, number: int, unit: tuple[int, ...]) -> bool:
        found = self._places.read_claimed(unit[0])
        return (
            found is not None and found[1].size_bytes == unit[1] and is_of(found[1], queue, number)
        )

    def _find_near(self, search: _EntrySearch, log_offset: int) -> RecordCheck | None:
        """Return the record at an offset that differs from *log_offset* in one bit, or None."""
        for bit in range(_OFFSET_BITS):
            at = log_offset ^ (1 << bit)
            found = self._places.read_claimed(at) if search.at <= at < search.stop else None
            if found is not None and self._is_proven(found[1], search.queue, search.offset):
                return found[1]
        return None

    def _is_proven(self, check: RecordCheck, queue: UnitQueue, offset: int) -> bool:
        """Return whether a record is the wanted message, and not an image of it in a body."""
        return is_of(check, queue, offset) and self._places.is_reached(check.commit_log_offset)

    def _walk(self, search: _EntrySearch) -> RecordCheck | None:
        """Step over records for one slice; return the wanted record if it is among them."""
        read = self._log.read
        queue, at = search.queue, search.at
        wanted = queue.queue_id, search.offset
        name = queue.topic.encode("utf-8", "surrogateescape")
        steps = STEPS_PER_SLICE
        while steps > 0 and at < search.stop:
            steps -= 1
            end = self._places.end_of(at)
            if end is None:
                at = self._find_next_start(at)
                continue
            if queue.is_light:
                # For a light queue, the number is in the properties, after the body.
                may_be_it = name in read(at, end)
                steps -= (end - at) // BYTES_PER_STEP
            else:
                may_be_it = _OWNER.unpack(read(at, at + _OWNER.size)) == wanted
            if may_be_it:
                found = self._places.read_claimed(at)
                if found is not None and is_of(found[1], queue, search.offset):
                    return found[1]
            at = end
        search.at = at
        return None

    def _find_next_start(self, at: int) -> int:
        """Return where to continue after bytes that are not a record."""
        behind = None if self._is_file_end(at) else self._places.proven_behind(at)
        return self._log.next_file_offset(at) if behind is None else behind

    def _mend(self, queue: UnitQueue, offset: int, check: RecordCheck) -> Extent:
        return self._rewrite(queue, offset, self._expect(queue, check))

    def _expect(self, queue: UnitQueue, check: RecordCheck) -> ExpectedUnit:
        """Return the unit that a record of *queue* expects there."""
        owner = queue.topic, queue.queue_id
        units = expect_units(check.record, is_batch=queue.IS_BATCH, delay_ms=self._delay_ms)
        return next(unit for unit in units if unit.place[:2] == owner)

    def _rewrite(self, queue: UnitQueue, offset: int, unit: ExpectedUnit) -> Extent:
        was = queue.read_stored(offset, unit.log_offset) or (0, 0, 0)
        if is_address(was[2]):
            unit = unit._replace(tags_code=was[2])
        queue.repair(offset, unit.fields(is_batch=queue.IS_BATCH))
        self.mended_count += 1
        log.warning(
            "a queue entry was wrong and has been repaired from the commit log",
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
            entry=was,
            commit_log_offset=unit.log_offset,
            size_bytes=unit.size_bytes,
        )
        return unit.log_offset, unit.size_bytes

    def compare(self, queue: UnitQueue, unit: ExpectedUnit) -> None:
        """Repair the entry that a verified record expects in *queue*, if it is wrong."""
        offset = unit.place.first_offset
        held = queue.read_stored(offset, unit.log_offset)
        if held is None or offset < queue.min_offset:
            return
        if compare_unit(unit, held, self._find_record, is_batch=queue.IS_BATCH) in _ACCEPTED:
            return
        # The entries of a delay level hold delivery times, computed with the levels of their time.
        if queue.topic == SCHEDULE_TOPIC:
            unit = unit._replace(tags_code=held[2])
        self._rewrite(queue, offset, unit)

    def _find_record(self, log_offset: int) -> Record | None:
        found = self._places.read_claimed(log_offset)
        return None if found is None else found[1].record

    def compare_near(self, queue: UnitQueue, offset: int) -> None:
        """Repair the entries at and next to message *offset*, which contradict each other."""
        before, behind = queue.around(offset, ENTRIES_NEAR)
        units = [unit for entries in (before, behind) for _, unit in entries]
        for unit in [*units, queue.read_noted(offset) or (-1,)]:
            found = self._places.record(unit[0])
            if found is not None and is_of(found[1], queue, found[1].queue_offset):
                self.compare(queue, self._expect(queue, found[1]))


# An extension unit is RocketMQ's, and due times are those of earlier delay levels.
_ACCEPTED = frozenset({Verdict.RIGHT, Verdict.EXTENDED, Verdict.DUE, Verdict.LEFTOVER})
_LOST = "its queue entry is damaged, and the log has no intact record for it"


def is_of(check: RecordCheck, queue: UnitQueue, offset: int) -> bool:
    """Return whether a record is message *offset* of *queue*."""
    if check.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
        return False
    place = check.queue_offset, check.queue_id, check.topic
    if place == (offset, queue.queue_id, queue.topic):
        return True
    return queue.is_light and (queue.topic, offset) in light_places(check.topic, check.properties)
