"""Recovery: make commit log, consume queues and index agree when a store is opened.

    report = recover(LoadedStore(…), QueueRules(is_batch_topic, is_deleted, tags_code, has_gone))

The files must be loaded, but not recovered. Afterwards the commit log ends at ``report.log_end``,
with zeros after; every valid record is in its queue and in the index; all of it is on disk. The
steps:

1. If the newest files are missing, an empty one takes their place. Each queue finds its own end,
and its last units are compared with the log. 2. recovery_start.py decides where to start reading.
3. The log is walked (log_walk.py). Each record is compared with its queue (queue_repair.py) and
added to the index if it is missing there (index_catch_up.py). Queues that turn out to lack messages
before the start are walked again. 4. The bytes after the end are copied to the quarantine and cut;
units and index entries that point after the end are dropped. 5. Everything that was found is
synced, and the inventory is written.

Nothing valid is ever cut: only bytes that no valid record follows, and that are not before a point
which the log is known to have reached. RocketMQ cuts at the first bad byte.

Example: messages 0, 1 and 2 are acknowledged under ASYNC_FLUSH, and the power fails. On disk are
records 0 and 1, half of record 2, and the queue's unit 0. Recovery walks the log: record 0 matches
its unit, the unit of record 1 is appended, and the torn record 2 is cut and kept in the quarantine.
The queue holds messages 0 and 1.
"""

from typing import NamedTuple

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.checkpoint import CLOCK_STEP_MARGIN_MS
from rockhopper.broker.store.log.log_scan import record_start
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.index_catch_up import IndexCatchUp
from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.recovering.log_walk import (
    CutTail,
    Hole,
    LogWalk,
    QueueWitnesses,
    cut_tail,
)
from rockhopper.broker.store.recovering.lost_offsets import (
    drop_unclaimed,
    ends_behind,
    least_bytes_lost,
    missing_bytes,
)
from rockhopper.broker.store.recovering.queue_repair import QueueRepair, QueueRules
from rockhopper.broker.store.recovering.recovery_start import (
    LoadedStore,
    ProvenEnd,
    RecoveryStart,
)
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.walking import Found

log = structlog.get_logger("broker.store")

# A log up to this size is read whole at each start,
VERIFY_BYTES = 4 << 20
# and one up to this size if there is no inventory.
ADOPT_BYTES = 4 << 30
_QUEUES_LOGGED = 20
_HOLES_LOGGED = 20


class RecoveryReport(NamedTuple):
    """What recovery found and did; offsets are commit log offsets."""

    log_end: int
    scanned_from: int
    record_count: int
    """Records read."""
    last_store_time_ms: int
    """That of the newest message found; later store times must not be earlier. 0 without one."""
    holes: list[Hole]
    """Damage that valid records follow; the messages in it cannot be read."""
    lost_tail: Hole | None
    """The last of the holes, if the log ends with it: that part had been flushed, and is missing.
    """
    cut: CutTail | None
    """The torn end, if there was one."""
    changed_queues: dict[QueueKey, int]
    """Queues that lacked messages, and how many were added to each."""
    lost_messages: dict[QueueKey, int]
    """Number of lost messages per queue; their offsets are not used again."""
    indexed_count: int
    """Keys added to the index."""
    next_queue_offsets: dict[QueueKey, int]
    """The next offsets of queues without any file left."""

    def log(self, *, last_exit_clean: bool) -> None:
        """Log the result for the operator.

        After a clean stop no queue lacks anything, unless its files were damaged or deleted since.
        """
        for hole in self.holes[:_HOLES_LOGGED]:
            log.error(
                "the commit log is damaged; the messages in this range cannot be read",
                from_offset=hole.start,
                to_offset=hole.end,
                reason=hole.reason,
            )
        if len(self.holes) > _HOLES_LOGGED:
            log.error("the commit log is damaged in further ranges", ranges=len(self.holes))
        if self.lost_tail is not None:
            log.error(
                "the flushed end of the commit log is missing; its messages are lost, and their "
                "queue offsets are not used again",
                from_offset=self.lost_tail.start,
                to_offset=self.lost_tail.end,
            )
        if self.cut is not None:
            log.warning(
                "the incomplete end of the commit log was cut",
                from_offset=self.cut.offset,
                size_bytes=self.cut.size_bytes,
                kept_as=self.cut.kept_as,
            )
        if self.lost_messages:
            log.error(
                "skipping the queue offsets of lost messages",
                queues={f"{topic}/{id_}": n for (topic, id_), n in self.lost_messages.items()},
            )
        if last_exit_clean and self.changed_queues:
            queues = list(self.changed_queues.items())[:_QUEUES_LOGGED]
            log.warning(
                "queues disagreed with the commit log and have been repaired from it",
                count=len(self.changed_queues),
                queues={f"{topic}/{id_}": n for (topic, id_), n in queues},
            )
        log.info(
            "store recovered",
            log_end=self.log_end,
            scanned_from=self.scanned_from,
            records=self.record_count,
            queues_changed=len(self.changed_queues),
            keys_indexed=self.indexed_count,
        )


