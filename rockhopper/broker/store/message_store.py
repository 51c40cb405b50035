"""MessageStore: the interface of the store.

A write takes three steps, so that many messages cost one system call:

    store.staging.read_clock()      one clock read for the pass
    store.staging.stage(...)        any number of times: builds records, assigns queue offsets
    store.commit()                  one write, then dispatch to consume queues and index

``append_encoded`` writes records that compiled code has encoded; ``safe_point.hand_on`` dispatches.

A record is *safe* once it may be acknowledged and read (safe_point.py): when it is written; under
SYNC_FLUSH, when it is on disk; and with replicas, when they have it. ``safe_point.when`` is the
one way to wait for that.

Everything here belongs to the event loop's thread. Three things run elsewhere: fsync (flush.py),
making the next file, and deleting old ones (retention.py).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import structlog

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.store.dispatch import Dispatch, ReputService
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.store.files.mapped_file import DRAFTS_MAX
from rockhopper.broker.store.flush import DerivedFlush, FlushService
from rockhopper.broker.store.opening import WHOLE, Extent, OpenedStore
from rockhopper.broker.store.put import QUICK_S, MessageToStore, PutResult, PutTimes
from rockhopper.broker.store.queues.queue_tail import (
    QueueTail,
    Run,
    StagedMessages,
    take_offsets,
)
from rockhopper.broker.store.reading.message_reader import MessageReader
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.safe_point import SafePoint, StoreListener
from rockhopper.broker.store.scrubbing import Scrub, ScrubService, ScrubSettings, Wake
from rockhopper.broker.store.staging import MultiDispatch, Staging
from rockhopper.broker.store.store_reading import StoreReading
from rockhopper.broker.store.visibility import Visibility
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.expected import DelayOf

log = structlog.get_logger("broker.store")


RELEASE_IDLE_INTERVAL_S = 60.0
TAIL_S = 1.0


class MessageStore:
    """One store directory, locked, recovered and open.

    Callers use its parts: ``staging`` and ``log`` to write, ``reading`` for queries, ``safe_point``
    to wait, ``dispatch`` and ``visibility`` for what readers see, ``retention`` for disk space.
    """

    def __init__(
        self,
        config: StoreConfig,
        opened: OpenedStore,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        batch_topic: Callable[[str], bool],
    ) -> None:
        self.opened = opened
        """The files, and the result of recovery."""
        self.log = opened.commit_log
        self.retention = opened.retention
        self.staging = Staging(
            opened.commit_log,
            partial(_new_tail, opened, batch_topic),
            opened.delay_ms,
            MultiDispatch(opened.queues.topics()),
            now_ms,
        )
        self._reput = ReputService(self.catch_up)
        self.dispatch = Dispatch(
            opened.commit_log,
            opened.queues,
            opened.index,
            opened.delay_ms,
            self.staging.tail,
            opened.deleted_topics.hides,
            self._reput,
        )
        self.visibility = Visibility(opened, self.dispatch, self.staging)
        # Recovery has dispatched and synced everything up to here.
        self.log.flushed_time_ms = self.dispatch.store_time_ms
        self.failure: StoreFailedError | None = None
        # Whether its files may be damaged; False if its broker was only deposed.
        self._is_damaged = False
        # The offset up to which a follower knows the topics of messages; None if not a follower.
        self._follows_to: int | None = None
        # Whether another process may own the directory now.
        self.is_lost = False
        # Why a master rejects messages although its disk is fine.
        self.refusal: StoreError | None = None
        self.listeners: set[StoreListener] = set()
        self.put_times = PutTimes()
        self.flush_service = FlushService(
            self.log,
            DerivedFlush(opened, self.dispatch),
            opened.mappings,
            self,
            flush_interval_ms=config.flush_interval_ms,
            queue_flush_interval_ms=config.consume_queue_flush_interval_ms,
            queue_flush_thorough_interval_ms=config.consume_queue_flush_thorough_interval_ms,
        )
        self.safe_point = SafePoint(
            config, self.log, self.dispatch, self.flush_service, self.listeners
        )
        wake = Wake()
        self.reading = StoreReading(config, opened, self.dispatch, wake)
        scrub = Scrub(
            opened,
            self.reading.places,
            self.reading.mender,
            self.reading.reader,
            dispatched=lambda: self.dispatch.offset,
        )
        self.scrub = ScrubService(
            scrub,
            self.reading.mender,
            self.dispatch,
            ScrubSettings.from_config(config),
            wall_ms,
            wake,
        )
        self._upkeep = Upkeep(opened, self.reading.reader)

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int] | None = None,
        batch_topic: Callable[[str], bool] = lambda topic: False,
        known_offsets: Callable[[], Mapping[QueueKey, int]] = dict,
        delay_ms: DelayOf = lambda level: 1000,
        store_host: bytes = b"\x7f\0\0\1\0\0\x2a\x9f",
        extent: Extent = WHOLE,
    ) -> "MessageStore":
        """Lock, load and recover a store directory; block until every record is dispatched.

        *known_offsets* returns the queues, and the offsets up to which consumers received messages;
        it is called if the log has lost its end. *now_ms* never goes back; *wall_ms* decides the
        hours named in settings.

        Raises:
            StoreLockedError: another process has it open.
            StoreError: it cannot be opened as it is; the message says what to do.
            OSError: a directory or file cannot be made or read.
        """
        wall_ms = wall_ms or now_ms
        opened = OpenedStore(
            config,
            now_ms=now_ms,
            wall_ms=wall_ms,
            store_host=store_host,
            delay_ms=delay_ms,
            batch_topic=batch_topic,
            known_offsets=known_offsets,
            extent=extent,
        )
        return cls(config, opened, now_ms=now_ms, wall_ms=wall_ms, batch_topic=batch_topic)

    async def start(self) -> None:
        """Start to flush, catch up and delete expired files; needs a running event loop."""
        self.flush_service.start()
        self.opened.mappings.drafts_max = DRAFTS_MAX
        self._reput.start()
        self.scrub.start()
        await self.retention.start()

    def abandon(self) -> None:
        """Release all files without any write, like a killed process; for a store not started."""
        self.opened.close(clean=False)

    def flush_now(self) -> None:
        """Flush the log, then dispatch and answer what waited for it; block for the disk.

        Raises:
            StoreError: as from the flush service; it does not mark the store as failed.
        """
        self.note_flushed(self.log.flush())

    async def close(self, *, opens_again: bool = False) -> None:
        """Dispatch and flush everything, write the checkpoint, and mark the stop as clean.

        After a failed fsync nothing is flushed and ``abort`` stays, so that the next start reads
        the true content of the disk. The same is true for a deposed store that *opens_again*.
        """
        self.safe_point.close()
        self.visibility.release()
        await self.retention.stop()
        await self._reput.stop()
        await self.scrub.stop()
        self.flush_service.stop()
        ends_clean = self.failure is None or not (self._is_damaged or opens_again)
        if ends_clean:
            self.opened.mappings.release_all()
            try:
                self._finish()
            except OSError as error:
                self.fail(StoreFailedError(f"the store could not be flushed at the end: {error}"))
            except StoreFailedError as error:
                self.fail(error)
        is_whole = not self._is_damaged and self.dispatch.behind is None
        self.opened.close(clean=ends_clean and is_whole)

    def _finish(self) -> None:
        self.log.drop_torn()
        self.note_flushed(self.log.flush())
        try:
            while self.catch_up():
                pass
        except (StoreError, OSError) as error:
            log.error("queues and index are behind the log and will be rebuilt", reason=str(error))
        self.flush_service.derived.flush_all()
        self.flush_service.derived.save_checkpoint()

    def check_writable(self) -> None:
        """Raise the StoreError to return to producers if messages cannot be accepted now."""
        if self.failure is not None:
            raise self.failure
        if self.retention.space.full_reason is not None:
            raise DiskFullError(self.retention.space.full_reason)
        if self.dispatch.behind is not None:
            raise self.dispatch.behind
        if self.refusal is not None:
            raise self.refusal
        self.safe_point.check_waiting()

    @property
    def is_writable(self) -> bool:
        """Whether messages are accepted now."""
        return (
            self.failure is None
            and self.retention.space.full_reason is None
            and self.dispatch.behind is None
            and self.refusal is None
        )

    def commit(self) -> int:
        """Write the pass and return the offset up to which the log is written.

        Raises:
            StoreError: nothing of the pass is visible; its queue offsets are free again.
        """
        begun_s = time.perf_counter()
        try:
            staged = self.staging.write()
        except StoreError:
            self._hand_on(self.staging.take_written())
            raise
        elapsed_s = time.perf_counter() - begun_s
        self._count_put(elapsed_s, staged)
        self._hand_on(staged)
        return self.log.written_offset

    def append_encoded(self, records: bytes, runs: list[Run], packed_keys: bytes) -> StagedMessages:
        """Write records that compiled code has encoded for ``staging.place``.

        What is staged is written first. The caller must pass the result to ``safe_point.hand_on``
        before anything else runs.

        Raises:
            StoreError: nothing of it is in the log.
        """
        if self.log.staged_offset > self.log.written_offset:
            self.commit()
        begun_s = time.perf_counter()
        staged = StagedMessages(self.log.staged_offset)
        self.log.append_encoded(records)
        staged.runs, staged.end = runs, self.log.written_offset
        staged.packed_keys += packed_keys
        take_offsets(runs)
        self._count_put(time.perf_counter() - begun_s, staged)
        return staged

    def _count_put(self, elapsed_s: float, staged: StagedMessages | None) -> None:
        messages = 0 if staged is None else sum([run.count for run in staged.runs])
        if elapsed_s < QUICK_S:
            self.put_times.quick += messages
        else:
            self.put_times.record(elapsed_s, messages)

    def _hand_on(self, staged: StagedMessages | None) -> None:
        if staged is not None:
            self.safe_point.hand_on(staged)

    def put(self, message: MessageToStore) -> PutResult:
        """Store one message outside of a pass: for everything but the producers' hot path.

        Tags and keys are taken from its properties.

        Raises:
            StoreError: it is not stored.
        """
        self.check_writable()
        self.staging.read_clock()
        tail = self.staging.tail(message.topic, message.queue_id)
        log_offset = self.staging.stage(
            tail,
            message.body,
            decode_properties(message.properties),
            message.flag,
            message.sys_flag,
            message.born_time_ms,
            message.born_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )
        queue_offset = tail.next_offset - 1
        end = self.commit()
        return PutResult(log_offset, queue_offset, end, self.log.store_time_ms)

    def catch_up(self) -> bool:
        """Dispatch a limited part of the backlog; return whether there is more to do.

        Raises:
            StoreError, OSError: dispatch has stopped at ``dispatch.offset``.
        """
        bound = self.safe_point.high_watermark
        if self._follows_to is not None:
            bound = min(bound, self._follows_to)
        return self.dispatch.catch_up(bound)

    def append_raw(self, offset: int, data: bytes) -> None:
        """Append bytes of a master's log as they arrive; they wait for ``follow_to``.

        A kill preserves all received bytes except an incomplete last record.

        Raises:
            LogMismatchError: they do not continue the log.
            StoreError: only the bytes before ``log.received_offset`` are in the log.
        """
        if self.failure is not None:
            raise self.failure
        if self.retention.space.full_reason is not None:
            raise DiskFullError(self.retention.space.full_reason)
        self.log.append_raw(offset, data)

    def follow_to(self, end_offset: int) -> None:
        """Let messages before *end_offset* into their queues, once they are safe here.

        A copy of a log without epochs is opened with SYNC_FLUSH, so that no unit outlives its
        record.
        """
        self._follows_to = end_offset
        self.log.store_time_ms = self.dispatch.store_time_ms
        self._reput.wake()

    def note_async_flush(self) -> None:
        """Record that queues may soon be ahead of the disk; call it before ``flush_each``. Blocks.

        Raises:
            OSError: it is not recorded: the next start would take the loss of a crash for damage.
        """
        inventory.no_longer_sync(self.opened.layout)

    def lead(self) -> None:
        """Accept writes from now on, as a former follower; its whole log must be dispatched."""
        assert self.dispatch.offset == self.log.written_offset
        self._follows_to = None
        self.staging.begin_anew()
        self.staging.multi_dispatch.begin_anew(self.opened.queues.topics())

    def depose(self, error: StoreFailedError) -> None:
        """Stop all writes, and answer waiting requests with *error*.

        The caller must then close and reopen the store.
        """
        self.log.seal(error)
        self.failure = error
        self.safe_point.fail(error)

    def note_flushed(self, offset: int) -> None:
        """The log is on disk up to *offset*: dispatch and acknowledge the safe messages."""
        self.safe_point.flushed(offset)
        if self._follows_to is not None:
            self._reput.wake()
        for listener in self.listeners:
            listener.store_flushed()
        self._upkeep.take_turn()

    def fail(self, error: StoreFailedError) -> None:
        """Refuse messages from now on, because files may be damaged."""
        self._is_damaged = True
        if self.failure is not None:
            return
        self.failure = error
        log.critical("the store refuses messages from now on", reason=str(error))
        self.safe_point.fail(error)
        for listener in self.listeners:
            listener.store_failed(error)

    def look_after_files(self) -> None:
        """Fail, and acknowledge nothing more, if lock or commit log were moved or replaced."""
        lost = None if self.failure is not None else self.opened.watch.describe_loss()
        if lost is not None:
            self.is_lost = True
            self.fail(StoreFailedError(lost))


class Upkeep:
    """Tasks that run now and then after a flush, to keep memory and CPU in bounds."""

    def __init__(self, opened: OpenedStore, reader: MessageReader) -> None:
        self._opened = opened
        self._reader = reader
        self._release_idle_at_s = 0.0
        self._releasing: Iterator[int] | None = None
        # Records older than one to two times TAIL_S are no longer in the log's tail.
        self._next_tail = reader.tail_start
        self._tail_until_s = 0.0

    def take_turn(self) -> None:
        """Move the start of the log's tail, and unmap some idle queues, if it is time."""
        now_s = time.monotonic()
        opened = self._opened
        if now_s >= self._tail_until_s:
            self._tail_until_s = now_s + TAIL_S
            end = opened.commit_log.written_offset
            self._reader.tail_start, self._next_tail = self._next_tail, end
        if self._releasing is None and now_s >= self._release_idle_at_s:
            self._release_idle_at_s = now_s + RELEASE_IDLE_INTERVAL_S
            self._releasing = opened.queues.release_idle()
        if self._releasing is not None and next(self._releasing, None) is None:
            self._releasing = None
            opened.mappings.forget_unmapped()


def _new_tail(
    opened: OpenedStore, batch_topic: Callable[[str], bool], topic: str, queue_id: int
) -> QueueTail:
    next_offset = opened.next_queue_offset(topic, queue_id)
    tail = QueueTail(topic, queue_id, next_offset, is_batch=batch_topic(topic))
    tail.consume_queue = opened.queues.get(topic, queue_id)
    return tail
