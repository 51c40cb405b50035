"""Make consume queues agree with the commit log, record by record.

The log is right whenever the two disagree, with one exception: a record whose head is damaged in a
way that its sizes and CRC do not show may name a wrong queue or offset. It is detected when the
unit of another message points to it.

For each record, in the order of the log, there are these cases:

- The queue has the unit: nothing to do.
- The queue ends right before it: the unit is appended.
- The queue ends earlier: the messages in between were lost to a hole in the log. Their offsets are
  never used again, so units that point into the hole take their place, and readers skip them. If
  the walk began too late to know this, the queue is scheduled for another walk from its end.
- The queue has another unit there: if both records claim the offset, the later one counts, unless
  it is a leftover from before (its store time is earlier). A unit whose record does not claim the
  offset is overwritten.

Example: the log has messages 0, 1 and 2 of a queue, at 0, 100 and 200. After a crash the queue has
only unit 0, and the record at 100 is destroyed. Record 0 matches; record 2 finds the queue at
offset 1, so a unit that points into the hole [100, 200) is appended for message 1, then the unit of
message 2. Readers get messages 0 and 2.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple

import structlog

from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import record_at
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.recovering.log_walk import Hole
from rockhopper.protocol.names import LMQ_PREFIX
from rockhopper.protocol.store.compare import Verdict, compare_unit
from rockhopper.protocol.store.expected import (
    LIGHT_QUEUES,
    DelayOf,
    ExpectedUnit,
    Place,
    Record,
    find_places,
    tags_code_of,
)
from rockhopper.protocol.store.message_codec import (
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_TRANSACTION_PREPARED,
)
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN
from rockhopper.protocol.store.walking import PlainRun

log = structlog.get_logger("broker.store")

_UNITS_AT_ONCE = 512
_RECORD_SIZE_BYTES_MAX = 2**31 - 2
# A queue in use holds a descriptor; there may be more queues than a process may have.
_QUEUES_OPEN_MAX = 256
# A search for a unit in all queues is expensive; with many leftovers it must not dominate.
_QUEUES_SEARCHED_MAX = 10_000
_UNNAMEABLE = frozenset("/\\\0")


class QueueRules(NamedTuple):
    """What recovery must know about topics."""

    is_batch_topic: Callable[[str], bool]
    is_deleted: Callable[[str, int], bool]
    """Whether a topic was deleted after the record at a commit log offset was written."""
    delay_ms: DelayOf
    has_gone: Callable[[str], bool]
    """Whether messages of a topic were deleted, or purged, that the log may still have."""
    handed_out: Callable[[], Mapping[QueueKey, int]] = dict
    """Queues, and the offsets up to which consumers received their messages."""


class _QueueProgress:
    """How far one queue has been compared with the log."""

    __slots__ = (
        "changed_count",
        "is_batch",
        "is_skipped",
        "may_be_deleted",
        "needs_care",
        "next_offset",
        "opened_in",
        "queue",
        "units",
    )

    def __init__(self, queue: UnitQueue | None, *, is_batch: bool, may_be_deleted: bool) -> None:
        self.queue = queue
        self.is_batch = is_batch
        self.is_skipped = False
        self.may_be_deleted = may_be_deleted
        # Whether queue offset and commit log offset are not enough to decide.
        self.needs_care = is_batch or may_be_deleted
        self.changed_count = 0
        self.opened_in = 0
        # The message of the next unit in ``units``; normally the log's next message of the queue.
        self.next_offset = -1
        self.units: Iterator[tuple[int, ...]] = iter(())


class QueueRepair:
    """One pass over the log, from *start* on, for all queues or for those of *only*."""

    def __init__(
        self,
        queues: ConsumeQueueTable,
        log_files: MappedFileQueue,
        rules: QueueRules,
        start: int,
        holes: list[Hole],
        *,
        only: frozenset[QueueKey] | None = None,
        is_known_hole: Callable[[int], bool] = lambda offset: False,
    ) -> None:
        """*holes* grows while the log is walked; records found damaged here are added to it.

        *is_known_hole* returns whether damage was found at an earlier start.
        """
        self._queues = queues
        self._log_files = log_files
        self._rules = rules
        self._start = start
        self._holes = holes
        self._only = only
        self._is_known_hole = is_known_hole
        self.may_lack_first_files: Set[QueueKey] = frozenset()
        """Queues that may lack their first files: records before the first file may not be expired.
        """
        self._by_name: dict[tuple[bytes, int], _QueueProgress] = {}
        self._units_end = queues.commit_log_end
        self._searches_left = 16 + _QUEUES_SEARCHED_MAX // (1 + queues.count)
        self._round = 1
        self._open_queues: list[UnitQueue] = []
        self.postponed: dict[QueueKey, int] = {}
        """Queues to walk again, and the commit log offset from which on."""
        self.filled: dict[QueueKey, int] = {}
        """How many lost messages of each queue got a unit that points into a hole."""

    def place(self, record: Record, *, is_damaged: bool = False) -> bool:
        """Compare one record with its queue; return False if it turns out to be damaged."""
        offset, size_bytes, queue_id, first_offset, sys_flag, _, topic, properties = record
        if sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
            return True  # Prepared or rolled back: in no queue, and without an offset in any.
        progress = self._by_name.get((topic, queue_id))
        if progress is None:
            progress = self._begin(record)
        if progress.is_skipped and LIGHT_QUEUES not in properties:
            return True
        if not progress.needs_care and LIGHT_QUEUES not in properties:
            # The two common cases, without anything that costs more.
            if first_offset == progress.next_offset:
                unit = next(progress.units, None)
                if unit is not None and unit[0] == offset and unit[1] == size_bytes:
                    progress.next_offset = first_offset + 1
                    return True
            queue = progress.queue
            if (
                queue is not None
                and first_offset == queue.max_offset
                and offset >= queue.commit_log_end >= 0
            ):
                self._append(progress, queue, record, first_offset, 1)
                return True
        place, *light_places = find_places(record, is_batch=progress.is_batch)
        if not (progress.is_skipped or self._is_deleted(progress, place, record)) and (
            not self._settle(progress, place, record, is_damaged=is_damaged)
        ):
            return False
        if not is_damaged:
            for light_place in light_places:
                self._place_in_light_queue(light_place, record)
        return True

    def place_runs(self, runs: list[PlainRun]) -> bool:
        """Compare the runs of ``walk_plain`` with the queues, all of them or none.

        Returns False, with nothing done, unless each queue has the units already, begins with them
        or continues with them. Then ``place`` must process the records.
        """
        places: dict[tuple[bytes, int], tuple[_QueueProgress, PlainRun]] = {}
        for run in runs:
            key = (run[0].encode(), run[1])
            progress = self._by_name.get(key)
            if progress is None:
                progress = self._begin_named(*run[:2], is_batch_record=False)
                self._by_name[key] = progress
            if key in places or not (progress.is_skipped or self._continues(progress, run)):
                return False
            places[key] = progress, run
        for progress, (topic, queue_id, first_offset, count, units, _, end, _) in places.values():
            if progress.is_skipped:
                continue
            queue = progress.queue
            if queue is None:
                queue = self._queues.get_or_create(topic, queue_id, batch=False)
                progress.queue = queue
            if queue.has_files and first_offset < queue.max_offset:
                progress.next_offset = first_offset + count
                progress.units = iter(())
                continue
            if progress.opened_in != self._round:
                self._open(progress, queue)
            queue.append_many(first_offset, units, count, end)
            progress.changed_count += count
            progress.next_offset = -1
        return True

    def _continues(self, progress: _QueueProgress, run: PlainRun) -> bool:
        """Return whether a queue begins with *run*, ends right before it, or has all its units."""
        _, _, first_offset, count, units, start, _, _ = run
        queue = progress.queue
        if progress.needs_care:
            return False
        if queue is None or not queue.has_files:
            return (
                start >= self._units_end
                and (first_offset == 0 or self._start <= self._log_files.min_offset)
                and not any(map(self._is_known_hole, _offsets_of(units)))
            )
        if first_offset == queue.max_offset:
            return start >= queue.commit_log_end >= 0
        if progress.opened_in != self._round:
            self._open(progress, queue)
        return queue.read_units(first_offset, count) == units

    def count_added(self) -> dict[QueueKey, int]:
        """Return how many units were added to each queue, without those that ``fill`` added."""
        return {
            (progress.queue.topic, progress.queue.queue_id): progress.changed_count
            for progress in self._by_name.values()
            if progress.queue is not None and progress.changed_count
        }

    def get_claimed_end(self, queue: UnitQueue) -> int | None:
        """Return the queue offset up to which records claimed units; None if none named *queue*."""
        progress = self._by_name.get((queue.topic.encode(), queue.queue_id))
        if progress is None:
            return None
        return queue.max_offset if progress.next_offset < 0 else progress.next_offset

    def _begin(self, record: Record) -> _QueueProgress:
        """Start to compare the queue that *record* names."""
        try:
            topic = record.topic.decode()
        except UnicodeDecodeError:
            topic = ""
        is_batch_record = bool(record.sys_flag & SYS_FLAG_INNER_BATCH)
        progress = self._begin_named(topic, record.queue_id, is_batch_record=is_batch_record)
        self._by_name[record.topic, record.queue_id] = progress
        return progress

    def _begin_named(self, topic: str, queue_id: int, *, is_batch_record: bool) -> _QueueProgress:
        queue = self._queues.get(topic, queue_id)
        is_batch = (
            queue.IS_BATCH
            if queue is not None
            else is_batch_record or self._rules.is_batch_topic(topic)
        )
        may_be_deleted = self._rules.is_deleted(topic, self._start)
        progress = _QueueProgress(queue, is_batch=is_batch, may_be_deleted=may_be_deleted)
        progress.is_skipped = not _is_nameable(topic) or (
            self._only is not None and (topic, queue_id) not in self._only
        )
        return progress

    def _settle(
        self, progress: _QueueProgress, place: Place, record: Record, *, is_damaged: bool
    ) -> bool:
        """Make the queue have the unit of *record*; False if the record's head is damaged."""
        queue = progress.queue
        end = queue.max_offset if queue is not None and queue.has_files else -1
        if queue is not None and place.first_offset < end:
            return self._compare(progress, queue, place, record, is_damaged=is_damaged)
        is_first = end < 0
        records_end = -1 if queue is None else queue.commit_log_end
        if not is_first and place.first_offset == end and record.offset >= records_end:
            return self._append_at(progress, place, record)
        if self._is_known_otherwise(place, record):
            return self._reject(record)
        if is_first and (place.first_offset == 0 or self._start <= self._log_files.min_offset):
            return self._append_at(progress, place, record)
        if is_damaged:
            return True  # Only its head is left, and does not fit: leave it to the hole.
        if queue is not None and records_end > record.offset:
            # The queue claims to be beyond this record, and no unit points to it.
            queue.truncate_to_commit_log(record.offset)
            return self._settle(progress, place, record, is_damaged=False)
        known_from = max(self._log_files.min_offset, records_end)
        if self._start > known_from:
            self.postponed[place.topic, place.queue_id] = known_from
            progress.is_skipped = True
            return True
        assert queue is not None
        if queue.commit_log_end <= self._log_files.min_offset:
            # The messages that the queue lacks have expired: it continues after them.
            queue.destroy()
            return self._append_at(progress, place, record)
        missing_count = place.first_offset - queue.max_offset
        room_bytes = record.offset - queue.commit_log_end
        # A record may hold many messages of a batch, well compressed.
        least_bytes = 1 if progress.is_batch else RECORD_SIZE_BYTES_MIN
        if missing_count <= 0 or missing_count * least_bytes > room_bytes:
            return self._reject(record)
        self.fill(queue, place.first_offset, record.offset)
        return self._append_at(progress, place, record)

    def _compare(
        self,
        progress: _QueueProgress,
        queue: UnitQueue,
        place: Place,
        record: Record,
        *,
        is_damaged: bool,
    ) -> bool:
        """Handle a record for whose offset the queue has a unit: find out whose unit it is."""
        if progress.opened_in != self._round:
            self._open(progress, queue)
        unit = queue.entry(place.first_offset)
        if unit is not None and unit[0] == record.offset and unit[1] == record.size_bytes:
            # Tags codes are not compared: at a start that would cost a hash for each message.
            self._expect_after(progress, queue, place)
            return True
        key = queue.topic, queue.queue_id
        if place.first_offset < queue.min_offset and key not in self.may_lack_first_files:
            return True
        if self._is_known_otherwise(place, record):
            return self._reject(record)
        if is_damaged:
            return True
        if place.first_offset < queue.min_offset:
            log.error(
                "the first files of a queue are missing; rebuilding it from the log",
                directory=str(queue.directory),
            )
            queue.destroy()
            return self._append_at(progress, place, record)
        expected = ExpectedUnit(place, record.offset, record.size_bytes, 0, record.store_time_ms)
        verdict = compare_unit(expected, unit, self._record_at, is_batch=progress.is_batch)
        if verdict is Verdict.LEFTOVER:
            return True
        queue.truncate_to(place.first_offset)
        if not queue.has_files:
            queue.destroy()
        return self._append_at(progress, place, record)

    def _append_at(self, progress: _QueueProgress, place: Place, record: Record) -> bool:
        topic, queue_id, first_offset, message_count = place
        if progress.queue is None:
            progress.queue = self._queues.get_or_create(topic, queue_id, batch=progress.is_batch)
        self._append(progress, progress.queue, record, first_offset, message_count)
        return True

    def _append(
        self,
        progress: _QueueProgress,
        queue: UnitQueue,
        record: Record,
        first_offset: int,
        message_count: int,
    ) -> None:
        tags_code = tags_code_of(record, self._rules.delay_ms)
        if progress.opened_in != self._round:
            self._open(progress, queue)
        offset, size_bytes, store_time_ms = record.offset, record.size_bytes, record.store_time_ms
        queue.append(first_offset, offset, size_bytes, tags_code, message_count, store_time_ms)
        progress.changed_count += 1
        progress.next_offset = -1

    def _open(self, progress: _QueueProgress, queue: UnitQueue) -> None:
        """Register a queue that will hold a descriptor; close all if there are too many."""
        if len(self._open_queues) == _QUEUES_OPEN_MAX:
            for other in self._open_queues:
                other.close()
            self._open_queues.clear()
            self._round += 1
        queue.glance()
        self._open_queues.append(queue)
        progress.opened_in = self._round

    def _expect_after(self, progress: _QueueProgress, queue: UnitQueue, place: Place) -> None:
        """Prefetch the queue's next units: the next record probably belongs to the next unit."""
        if progress.opened_in != self._round:
            self._open(progress, queue)
        progress.next_offset = place.first_offset + place.message_count
        if not queue.IS_BATCH:
            units = queue.read_units(progress.next_offset, _UNITS_AT_ONCE)
            progress.units = queue.UNIT.iter_unpack(units)

    def fill(self, queue: UnitQueue, end: int, log_offset: int) -> bool:
        """Add units for messages up to queue offset *end*, lost before *log_offset*.

        They point into the hole that swallowed the messages, to one byte after the other, because
        commit log offsets must grow. Returns False, with nothing done, if the hole has no room.
        """
        missing_count = end - queue.max_offset
        units = queue.last_units(1)
        last_offset = units[0][0] if units else queue.commit_log_end - 1
        # Not at the very start: a repair may have put a record there, which would be read.
        start, stop = queue.commit_log_end + 1, log_offset
        for hole in self._holes:
            if hole.end > start and hole.start < log_offset:
                # Nor at the start of a hole: a record rejected for its head would be read.
                start, stop = max(start, hole.start + 1), min(hole.end, log_offset)
                break
        start = max(min(start, log_offset - missing_count), last_offset + 1)
        if start + missing_count > log_offset:
            return False
        while queue.max_offset < end:
            size_bytes = max(min(stop - start, _RECORD_SIZE_BYTES_MAX), 1)
            count = min(end - queue.max_offset, queue.MESSAGES_PER_UNIT_MAX)
            queue.append(queue.max_offset, start, size_bytes, 0, count)
            start += 1
        key = (queue.topic, queue.queue_id)
        self.filled[key] = self.filled.get(key, 0) + missing_count
        return True

    def _place_in_light_queue(self, place: Place, record: Record) -> None:
        """Settle a record in a light queue of its multi-dispatch."""
        topic, queue_id, queue_offset, _ = place
        light = record._replace(
            topic=topic.encode(), queue_id=queue_id, queue_offset=queue_offset, sys_flag=0
        )
        progress = self._by_name.get((light.topic, queue_id)) or self._begin(light)
        if not (progress.is_skipped or self._is_deleted(progress, place, record)):
            self._settle(progress, place, light, is_damaged=False)

    def _is_deleted(self, progress: _QueueProgress, place: Place, record: Record) -> bool:
        return progress.may_be_deleted and self._rules.is_deleted(place.topic, record.offset)

    # Tell damaged records from damaged queues.

    def _is_known_otherwise(self, place: Place, record: Record) -> bool:
        """Return whether the unit of another message than *place* points to exactly this record."""
        if self._is_known_hole(record.offset):
            return True
        if record.offset >= self._units_end or place.topic.startswith(LMQ_PREFIX):
            return False
        if self._searches_left <= 0:
            return False
        self._searches_left -= 1
        for queue in self._queues.list_reaching_beyond(record.offset):
            if queue.topic.startswith(LMQ_PREFIX):
                continue
            found = queue.find_unit(record.offset)
            if found is None or found[1] != (record.offset, record.size_bytes):
                continue
            if (queue.topic, queue.queue_id, found[0]) != place[:3]:
                return True
        return False

    def _reject(self, record: Record) -> bool:
        reason = "its head names an impossible queue or offset"
        self._holes.append(Hole(record.offset, record.end_offset, reason))
        return False

    def _record_at(self, offset: int) -> Record | None:
        return record_at(self._log_files, offset)


def _offsets_of(units: bytes) -> Iterator[int]:
    return (unit[0] for unit in CONSUME_QUEUE_UNIT.iter_unpack(units))


def _is_nameable(topic: str) -> bool:
    return topic not in ("", ".", "..") and not _UNNAMEABLE.intersection(topic)