def recover(
    loaded: LoadedStore,
    rules: QueueRules,
    *,
    is_ours: bool = False,
    is_sync: bool = False,
    check_crc: bool = True,
    verify_bytes: int = VERIFY_BYTES,
    adopt_bytes: int = ADOPT_BYTES,
) -> RecoveryReport:
    """Recover a store that has been loaded; block until it is complete and on disk.

    The new inventory records *is_sync* for the run that begins. *is_ours* is as for ``ProvenEnd``.

    Raises:
        StoreError, OSError: a file cannot be read, written or made (disk full).
    """
    proof = ProvenEnd(
        loaded.log_files,
        loaded.checkpoint,
        loaded.noted,
        is_clean=loaded.is_clean,
        is_ours=is_ours,
    )
    proof.reach(loaded.queues)
    start = RecoveryStart(loaded, rules)
    start.look_at_queues(proof)
    recovery = _Recovery(loaded, rules, proof, start, check_crc=check_crc)
    walk = recovery.walk(start.choose(verify_bytes, adopt_bytes))
    if recovery.is_checkpoint_refuted(walk):
        log.warning("the checkpoint is newer than the log; reading the whole log instead")
        walk = recovery.walk(loaded.log_files.min_offset)
    if recovery.ended_later(walk):
        walk = recovery.walk(walk.start)
    recovery.walk_again(walk)
    return recovery.finish(walk, is_sync=is_sync)


