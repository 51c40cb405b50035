"""The flush service: the one thread that calls fsync, and the responses that wait for it.

ASYNC_FLUSH: the commit log is flushed every ``flush_interval_ms``, whatever the send rate.

SYNC_FLUSH: in addition, it is flushed at once if a producer waits; messages written during one
fsync are covered by the next one (group commit). A crowd of producers gets an fsync together.

Consume queues and index are flushed at their own intervals, one file at a time. The files of new
queues are made in the same way, a moment after their first messages (mapped_file.py). In between
the log is flushed whenever it is due or a producer waits. The checkpoint is saved after the fsyncs
that it covers.

Without a free file descriptor nothing can be flushed. Then everything stays dirty, the checkpoint
does not advance, and the flush is tried again a moment later.

A failed fsync is never repeated: the kernel may have dropped the pages, and a second try would
succeed without them. The service stops and reports the failure; from then on the store refuses
writes.

Example under SYNC_FLUSH: message 1 is written, and an fsync starts. Messages 2 and 3 are written
meanwhile. When the fsync ends, message 1 is acknowledged, and a second fsync covers both 2 and 3. A
power cut during it loses 2 and 3, which were not acknowledged.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import structlog

from rockhopper.broker.server.loop.latencies import Latencies
from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.files import checkpoint as checkpoints
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.disk import DISK_FULL_ERRNOS
from rockhopper.broker.store.files.errors import (
    StoreError,
    StoreFailedError,
    TooManyOpenFilesError,
)
from rockhopper.broker.store.files.mapped_file import Mappings
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.opening import OpenedStore

log = structlog.get_logger("broker.store")

# Called with None once the disk has confirmed, else with the reason why it has not.
Release = Callable[[StoreError | None], None]
EXPIRY_INTERVAL_S = 1.0
SHORTAGE_PAUSE_S = 0.2
DRAFTS_INTERVAL_S = 0.1
HOLD_S = 0.003
CROWD_MIN = 3
SKIPPED_AFTER_A_VAIN_HOLD = 16


class DerivedFlush:
    """The files that are derived from the log, and how far they are on disk.

    Everything here runs in the flush thread, or while it does not run.
    """

    def __init__(self, opened: OpenedStore, dispatch: Dispatch) -> None:
        """Recovery has dispatched and synced everything up to *dispatch*'s offset."""
        self.opened = opened
        self._dispatch = dispatch
        self._queues_time_ms = self._index_time_ms = dispatch.store_time_ms
        self._is_checkpoint_late = False

    @property
    def is_short_of_files(self) -> bool:
        """Whether files of new queues could not be made; the next round tries again."""
        return self.opened.queues.unmade_error is not None

    def steps(self, thorough: bool) -> Iterator[None]:
        """Flush queues with enough to flush, or all of them and the index, one file a step."""
        dispatched_time_ms = self._dispatch.store_time_ms
        yield from self.opened.queues.flush_steps(thorough)
        if not thorough or self.is_short_of_files:
            return
        self._queues_time_ms = dispatched_time_ms
        if self.opened.index is not None:
            yield from self.opened.index.flush_steps()
            self._index_time_ms = dispatched_time_ms

    def flush_all(self) -> None:
        """Flush all queues and the index while nobody appends. Raises as ``steps``."""
        self.opened.queues.flush_all()
        for _ in self.steps(True):
            pass

    def save_checkpoint(self) -> None:
        """Save how far everything is on disk, after the fsyncs.

        Raises:
            TooManyOpenFilesError, OSError: not for a full disk; the old checkpoint is in place.
        """
        saved = self.opened.checkpoint
        commit_log = self.opened.commit_log
        new = StoreCheckpoint(
            commit_log_ms=commit_log.flushed_time_ms,
            consume_queue_ms=self._queues_time_ms,
            index_ms=self._index_time_ms,
            master_flushed_offset=saved.master_flushed_offset,
            confirm_offset=saved.confirm_offset,
            flushed_offset=commit_log.flushed_offset,
        )
        if new == saved:
            return
        try:
            checkpoints.save(self.opened.layout.own_checkpoint, new)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            # The old one is still valid: a crash would only make recovery read more of the log.
            if not self._is_checkpoint_late:
                log.warning("the checkpoint waits for disk space", reason=str(error))
            self._is_checkpoint_late = True
            return
        self._is_checkpoint_late = False
        self.opened.checkpoint = new


