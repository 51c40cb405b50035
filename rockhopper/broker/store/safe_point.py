"""The safe point: up to where messages may be acknowledged and read.

    ASYNC_FLUSH   the end of what is written
    SYNC_FLUSH    the end of what is on disk
    replicated    the smaller of that and the offset that the replicas have confirmed

Records after it are in the log, and wait here: their responses, and their dispatch. They are not
visible before: under SYNC_FLUSH a power cut could leave consumer offsets beyond the end of the log,
and a replica set could revoke a message that a consumer has read.

Example: messages 1, 2 and 3 are written, the disk has 1 and 2, and the replicas have 1. Under
SYNC_FLUSH with replicas the safe point is after message 1. After a crash of this master another
one leads, with message 1; nobody had read 2 or 3, and their producers had no acknowledgement.

Belongs to the event loop's thread.
"""

from collections import deque
from collections.abc import Set

from rockhopper.broker.settings.store_config import FlushDiskType, StoreConfig
from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.files.errors import (
    NotReplicatedError,
    StoreBusyError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.store.flush import FlushService, GroupCommit, ParkedAnswers, Release
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.queues.queue_tail import StagedMessages


class StoreListener:
    """A part of the broker that learns what happens to the store, in the event loop."""

    def store_written(self) -> None:
        """More of the log is written, and waits for the disk or for replicas."""

    def store_flushed(self) -> None:
        """The log was flushed, perhaps without anything new."""

    def store_failed(self, error: StoreFailedError) -> None:
        """The store refuses messages from now on."""


class SafePoint:
    """The safe point, and the responses and dispatches that wait for it."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        dispatch: Dispatch,
        flush_service: FlushService,
        listeners: Set[StoreListener],
    ) -> None:
        """*listeners* learn when there is more of the log for replicas to fetch."""
        self._log = log
        self._dispatch = dispatch
        self._group_commit = GroupCommit(flush_service)
        self._listeners = listeners
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC
        self._waiting_bytes_max = config.flush_waiting_bytes_max
        # Messages acknowledged before SYNC_FLUSH was turned on stay safe.
        self._acknowledgeable_offset = 0
        self._replicated_offset: int | None = None
        self._undispatched: deque[tuple[int, StagedMessages]] = deque()
        self._parked = ParkedAnswers(config.sync_flush_timeout_ms, self._build_error)
        self._until_durable = ParkedAnswers(config.sync_flush_timeout_ms, self._build_error)
        self.is_what_is_written = not self._is_sync
        """Whether written messages are safe at once."""
        self.failure: StoreFailedError | None = None

    @property
    def high_watermark(self) -> int:
        """Messages before this commit log offset may be acknowledged."""
        acknowledgeable_offset = self._log.written_offset
        if self._is_sync:
            acknowledgeable_offset = max(self._log.flushed_offset, self._acknowledgeable_offset)
        replicated_offset = self._replicated_offset
        return (
            acknowledgeable_offset
            if replicated_offset is None
            else min(acknowledgeable_offset, replicated_offset)
        )

    def flush_each(self, is_sync: bool) -> None:
        """Make messages safe only once they are on disk, or already once they are written.

        Safe messages stay safe. Not for logs with replicas, which rely on one mode.
        """
        if is_sync == self._is_sync:
            return
        assert self._replicated_offset is None
        self._acknowledgeable_offset = self.high_watermark
        self._is_sync = is_sync
        self.is_what_is_written = not is_sync
        if is_sync:
            self._group_commit.flush()
        else:
            self.moved()

    def replicate(self, replicated_offset: int, timeout_ms: int) -> None:
        """From now on messages also need the replicas' confirmation, see ``confirm``.

        Responses wait *timeout_ms* for the replicas.
        """
        self._replicated_offset = replicated_offset
        self._parked.close()
        self._parked = ParkedAnswers(timeout_ms, self._build_error)
        self.is_what_is_written = False

    def confirm(self, replicated_offset: int) -> None:
        """Record that all required replicas have the log up to an offset; it never goes back."""
        if self._replicated_offset is not None and replicated_offset > self._replicated_offset:
            self._replicated_offset = replicated_offset
            self.moved()

    @property
    def is_busy(self) -> bool:
        """Whether too many bytes wait already."""
        return (
            not self.is_what_is_written
            and self._log.written_offset - self.high_watermark > self._waiting_bytes_max
        )

    def check_waiting(self) -> None:
        """Raise StoreBusyError if too many bytes wait already."""
        if self.is_busy:
            raise StoreBusyError(
                f"[PC_SYNCHRONIZED]broker busy, start flow control for a while: more than "
                f"{self._waiting_bytes_max >> 20} MiB wait for {self._describe_lag()}"
            )

    def hand_on(self, staged: StagedMessages) -> None:
        """Dispatch written records now, or once they are safe."""
        if not self.is_what_is_written:
            self._undispatched.append((self._log.store_time_ms, staged))
            if self._is_sync:
                self._group_commit.written(self._parked.answer_count)
            for listener in self._listeners:
                listener.store_written()
        elif self._dispatch.behind is None:
            self._dispatch.dispatch(staged, self._log.store_time_ms)

    def when(self, end_offset: int, release: Release, answer_count: int = 1) -> None:
        """Call *release* when messages before *end_offset* are safe, perhaps now.

        It sends *answer_count* answers. Its argument is None, or the reason why they are not safe,
        although the log has them.
        """
        if end_offset <= self.high_watermark:
            release(None)
        elif self.failure is not None:
            release(self.failure)
        else:
            self._parked.park(end_offset, release, answer_count)
            self._group_commit.arrived(self._parked.answer_count)

    async def wait(self, end_offset: int) -> None:
        """Return when messages before *end_offset* are safe.

        Raises:
            StoreError: they are not safe, although the log has them.
        """
        if end_offset <= self.high_watermark:
            return
        if self.failure is not None:
            raise self.failure
        await self._parked.wait(end_offset)

    async def wait_for_disk(self, end_offset: int) -> None:
        """Request a flush of the log at once, and return when it is durable up to *end_offset*.

        Raises:
            StoreError: the flush failed or took too long, although the log has the messages.
        """
        if end_offset > self._log.flushed_offset:
            self._group_commit.flush()
            await self._until_durable.wait(end_offset)

    def has_dispatched(self, end_offset: int) -> bool:
        """Return whether all messages before a commit log offset are in their queues."""
        waiting = self._undispatched
        return self._dispatch.behind is None and (not waiting or waiting[0][1].start >= end_offset)

    def flushed(self, offset: int) -> None:
        """Record how far the log is on disk."""
        self._until_durable.release(offset)
        self._group_commit.flushed(self._parked.answer_count)
        self.moved()
        if self._until_durable:
            self._group_commit.flush()
        elif self._is_sync and self._log.written_offset > offset:
            self._group_commit.written(self._parked.answer_count)

    def moved(self) -> None:
        """Dispatch and acknowledge the safe messages. One failed response must not stop others."""
        offset = self.high_watermark
        waiting = self._undispatched
        while waiting and waiting[0][1].end <= offset:
            store_time_ms, staged = waiting.popleft()
            # If dispatch was behind, the reput coroutine may have dispatched them already.
            if staged.start < self._dispatch.offset:
                staged = staged.split_at(self._dispatch.offset)
            if staged.runs and self._dispatch.behind is None:
                self._dispatch.dispatch(staged, store_time_ms)
        self._parked.release(offset)

    def fail(self, error: StoreFailedError) -> None:
        """Answer all waiting and later requests with *error*."""
        self.failure = error
        self._parked.fail(error)
        self._until_durable.fail(error)

    def close(self) -> None:
        """Cancel the timers."""
        self._group_commit.close()
        self._parked.close()
        self._until_durable.close()

    def _describe_lag(self) -> str:
        is_flushed = not self._is_sync or self._log.flushed_offset >= self._log.written_offset
        return "replicas" if self._replicated_offset is not None and is_flushed else "the disk"

    def _build_error(self, end_offset: int) -> StoreError:
        """Return why messages up to *end_offset* were not safe in time."""
        is_held = not self._is_sync or self._log.flushed_offset >= end_offset
        if self._replicated_offset is not None and is_held:
            return NotReplicatedError("the replicas did not confirm the message in time")
        return StoreBusyError("the disk did not confirm the flush in time")
