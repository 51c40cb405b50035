"""Dispatch: add records of the commit log to queues and index, and notify waiting readers.

A send dispatches its messages in the same iteration of the loop, or, under SYNC_FLUSH, once the
disk has confirmed them. So normally there is nothing else to do. If that failed (no space for a
consume queue file, say), the coroutine of ``ReputService`` reads the log from where dispatch
stopped and runs the same dispatch step. It never polls: it is notified, and retries a second after
a failure.
"""

import asyncio
from collections.abc import Callable, Set
from typing import Protocol

import structlog

from rockhopper.broker.store.files.descriptors import shortage_of
from rockhopper.broker.store.files.errors import DiskFullError, StoreError, TooManyOpenFilesError
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.queue_tail import (
    QueueTail,
    Run,
    StagedMessages,
    append_plain,
    awaited,
)
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.protocol.store.expected import DelayOf, Record, expected
from rockhopper.protocol.store.fast_walking import walk_plain
from rockhopper.protocol.store.message_codec import check_record
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.walking import PlainRun
from rockhopper.tasks import end_task, keep_running

log = structlog.get_logger("broker.store")

CATCH_UP_BYTES = 1 << 20
RETRY_INTERVAL_S = 1.0


class ReputService:
    """Drives *catch_up*, which dispatches a limited part and returns whether there is more."""

    def __init__(self, catch_up: Callable[[], bool]) -> None:
        self._catch_up = catch_up
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the coroutine; needs a running event loop."""
        self._task = keep_running(self._run, "reput")

    def wake(self) -> None:
        """Notify the coroutine that the log is ahead of the queues."""
        self._wake.set()

    async def stop(self) -> None:
        """End the coroutine between two parts."""
        if self._task is not None:
            end_task(self._task)
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failing = False
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._catch_up():  # noqa: ASYNC110 - it works; it does not wait
                    await asyncio.sleep(0)
            except (StoreError, OSError) as error:
                if not failing:
                    log.error("dispatch is behind; retrying every second", reason=str(error))
                failing = True
                self._wake.set()
                await asyncio.sleep(RETRY_INTERVAL_S)
            except Exception:
                self._wake.set()  # for the run that replaces this one
                raise
            else:
                if failing:
                    log.info("dispatch has caught up")
                failing = False


class Watcher(Protocol):
    """Waits for messages of whole topics."""

    def arrived(self, topic: str, queue_id: int) -> None:
        """Handle the arrival of messages in a queue."""


class Dispatch:
    """Brings queues and index up to the log.

    They are complete up to ``offset``; ``store_time_ms`` is the store time there. ``behind`` is the
    error that keeps them behind the log, if any.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        index: MessageIndex | None,
        delay_ms: DelayOf,
        tail: Callable[[str, int], QueueTail],
        is_deleted: Callable[[str, int], bool],
        reput: ReputService,
    ) -> None:
        """If dispatch fails, *reput* continues with ``catch_up``.

        *is_deleted* returns whether a topic was deleted after a commit log offset.
        """
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._delay_ms = delay_ms
        self._tail = tail
        self._is_deleted = is_deleted
        self._reput = reput
        # Queues on hold, and the tags codes of their new messages, which are not visible yet.
        self._held: dict[QueueTail, set[int]] = {}
        self.behind: StoreError | None = None
        # Before it records are dispatched one by one.
        self._by_record_until = 0
        self.offset = commit_log.written_offset
        self.store_time_ms = commit_log.store_time_ms
        self.watchers: dict[str, Watcher] = {}
        """By topic: notified of messages in any of its queues, beside the readers of a queue."""

    def dispatch(self, staged: StagedMessages, store_time_ms: int, timed_keys: bytes = b"") -> None:
        """Append consume queue entries and index entries, and notify waiting readers.

        *timed_keys* are index keys of messages with different store times.
        """
        appended = 0
        try:
            while (appended := append_plain(staged.runs, appended)) < len(staged.runs):
                self._append(staged.runs[appended], store_time_ms)
                appended += 1
            if self._index is not None:
                self._index.put_many(staged.packed_keys, store_time_ms)
                if timed_keys:
                    self._index.put_timed(timed_keys)
            self.offset, self.store_time_ms = staged.end, store_time_ms
        except (OSError, StoreError) as error:
            self._fall_behind(staged.start, error)
        held, watched = self._held, self.watchers
        runs = staged.runs[:appended] if held or watched else awaited(staged.runs, appended)
        for run in runs:
            if run.tail.waiters or held or run.tail.topic in watched:
                self._wake(run)

    def _append(self, run: Run, store_time_ms: int) -> None:
        tail, units = run.tail, run.units
        if not tail.is_deleted:
            queue = tail.consume_queue
            (self._open_queue(tail) if queue is None else queue).append_many(
                run.first_offset,
                units[0] if len(units) == 1 else b"".join(units),
                run.count,
                run.end,
                run.batch_count or 1,
                store_time_ms,
            )

    def hold(self, tail: QueueTail) -> None:
        """Hide new messages of a queue until ``release``."""
        if tail not in self._held:
            queue = tail.consume_queue or self._open_queue(tail)
            assert isinstance(queue, ConsumeQueue)
            queue.hold()
            self._held[tail] = set()

    def release(self) -> None:
        """Make the hidden messages of all queues on hold visible at once."""
        held, self._held = self._held, {}
        for tail in held:
            if isinstance(tail.consume_queue, ConsumeQueue) and not tail.is_deleted:
                tail.consume_queue.release()
        for tail, codes in held.items():
            if tail.consume_queue is not None and codes:
                self.tell(tail, tail.consume_queue.max_offset, codes)

    def is_held(self, topic: str) -> bool:
        """Return whether a queue of *topic* is on hold."""
        return any(tail.topic == topic for tail in self._held)

    def _wake(self, run: Run) -> None:
        """Notify waiting readers of new messages and their tags."""
        held = self._held.get(run.tail)
        codes = {code for _, _, code in CONSUME_QUEUE_UNIT.iter_unpack(b"".join(run.units))}
        if held is None:
            self.tell(run.tail, run.first_offset + run.count, codes)
        else:
            held |= codes

    def tell(self, tail: QueueTail, max_offset: int, tags_codes: Set[int]) -> None:
        """Notify readers that wait for *tags_codes* in a queue, which ends at *max_offset*."""
        if tail.waiters:
            tail.waiters.arrived(tail, max_offset, tags_codes)
        watcher = self.watchers.get(tail.topic)
        if watcher is not None:
            watcher.arrived(tail.topic, tail.queue_id)

    def wake_readers(self, queue: UnitQueue, tags_code: int) -> None:
        """Notify readers that wait for a message whose entry was wrong."""
        tail = self._tail(queue.topic, queue.queue_id)
        self.tell(tail, queue.max_offset, {tags_code})

    def _open_queue(self, tail: QueueTail) -> UnitQueue:
        queue = self._queues.get_or_create(tail.topic, tail.queue_id, batch=tail.is_batch)
        tail.consume_queue = queue
        return queue

    def _fall_behind(self, log_offset: int, error: OSError | StoreError) -> None:
        self.offset = log_offset
        shortage = shortage_of(error) if isinstance(error, OSError) else None
        if shortage is None:
            self.behind = DiskFullError(
                f"a consume queue or the index cannot grow ({error}): free disk space; "
                "messages already accepted are safe in the commit log"
            )
        else:
            self.behind = TooManyOpenFilesError(
                shortage.errno,
                f"a consume queue or the index cannot be opened: {shortage}; messages already "
                "accepted are safe in the commit log",
            )
        self._reput.wake()

    def catch_up(self, bound: int) -> bool:
        """Dispatch a part of the log up to *bound*; return whether there is more to do.

        Raises:
            StoreError, OSError: dispatch has stopped at ``offset``.
        """
        stop = min(bound, self.offset + CATCH_UP_BYTES)
        while self.offset < stop:
            if not self._redispatch_plain(stop):
                self._redispatch_one()
        if self.offset < bound:
            return True
        self.behind = None
        return False

    def _redispatch_plain(self, stop: int) -> bool:
        """Dispatch the plain records before *stop*; return False if the next one is not plain."""
        begin = self.offset
        stretch = self._log.find_mapping(begin)
        if stretch is None or begin < self._by_record_until:
            return False
        mapping, base, _ = stretch
        position, count, store_time_ms, runs, keys = walk_plain(
            mapping, begin - base, stop - base, base, False
        )
        group = self._runs_in(runs) if count and self._is_unindexed(begin) else None
        if group is None:
            self._by_record_until = base + position
            return False
        staged = StagedMessages(begin)
        staged.runs, staged.end = group, base + position
        self._redispatch(staged, store_time_ms, keys)
        return True

    def _redispatch(
        self, staged: StagedMessages, store_time_ms: int, timed_keys: bytes = b""
    ) -> None:
        behind, self.behind = self.behind, None
        self.dispatch(staged, store_time_ms, timed_keys)
        if self.behind is not None:
            raise self.behind
        self.behind = behind

    def _is_unindexed(self, log_offset: int) -> bool:
        return self._index is None or self._index.end_commit_log_offset < log_offset

    def _runs_in(self, found: list[PlainRun]) -> list[Run] | None:
        """Return the runs in dispatch's form; None if their records need single checks."""
        runs = []
        for topic, queue_id, first_offset, count, units, start, end, _ in found:
            tail = self._tail(topic, queue_id)
            if tail.is_batch or self._is_deleted(topic, start):
                return None
            run = Run.empty_at(tail, start)
            run.first_offset, run.count, run.end = first_offset, count, end
            run.units.append(units)
            runs.append(run)
        return runs

    def _redispatch_one(self) -> None:
        log_offset = self.offset
        data = self._log.record_at(log_offset)
        if not data:
            self.offset = self._log.next_file_offset(log_offset)
            return
        record = check_record(data, 0, len(data), log_offset, False).record
        self._redispatch(self._stage_anew(record), record.store_time_ms)

    def _stage_anew(self, record: Record) -> StagedMessages:
        """Return a record's keys and its run in each queue; deleted topics have neither."""
        own = self._tail(record.topic.decode(), record.queue_id)
        units, keys = expected(record, is_batch=own.is_batch, delay_ms=self._delay_ms)
        staged = StagedMessages(record.offset)
        staged.end = record.end_offset
        for unit in units:
            topic, queue_id, first_offset, count = unit.place
            if not self._is_deleted(topic, record.offset):
                run = Run.empty_at(self._tail(topic, queue_id), record.offset)
                run.first_offset, run.count, run.batch_count = first_offset, count, count
                run.units.append(CONSUME_QUEUE_UNIT.pack(*unit.fields(is_batch=False)))
                run.end = record.end_offset
                staged.runs.append(run)
        if not self._is_deleted(own.topic, record.offset):
            for key in keys[self._count_indexed(record.offset, len(keys)) :]:
                staged.packed_keys += INDEX_KEY.pack(key, record.offset)
        return staged

    def _count_indexed(self, log_offset: int, key_count: int) -> int:
        """Return how many keys of a message a failed attempt has already added."""
        index = self._index
        if index is None or log_offset > index.end_commit_log_offset:
            return 0
        if log_offset < index.end_commit_log_offset:
            return key_count
        return len(index.hashes_at_end())