class FlushedStore(Protocol):
    """A store, as far as its flush thread reports to it; called in the event loop."""

    def note_flushed(self, offset: int) -> None:
        """Note that the log is on disk up to *offset*."""

    def fail(self, error: StoreFailedError) -> None:
        """Refuse messages from now on."""


class FlushService:
    """Flushes commit log, queues and index in a thread, and reports to the store.

    Without a free file descriptor it asks *mappings* to make room, and tries again.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        derived: DerivedFlush,
        mappings: Mappings,
        store: FlushedStore,
        *,
        flush_interval_ms: int,
        queue_flush_interval_ms: int,
        queue_flush_thorough_interval_ms: int,
    ) -> None:
        self._log = commit_log
        self.derived = derived
        self._mappings = mappings
        self._store = store
        self._interval_s = flush_interval_ms / 1000
        self._queue_interval_s = queue_flush_interval_ms / 1000
        self._thorough_interval_s = queue_flush_thorough_interval_ms / 1000
        self.times = Latencies()
        """How long each flush took that had something to flush; the thread adds to it."""
        self._flushed_offset = -1
        self._wake = threading.Event()
        self._requested = False
        self._stopping = False
        self._stopped = threading.Event()
        now_s = time.monotonic()
        self._log_due_s = now_s + self._interval_s
        self._queues_due_s = now_s + self._queue_interval_s
        self._thorough_due_s = now_s + self._thorough_interval_s
        self._round_ended_s = now_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="store-flush", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Request a flush of the commit log as soon as possible; cheap, from the event loop."""
        if not self._requested:
            self._requested = True
            self._wake.set()

    def stop(self) -> None:
        """End the thread after its current step. Blocks until then; flushes nothing more."""
        self._stopping = True
        self._wake.set()
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except StoreFailedError as error:
            self._call(self._store.fail, error)
        except OSError as error:
            self._call(
                self._store.fail,
                StoreFailedError(
                    f"a file of the store could not be flushed ({error}), so messages are "
                    "refused from now on: check the disk, then restart the broker"
                ),
            )
        except BaseException as error:
            log.error("the flush thread stopped because of a bug", exc_info=error)
            self._call(
                self._store.fail,
                StoreFailedError(
                    f"the flush thread has stopped ({error!r}), so messages are refused from now "
                    "on: restart the broker, and report this with the traceback in its log"
                ),
            )

    def _serve(self) -> None:
        is_short = False
        while not self._stopping:
            due_s = min(self._log_due_s, self._next_round_s())
            self._wake.wait(max(0.0, due_s - time.monotonic()))
            try:
                self._flush_what_is_due()
            except TooManyOpenFilesError as error:
                if not is_short:
                    log.error("flushing waits for a file descriptor", reason=str(error))
                is_short = True
                self._call(self._mappings.make_room)
                self._stopped.wait(SHORTAGE_PAUSE_S)
            else:
                if is_short:
                    log.info("flushing has resumed")
                is_short = False

    def _flush_what_is_due(self) -> None:
        now_s = time.monotonic()
        self._flush_commit_log_if_due(now_s)
        if now_s < self._next_round_s() or self._stopping:
            return
        thorough = now_s >= self._thorough_due_s
        for _ in self.derived.steps(thorough):
            self._flush_commit_log_if_due(time.monotonic())
            if self._stopping:
                return
        self.derived.save_checkpoint()
        self._round_ended_s = time.monotonic()
        self._queues_due_s = self._round_ended_s + self._queue_interval_s
        if thorough:
            self._thorough_due_s = now_s + self._thorough_interval_s

    def _next_round_s(self) -> float:
        """Return when queues are flushed next; earlier if the files of new queues must be made."""
        if self._mappings.drafts and not self.derived.is_short_of_files:
            return min(self._queues_due_s, self._round_ended_s + DRAFTS_INTERVAL_S)
        return self._queues_due_s

    def _flush_commit_log_if_due(self, now_s: float) -> None:
        if self._requested or now_s >= self._log_due_s:
            self._flush_commit_log()
            self._log_due_s = now_s + self._interval_s

    def _flush_commit_log(self) -> None:
        # Cleared before the flush reads the end of the log: a later request is either covered by
        # this flush or sets the event again.
        self._wake.clear()
        self._requested = False
        began_s = time.perf_counter()
        try:
            offset = self._log.flush()
        except TooManyOpenFilesError:
            self.request()
            raise
        if offset != self._flushed_offset:
            self.times.record(time.perf_counter() - began_s)
            self._flushed_offset = offset
        self._call(self._store.note_flushed, offset)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._stopping:
                raise


