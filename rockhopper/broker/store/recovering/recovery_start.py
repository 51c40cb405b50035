"""Where recovery starts to read the commit log, and up to where the log is known to have been.

Reading it all would always be right; the aim is to read little if little can be wrong:

- after a clean stop, from the end of the newest message in any consume queue;
- after a crash, from the newest message that the checkpoint proves to be on disk, and in a queue;
- from an earlier offset, if a queue or the index lacks something;
- a small log whole, so that corruption is found; and also a log without an inventory, unless it is
  huge, because then only the log itself can show that a queue is missing.

The proven end is up to where the log is known to have been on disk, to report a missing part:

- Inventory and checkpoint prove it, even after a kill.
- After a clean stop, and under SYNC_FLUSH, so does the unit of a record: no message is in a queue
  before it is on disk. The same is true for the index.
- If a run of Rockhopper was killed and neither inventory nor checkpoint is left, units and index
  are trusted as well, though some of their records may never have been on disk. A wrongly reported
  tail costs queue offsets; an unreported one costs messages.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.log_scan import record_at
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.index_catch_up import index_start
from rockhopper.broker.store.recovering.inventory import Inventory, QueueKey
from rockhopper.broker.store.recovering.queue_repair import QueueRules
from rockhopper.protocol.names import LMQ_PREFIX
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.queue_layout import BLANK_UNIT_SIZE_FIELD
from rockhopper.protocol.store.record_head import MAGIC_V1, MAGIC_V2, head_struct
from rockhopper.protocol.store.walking import read_record

log = structlog.get_logger("broker.store")

_HEAD = head_struct("size_bytes", "magic", "log_offset")
# Units compared, from the end, until one fits the log.
_UNITS_COMPARED = (2, 64)
_QUEUES_ASKED = 8
# The index has only the start of a message; seldom is more than this of it missing.
_INDEXED_SIZE_BYTES = 512


@dataclass(frozen=True)
class LoadedStore:
    """The files of a store as they were found."""

    layout: StoreLayout
    log_files: MappedFileQueue
    queues: ConsumeQueueTable
    index: MessageIndex | None
    checkpoint: StoreCheckpoint
    noted: Inventory | None
    """Its inventory, as the last run left it."""
    is_clean: bool
    """Whether the last run stopped cleanly."""
    stopped_time_ms: int = 0
    """The store time of the newest message, if it is known from the last stop."""


class QueueState(NamedTuple):
    """The result of comparing a queue's last units with the log.

    ``good_end`` is the end of the newest record whose unit fits the log, −1 without one;
    ``store_time_ms`` is that record's. ``proven_end`` is the end of the last record that a unit
    points to, even if the record is damaged.
    """

    good_end: int = -1
    proven_end: int = -1
    store_time_ms: int = 0
    is_suspect: bool = False


def look_at_queue(
    queue: UnitQueue, log_files: MappedFileQueue, inventory: Inventory | None
) -> QueueState:
    """Compare the last units of a queue with the records that they point to."""
    if not queue.has_files or queue.max_offset <= queue.min_offset:
        return QueueState()
    proven_end = -1
    for count in _UNITS_COMPARED:
        for number, unit in enumerate(reversed(queue.last_units(count))):
            offset, size_bytes = unit[0], unit[1]
            end = offset + size_bytes
            if size_bytes == BLANK_UNIT_SIZE_FIELD:
                break
            record = record_at(log_files, offset)
            if record is not None:
                # Whatever size the unit states.
                proven_end = max(proven_end, record.end_offset)
            elif _looks_like_a_record(offset, size_bytes, log_files):
                proven_end = max(proven_end, end)
            if record is not None and _fits(queue, unit, number, record):
                return QueueState(end, proven_end, record.store_time_ms, number > 0)
            if end <= log_files.min_offset or (inventory and inventory.is_in_hole(offset)):
                return QueueState(end, proven_end, 0, number > 0)
    return QueueState(-1, proven_end, 0, is_suspect=True)


def may_lack_first_files(
    queue: UnitQueue, log_min: int, noted: Inventory | None, has_gone: Callable[[str], bool]
) -> bool:
    """Return whether a queue's first files may be missing although the log has their messages.

    Files of expired messages are deleted too. If nothing is missing, the first remaining file
    begins with an expired message, unless deleted files of queue and log ended at the same message.
    *has_gone* returns whether messages of a topic were deleted or purged.
    """
    first = queue.first_position
    if not first or not queue.has_files or has_gone(queue.topic):
        return False
    if noted is not None and noted.queue_starts.get((queue.topic, queue.queue_id)) == first:
        return False
    return queue.begins_behind(log_min)


def _fits(queue: UnitQueue, unit: tuple[int, ...], number_from_end: int, record: Record) -> bool:
    if record.size_bytes != unit[1]:
        return False
    if queue.topic.startswith(LMQ_PREFIX):
        return True  # The record belongs to another topic as well.
    if record.topic != queue.topic.encode() or record.queue_id != queue.queue_id:
        return False
    return queue.IS_BATCH or record.queue_offset == queue.max_offset - 1 - number_from_end


def _looks_like_a_record(offset: int, size_bytes: int, log_files: MappedFileQueue) -> bool:
    """Return whether a record of that size seems to have been at *offset*, even if damaged."""
    file = log_files.file_at(offset)
    if file is None or offset + max(size_bytes, _HEAD.size) > file.end_offset:
        return False
    position = offset - file.base_offset
    size, magic, own_offset = _HEAD.unpack(file.read(position, position + _HEAD.size))
    return size == size_bytes or magic in (MAGIC_V1, MAGIC_V2) or own_offset == offset


def units_from(queue: UnitQueue, commit_log_offset: int) -> Iterator[tuple[int, int]]:
    """Yield log offset and size of the units of a queue that are not before an offset."""
    found = queue.find_unit(commit_log_offset)
    if found is not None:
        for queue_offset in range(found[0], queue.max_offset):
            unit = queue.entry(queue_offset)
            if unit is not None:
                yield unit[0], unit[1]


def end_by_units(units: Iterable[tuple[int, int]], start: int, log_files: MappedFileQueue) -> int:
    """Return the end of the log by *units* that follow each other from *start* on.

    A message in no queue, because its topic was deleted, is skipped if the log has it. A unit that
    fits nothing proves nothing: it may be damaged.
    """
    end = start
    for offset, size_bytes in sorted(units):
        while end < offset:
            record = record_at(log_files, end)
            if record is not None:
                end = record.end_offset
            elif offset == end + -end % log_files.file_size_bytes:
                end = offset  # The rest of the file was left blank.
            else:
                return end
        if offset == end:
            end += size_bytes
    return end


def end_behind_files(queues: Iterable[UnitQueue], log_files: MappedFileQueue) -> int:
    """Return the end of the log after its files, by units of queues that are not recovered yet.

    Returns 0 if the units do not show it.
    """
    end = log_files.next_base_offset
    units: set[tuple[int, int]] = set()
    for queue in queues:
        units.update(takewhile(lambda unit: unit[0] >= end, queue.newest_units()))
    reached = end_by_units(units, end, log_files)
    return reached if reached > end else 0


def proven_file(log_files: MappedFileQueue, checkpoint: StoreCheckpoint) -> MappedFile | None:
    """Return the newest file whose first message was on disk and in a queue when the run ended."""
    replay_from_ms = checkpoint.replay_from_ms()
    for file in reversed(log_files.files):
        first = read_record(file.mapping, 0, file.base_offset)
        if first is not None and first.store_time_ms <= replay_from_ms:
            return file
        if file is not log_files.files[-1]:
            file.unmap()
    return None


def proven_offset(
    file: MappedFile,
    log_files: MappedFileQueue,
    queues: list[UnitQueue],
    checkpoint: StoreCheckpoint,
) -> int:
    """Return the start of a record of *file* before which the checkpoint proves everything."""
    best = file.base_offset
    replay_from_ms = checkpoint.replay_from_ms()
    newest = sorted(queues, key=lambda queue: queue.commit_log_end)[-_QUEUES_ASKED:]
    for queue in newest:
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            record = _record_of(queue, middle, log_files)
            if record is None:
                break
            if record.offset < file.end_offset and record.store_time_ms <= replay_from_ms:
                best = max(best, record.offset)
                low = middle + 1
            else:
                high = middle
    return best


def _record_of(queue: UnitQueue, queue_offset: int, log_files: MappedFileQueue) -> Record | None:
    unit = queue.entry(queue_offset)
    record = record_at(log_files, unit[0]) if unit is not None else None
    if record is None or record.topic != queue.topic.encode():
        return None
    return record


class ProvenEnd:
    """The evidence about the end of one log."""

    def __init__(
        self,
        log_files: MappedFileQueue,
        checkpoint: StoreCheckpoint,
        noted: Inventory | None,
        *,
        is_clean: bool,
        is_ours: bool,
    ) -> None:
        """*is_ours*: as far as is known, RocketMQ was not the last to write to the store."""
        self._log_files = log_files
        self._is_clean = is_clean
        self.offset = max(checkpoint.flushed_offset, noted.log_end if noted is not None else 0)
        claimed = checkpoint.flushed_offset or checkpoint.consume_queue_ms
        self.is_without_notes = is_ours and not is_clean and noted is None and not claimed
        """Whether the last run was killed, and both its inventory and its checkpoint are missing.
        """
        self._is_sync = not is_clean and noted is not None and noted.is_sync

    def reach(self, queues: ConsumeQueueTable) -> None:
        """If the newest files are missing, make a file that covers the proven end of the log.

        *queues* must not be recovered yet: that drops the units after the files.
        """
        files = self._log_files
        if files.files and (self._is_sync or self.is_without_notes):
            self.offset = max(self.offset, end_behind_files(queues, files))
        end = self.offset
        if files.files and end > files.next_base_offset:
            log.error(
                "the newest commit log files are missing",
                directory=str(files.directory),
                from_offset=files.next_base_offset,
                to_offset=end,
            )
            file = files.append_file(end - end % files.file_size_bytes)
            file.write_position = file.size_bytes
            file.sync(0)

    def ask(
        self,
        queues: ConsumeQueueTable,
        states: Collection[QueueState],
        index: MessageIndex | None,
    ) -> None:
        """Extend the proven end by what the index and the queues show.

        The queues must have found their ends.
        """
        if self._is_clean:
            self.offset = max([self.offset, *(state.proven_end for state in states)])
        if not (self._is_sync or self.is_without_notes):
            return
        if self.is_without_notes:
            self.offset = max([self.offset, *(state.good_end for state in states)])
        start = max(self.offset, self._log_files.min_offset)
        units: list[tuple[int, int]] = []
        for queue in queues:
            if queue.commit_log_end > start:
                units += units_from(queue, start)
                queue.close()
        self.offset = end_by_units(units, start, self._log_files)
        if index is not None and index.end_commit_log_offset >= self.offset:
            newest = record_at(self._log_files, index.end_commit_log_offset)
            # A kill can leave the index ahead of a queue whose file was not made yet.
            end = index.end_commit_log_offset + _INDEXED_SIZE_BYTES
            if newest is not None:
                end = newest.end_offset
            if end < self._log_files.next_base_offset:
                self.offset = end


class RecoveryStart:
    """What queues, index and inventory show before the log is read."""

    def __init__(self, loaded: LoadedStore, rules: QueueRules) -> None:
        self._loaded = loaded
        self._rules = rules
        self._log_min = loaded.log_files.min_offset
        self._proven_from = self._log_min
        self.states: dict[QueueKey, QueueState] = {}
        self.may_lack_first_files: set[QueueKey] = set()
        self.last_store_time_ms = loaded.stopped_time_ms
        self.restored_end = -1
        """Where the newest record ends in the queues whose state was taken over."""

    def look_at_queues(self, proof: ProvenEnd) -> None:
        """Find the end of each queue, and compare its last units with the log.

        That extends *proof*.
        """
        loaded = self._loaded
        log_files, queues, noted = loaded.log_files, loaded.queues, loaded.noted
        log_max = log_files.next_base_offset
        trusted_below = log_max
        proven = None
        if not loaded.is_clean:
            proven = proven_file(log_files, loaded.checkpoint)
            trusted_below = proven.base_offset if proven is not None else 0
        self.restored_end = queues.asleep_end
        for queue in queues.list_awake():
            if queue.is_restored:
                continue
            is_short = queue.is_short
            if not is_short and may_lack_first_files(
                queue, self._log_min, noted, self._rules.has_gone
            ):
                self.may_lack_first_files.add((queue.topic, queue.queue_id))
            queue.recover(log_max, 0 if queue.was_resized else trusted_below)
            if self._log_min:
                queue.correct_min_offset(self._log_min)
            state = look_at_queue(queue, log_files, noted)
            if queue.was_resized:
                state = state._replace(is_suspect=True)
            if not is_short:
                queue.close()
            self.states[queue.topic, queue.queue_id] = state
            self.last_store_time_ms = max(self.last_store_time_ms, state.store_time_ms)
        proof.ask(queues, self.states.values(), loaded.index)
        proof.offset = max(proof.offset, self.restored_end)
        if proven is not None:
            self._proven_from = proven_offset(proven, log_files, list(queues), loaded.checkpoint)

    def choose(self, verify_bytes: int, adopt_bytes: int) -> int:
        """Return the offset from which the log must be read: the start of a record or of a file.

        A log up to *verify_bytes* is read whole; up to *adopt_bytes* if there is no inventory.
        """
        loaded, noted = self._loaded, self._loaded.noted
        ends = (state.good_end for state in self.states.values())
        reached = max(ends, default=-1)
        reached = max(reached, self.restored_end)
        start = reached if loaded.is_clean else self._proven_from
        log_bytes = max(reached, start) - self._log_min
        if log_bytes <= verify_bytes or (noted is None and log_bytes <= adopt_bytes):
            start = self._log_min
        elif noted is None:
            log.warning(
                "the store has no inventory and is too large to read as a whole: queues that are "
                "missing entirely stay missing",
                log_bytes=log_bytes,
            )
        if self.may_lack_first_files:
            start = self._log_min
        for state in self.states.values():
            if state.is_suspect:
                start = min(start, state.good_end)
        for (topic, queue_id), end in self.read_noted_ends():
            queue = loaded.queues.get(topic, queue_id)
            if queue is None or queue.max_offset < end:
                state = self.states.get((topic, queue_id), QueueState())
                start = min(start, state.good_end)
        if loaded.index is not None:
            start = min(start, index_start(loaded.index, loaded.log_files, noted))
        return max(start, self._log_min)

    def read_noted_ends(self) -> Iterator[tuple[QueueKey, int]]:
        """Yield the saved ends of queues, except those of topics that were deleted since.

        Queues that are asleep and have not lost that end are left out, too.
        """
        noted = self._loaded.noted
        if noted is not None:
            asleep = self._loaded.queues.list_asleep()
            for key, end in noted.queue_ends.items():
                if asleep.get(key, -1) < end and not self._rules.is_deleted(
                    key[0], noted.log_end - 1
                ):
                    yield key, end