class _Recovery:
    """The walks over the log, and what they found and changed."""

    def __init__(
        self,
        loaded: LoadedStore,
        rules: QueueRules,
        proof: ProvenEnd,
        start: RecoveryStart,
        *,
        check_crc: bool,
    ) -> None:
        self._layout, self._log_files = loaded.layout, loaded.log_files
        self._queues, self._index = loaded.queues, loaded.index
        self._checkpoint, self._noted = loaded.checkpoint, loaded.noted
        self._is_clean = loaded.is_clean
        self._rules = rules
        self._proof = proof
        self._start = start
        self._check_crc = check_crc
        self._log_min = loaded.log_files.min_offset
        self._last_store_time_ms = start.last_store_time_ms
        self._changed: dict[QueueKey, int] = {}
        self._filled: dict[QueueKey, int] = {}
        self._indexed_count = 0
        self._postponed: dict[QueueKey, int] = {}

    def walk(self, start: int) -> LogWalk:
        """Walk the log from *start* on, for all queues and the index."""
        quiet_from = None
        if self._is_clean and (
            self._start.restored_end >= 0
            or any(state.good_end >= 0 for state in self._start.states.values())
        ):
            quiet_from = self._queues.commit_log_end
        walk = LogWalk(
            self._log_files.files,
            start,
            proven_end=self._proof.offset,
            quiet_from=quiet_from,
            check_crc=self._check_crc,
            is_stale=lambda record: self._is_stale(record, walk),
            witnesses=QueueWitnesses(self._queues, self._log_files),
        )
        repair = QueueRepair(
            self._queues,
            self._log_files,
            self._rules,
            start,
            walk.holes,
            is_known_hole=self._is_known_hole,
        )
        repair.may_lack_first_files = self._start.may_lack_first_files
        catch_up = None if self._index is None else IndexCatchUp(self._index)
        place = repair.place

        def take(found: Found) -> bool:
            runs, keys = found[3:]
            start, end = runs[0][5], max(run[6] for run in runs)
            if catch_up is not None and catch_up.ends_within(start, end):
                return False
            is_taken = repair.place_runs(runs)
            if is_taken and catch_up is not None:
                catch_up.place_keys(keys, start)
            return is_taken

        for record in walk.records(take):
            if walk.is_damaged:
                place(record, is_damaged=True)
            elif place(record) and catch_up is not None and record[0] >= catch_up.from_offset:
                catch_up.place(record)
        self._last_store_time_ms = max(self._last_store_time_ms, walk.last_store_time_ms)
        if catch_up is not None:
            catch_up.finish()
            self._indexed_count += catch_up.put_count
        self._drop_unclaimed(start, repair, walk)
        self._note(repair)
        self._postponed = repair.postponed
        return walk

    def _is_known_hole(self, offset: int) -> bool:
        return self._noted is not None and self._noted.is_in_hole(offset)

    def _is_stale(self, record: Record, walk: LogWalk) -> bool:
        """Return whether a record after damage is a leftover from before the log was cut there.

        A leftover is older than the records before it. RocketMQ's store times can go back a little
        with the clock, so unless the record is much older, its queue offset must be taken as well.
        """
        if record.store_time_ms >= walk.last_store_time_ms:
            return False
        if record.store_time_ms < walk.last_store_time_ms - CLOCK_STEP_MARGIN_MS:
            return True
        queue = self._queues.get(record.topic.decode(errors="replace"), record.queue_id)
        if queue is None or record.queue_offset >= queue.max_offset:
            return False
        unit = queue.entry(record.queue_offset)
        return unit is None or unit[0] != record.offset

    def is_checkpoint_refuted(self, walk: LogWalk) -> bool:
        """Return whether the checkpoint claims messages that the log does not have."""
        claimed_ms = max(self._checkpoint.commit_log_ms, self._checkpoint.consume_queue_ms)
        return (
            not self._is_clean
            and walk.start > self._log_min
            and claimed_ms > self._last_store_time_ms
        )

    def ended_later(self, walk: LogWalk) -> bool:
        """Return whether only the consumers' offsets prove that the log was longer."""
        if not self._proof.is_without_notes:
            return False
        tail = self._lost_tail(walk)
        end = walk.end if tail is None else tail.start
        room_bytes = self._log_files.next_base_offset - end
        handed_out = self._rules.handed_out()
        end += least_bytes_lost(self._queues, self._start.states.keys(), handed_out, room_bytes)
        if end <= walk.end:
            return False
        self._proof.offset = end
        return True

    def walk_again(self, walk: LogWalk) -> None:
        """Walk the log for the queues that turned out to lack messages before the start."""
        while self._postponed:
            keys = frozenset(self._postponed)
            start = record_start(self._log_files, min(self._postponed.values()))
            again = LogWalk(
                self._log_files.files,
                start,
                proven_end=walk.end,
                check_crc=self._check_crc,
                witnesses=QueueWitnesses(self._queues, self._log_files),
            )
            repair = QueueRepair(
                self._queues,
                self._log_files,
                self._rules,
                start,
                again.holes,
                only=keys,
                is_known_hole=self._is_known_hole,
            )
            for record in again.records():
                if record.offset >= walk.end:
                    break
                repair.place(record, is_damaged=again.is_damaged)
            walk.holes.extend(hole for hole in again.holes if hole not in walk.holes)
            self._note(repair)
            self._postponed = repair.postponed

    def _note(self, repair: QueueRepair) -> None:
        for key, count in repair.count_added().items():
            self._changed[key] = self._changed.get(key, 0) + count
        for key, count in repair.filled.items():
            self._filled[key] = self._filled.get(key, 0) + count

    def _drop_unclaimed(self, start: int, repair: QueueRepair, walk: LogWalk) -> None:
        lost = drop_unclaimed(self._queues, start, repair, walk.holes, self._is_known_hole)
        for key, count in lost.items():
            self._filled[key] = self._filled.get(key, 0) + count

    def finish(self, walk: LogWalk, *, is_sync: bool) -> RecoveryReport:
        """Cut the bytes after the end, make everything durable, and report.

        The new inventory records *is_sync*.
        """
        end = walk.end
        cut = cut_tail(self._layout, self._log_files, end)
        for queue in self._queues.list_reaching_beyond(end):
            queue.truncate_to_commit_log(end)
        if self._index is not None:
            self._index.discard_from(end)
        next_offsets = self._keep_ends(walk)
        self._sync(walk)
        holes = sorted([*walk.holes, *self._known_holes(walk)])
        self._note_inventory(end, holes, next_offsets, is_sync=is_sync)
        return RecoveryReport(
            log_end=end,
            scanned_from=walk.start,
            record_count=walk.record_count,
            last_store_time_ms=self._last_store_time_ms,
            holes=holes,
            lost_tail=self._lost_tail(walk),
            cut=cut,
            changed_queues=self._changed,
            lost_messages=self._filled,
            indexed_count=self._indexed_count,
            next_queue_offsets=next_offsets,
        )

    def _lost_tail(self, walk: LogWalk) -> Hole | None:
        """Return the hole at the log's end that was on disk when the last run ended, or None."""
        last = walk.holes[-1] if walk.holes else None
        if last is None or last.end != walk.end or self._is_known_hole(last.start):
            return None
        return last

    def _keep_ends(self, walk: LogWalk) -> dict[QueueKey, int]:
        """Make sure that no queue offset of a lost message is used again."""
        next_offsets = {}
        ends, holes, end = dict(self._start.read_noted_ends()), walk.holes, walk.end
        tail = None if self._is_clean else self._lost_tail(walk)
        noted_end = 0 if self._noted is None else self._noted.log_end
        if tail is not None and (missing := missing_bytes(tail, self._queues, noted_end)):
            handed_out = self._rules.handed_out()
            ends |= ends_behind(missing, self._queues, self._start.states.keys(), ends, handed_out)
            holes = [tail]
        repair = QueueRepair(self._queues, self._log_files, self._rules, end, holes)
        for (topic, queue_id), queue_end in ends.items():
            queue = self._queues.get(topic, queue_id)
            if queue is None or not queue.has_files:
                next_offsets[topic, queue_id] = queue_end
            elif queue.max_offset < queue_end and not repair.fill(queue, queue_end, end):
                log.error(
                    "a queue lost its newest messages and will use their offsets again",
                    topic=topic,
                    queue=queue_id,
                    offset=queue.max_offset,
                    noted_offset=queue_end,
                )
        self._note(repair)
        return next_offsets

    def _sync(self, walk: LogWalk) -> None:
        """Make what was found durable: after a kill it may only be in memory."""
        files = self._log_files
        if not self._is_clean and files.files:
            files.flush_range(walk.start, walk.end)
            disk.sync_directory(files.directory)
        files.flushed_offset = walk.end
        for file in files.files:
            file.flushed_position = file.write_position
        for file in files.files[:-1]:
            file.unmap()
        self._queues.flush_all()
        for queue in self._queues.list_awake():
            queue.close()
        if self._index is not None:
            self._index.flush()

    def _known_holes(self, walk: LogWalk) -> list[Hole]:
        """Return known damage in the part of the log that was not read this time."""
        return [
            Hole(start, end, "found at an earlier start")
            for start, end in (self._noted.holes if self._noted is not None else ())
            if self._log_min < end <= walk.start
        ]

    def _note_inventory(
        self, end: int, holes: list[Hole], next_offsets: dict[QueueKey, int], *, is_sync: bool
    ) -> None:
        ranges = dict.fromkeys((hole.start, hole.end) for hole in holes)
        present = inventory.take(end, self._queues, self._index, ranges)
        present = present._replace(
            queue_ends={**next_offsets, **present.queue_ends},
            is_sync=is_sync,
            file_sizes=(
                self._log_files.file_size_bytes,
                *self._queues.file_sizes_bytes,
            ),
        )
        if present != self._noted:
            inventory.save(self._layout, present)