class GroupCommit:
    """Requests the flushes for producers that wait for the disk: at once, or for a crowd together.

    A crowd is answered at once, and sends again at once. A flush that begins with the first of
    these messages covers few of them, and the others wait for the one after it. So a flush waits
    until as many answers wait as at the end of the last one, but not longer than HOLD_S. After a
    hold in vain, the next flushes begin at once.

    Example: 100 producers have one send under way each. A flush ends; it covers 70 of them, and 30
    have come meanwhile: the crowd is 100. The 70 are answered, and their producers send again. When
    100 answers wait, the next flush begins. Without the hold it would cover 30, and the one after
    it 70. A producer alone is never held, nor are two.

    Belongs to the event loop's thread.
    """

    def __init__(self, service: FlushService, hold_s: float = HOLD_S) -> None:
        self._service = service
        self._hold_s = hold_s
        self._crowd = 0
        self._skipped = 0
        self._is_requested = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _may_hold(self) -> bool:
        return self._crowd >= CROWD_MIN and not self._skipped

    def written(self, waiting_count: int) -> None:
        """Request a flush, now or soon, for what was written; so many answers wait."""
        if not self._may_hold:
            self.flush()
        elif self._timer is None and not self._is_requested:
            self._timer = asyncio.get_running_loop().call_later(self._hold_s, self._end_in_vain)
            self.arrived(waiting_count)

    def arrived(self, waiting_count: int) -> None:
        """End the hold if the crowd is there: so many answers wait."""
        if self._timer is not None and waiting_count >= self._crowd:
            self.flush()

    def flush(self) -> None:
        """Request a flush now."""
        self.close()
        self._is_requested = True
        self._service.request()

    def flushed(self, waiting_count: int) -> None:
        """Note the end of a flush; so many answers wait, with those that it covers."""
        self._is_requested = False
        self._crowd = waiting_count
        self._skipped = max(self._skipped - 1, 0)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_in_vain(self) -> None:
        self._skipped = SKIPPED_AFTER_A_VAIN_HOLD
        self.flush()


class ParkedAnswers:
    """Responses to producers that wait until the log is safe, ordered by offset.

    A response that waits longer than *timeout_ms* is released with the error that *why_not* returns
    for the offset; its message is in the log, and perhaps safe. Belongs to the event loop's thread.
    """

    def __init__(self, timeout_ms: int, why_not: Callable[[int], StoreError]) -> None:
        self._why_not = why_not
        self._timeout_s = timeout_ms / 1000
        self._parked: deque[tuple[int, float, Release, int]] = deque()
        self.answer_count = 0
        """How many responses wait."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, end_offset: int, release: Release, answer_count: int = 1) -> None:
        """Call *release* once the log is safe up to *end_offset*, or with the reason why not."""
        loop = asyncio.get_running_loop()
        self._parked.append((end_offset, loop.time() + self._timeout_s, release, answer_count))
        self.answer_count += answer_count
        if self._timer is None:
            self._timer = loop.call_later(EXPIRY_INTERVAL_S, self._expire)

    async def wait(self, end_offset: int) -> None:
        """Wait until the log is safe up to *end_offset*.

        Raises:
            StoreError: the flush failed or took too long; the message is in the log nevertheless.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def release(error: StoreError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.park(end_offset, release)
        await future

    def release(self, offset: int) -> None:
        """Release the responses up to *offset*."""
        parked = self._parked
        while parked and parked[0][0] <= offset:
            self._take_first()(None)

    def fail(self, error: StoreError) -> None:
        """Release all responses with *error*."""
        while self._parked:
            self._take_first()(error)

    def _take_first(self) -> Release:
        _, _, release, answer_count = self._parked.popleft()
        self.answer_count -= answer_count
        return release

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while self._parked and self._parked[0][1] <= now_s:
            end_offset = self._parked[0][0]
            self._take_first()(self._why_not(end_offset))
        again = bool(self._parked)
        self._timer = loop.call_later(EXPIRY_INTERVAL_S, self._expire) if again else None

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
