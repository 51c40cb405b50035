"""The queues that this consumer holds: takes them over, reads, releases and resets them.

A consumer takes over a queue at the group's committed offset. The previous owner may keep the queue
until it learns of the change, so unless this member is alone it reads the offset again after
`hand_over_s`. A released queue is committed at once and again when its in-flight messages are
finished. In orderly mode it is unlocked only then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from rockhopper.client.consuming.fetching import Fetcher
from rockhopper.client.consuming.handout import Handout
from rockhopper.client.consuming.locks import ConsumerLocks
from rockhopper.client.consuming.options import StartFrom
from rockhopper.client.consuming.process_queue import ProcessQueue, Room
from rockhopper.client.consuming.progress import Progress
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import ClientError
from rockhopper.client.queues import MessageQueue
from rockhopper.tasks import (
    end_task,
    end_tasks,
    keep_running,
    run_in_background,
)

log = logging.getLogger(__name__)

# If a queue cannot be locked, the new owner waits only hand_over_s; the previous owner uses this
# share of it to finish its in-flight messages.
_FINISH_SHARE = 0.6
# A broker's lock expires after 60 s.
_RENEW_S = 15.0
_LOOK_AGAIN_S = 0.25
_IDLE_COMMIT_S = 0.2
_RELEASE_AT_CLOSE_S = 1.0


class Owner(Protocol):
    """The consumer that owns the queues."""

    def released(self) -> None:
        """Handle the complete release of a queue."""

    def failed(self, error: BaseException) -> None:
        """Handle the final failure of a background task of the consumer."""


class Assignment:
    """The process queues of one consumer and the tasks that fill them."""

    def __init__(
        self,
        settings: ConsumerSettings,
        progress: Progress,
        offsets: QueueOffsets,
        fetcher: Fetcher,
        handout: Handout,
        shared_room: Room,
        locks: ConsumerLocks | None,
        owner: Owner,
    ) -> None:
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self._settings = settings
        self._progress = progress
        self._offsets = offsets
        self._fetcher = fetcher
        self._handout = handout
        self._shared_room = shared_room
        self._locks = locks
        self._owner = owner
        self._fetching: dict[MessageQueue, asyncio.Task[None]] = {}
        self._releasing: dict[MessageQueue, asyncio.Task[None]] = {}
        self._commits: set[asyncio.Task[None]] = set()
        self._idle_commit: asyncio.TimerHandle | None = None
        self._committing: dict[MessageQueue, asyncio.Lock] = {}

    @property
    def to_lock(self) -> set[MessageQueue]:
        """The queues whose locks must be renewed: those held, and those still being finished."""
        return set(self.held) | set(self._releasing)

    def is_releasing(self, queue: MessageQueue) -> bool:
        """Whether the queue is being released and still has unfinished messages."""
        return queue in self._releasing

    async def take_over(
        self,
        queue: MessageQueue,
        start: StartFrom,
        *,
        is_alone: bool,
        waits_for_word: bool = False,
    ) -> None:
        """Read a queue from the group's committed offset, else from `start`. Raises ClientError.

        With `waits_for_word`, nothing is delivered from the queue before `suspend(…, False)`.
        """
        offset = await self._progress.load(queue)
        is_new = offset is None
        if offset is None:
            offset = await self._resolve(queue, start)
            # Commit the start at once: the next owner must start here too, even without a message.
            await self._progress.store_first(queue, offset)
        held = ProcessQueue(
            queue,
            offset,
            room=Room(
                self._settings.queue_count_max, self._settings.queue_bytes_max, self._shared_room
            ),
        )
        held.pause(self._handout.pauses.cover(queue))
        held.is_suspended = waits_for_word
        self.held[queue] = held
        waits = not (is_new or is_alone or self._settings.orderly or self._settings.broadcast)
        self._fetch(held, self._settings.hand_over_s if waits else 0.0)
        log.debug("%s is assigned, from offset %d", queue, offset)

    async def has_begun(self, queues: Sequence[MessageQueue], start: StartFrom) -> bool:
        """Whether the group has a committed offset in one of a topic's *queues*.

        Raises ClientError.

        If it has none, this call commits start offsets in all of them. Otherwise another member,
        which finds this member's offsets, would treat its own queues as newly created.
        """
        offsets = await asyncio.gather(*(self._progress.load(queue) for queue in queues))
        if any(offset is not None for offset in offsets):
            return True
        starts = await asyncio.gather(*(self._resolve(queue, start) for queue in queues))
        # Concurrently: if the process is killed here, most likely all or none are stored.
        await asyncio.gather(*map(self._progress.store_first, queues, starts))
        return False

    def give_up(self, queue: MessageQueue) -> None:
        """Stop reading a queue and release it in the background."""
        held = self.held.pop(queue)
        self._stop_fetching(queue)
        held.drop_waiting()
        held.is_dropped = True
        task = run_in_background(self._release(held), f"giving up {queue}")
        self._releasing[queue] = task
        task.add_done_callback(lambda _: self._released(queue))

    def lose(self, queue: MessageQueue) -> None:
        """Stop reading a queue that another member already owns; commits nothing."""
        held = self.held.pop(queue, None)
        if held is not None:
            self._stop_fetching(queue)
            held.drop_waiting()
            held.is_dropped = held.is_lost = True

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset; forget the fetched and delivered messages."""
        held = self.held.get(queue)
        if held is not None:
            held.reset(offset)
            self._fetch(held, 0.0)
            self.commit_soon(held)

    def suspend(self, queues: Iterable[MessageQueue], is_suspended: bool) -> None:
        """Suspend or resume delivery from the queues that are held."""
        for queue in queues:
            if (held := self.held.get(queue)) is not None:
                held.is_suspended = is_suspended
                self._handout.offer(held)

    def pauses_changed(self) -> None:
        """Apply the application's current pauses to every queue."""
        for held in self.held.values():
            held.pause(self._handout.pauses.cover(held.queue))
            self._handout.offer(held)

    def offer_all(self) -> None:
        """Put every queue with deliverable messages back in line."""
        for held in self.held.values():
            self._handout.offer(held)

    def commit_soon(self, held: ProcessQueue) -> None:
        """Commit one queue in the background."""
        lock = self._committing.get(held.queue)
        if lock is None or not lock.locked():  # else the next round commits it
            self._spawn(self._commit(held))

    def commit_all_soon(self) -> None:
        """Commit every queue in the background, because a member joins or leaves."""
        for held in self.held.values():
            if held.position != held.committed:
                self.commit_soon(held)

    def idle(self, _held: ProcessQueue) -> None:
        """Schedule a commit, because all messages received so far are finished."""
        if self._idle_commit is None:
            loop = asyncio.get_running_loop()
            self._idle_commit = loop.call_later(_IDLE_COMMIT_S, self._commit_idle)

    async def commit(self) -> list[ClientError]:
        """Commit every queue; return the errors."""
        outcomes = await asyncio.gather(
            *(self._commit(held) for held in list(self.held.values())), return_exceptions=True
        )
        failures: list[ClientError] = []
        for outcome in outcomes:
            if isinstance(outcome, ClientError):
                failures.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        return failures

    def stop_fetching(self) -> None:
        """Stop fetching and drop the undelivered messages."""
        for queue in list(self._fetching):
            self._stop_fetching(queue)
        for held in self.held.values():
            held.drop_waiting()

    def abandon(self) -> Awaitable[object]:
        """Cancel all background work and commit nothing more; the result can be awaited."""
        self.stop_fetching()
        if self._idle_commit is not None:
            self._idle_commit.cancel()
        return end_tasks([*self._releasing.values(), *self._commits])

    async def close(self) -> None:
        """Commit and unlock every queue; in-flight messages stay unfinished."""
        if self._idle_commit is not None:
            self._idle_commit.cancel()
        releasing = list(self._releasing.values())
        if releasing:
            # All in-flight messages are finished by now: only commits remain.
            await asyncio.wait(releasing, timeout=_RELEASE_AT_CLOSE_S)
        await end_tasks(releasing)
        await asyncio.gather(*self._commits, return_exceptions=True)
        for failure in await self.commit():
            log.warning("the last offsets could not be committed: %s", failure)
        if self._locks is not None:
            await self._locks.unlock(self.to_lock)
        for held in self.held.values():
            held.is_dropped = True
        self.held.clear()

    def _fetch(self, held: ProcessQueue, delay_s: float) -> None:
        self._stop_fetching(held.queue)
        self._fetching[held.queue] = keep_running(
            partial(self._fetch_after, held, delay_s),
            f"reading {held.queue}",
            on_failure=self._owner.failed,
        )

    async def _fetch_after(self, held: ProcessQueue, delay_s: float) -> None:
        if delay_s > 0:
            await asyncio.sleep(delay_s)
            await self._wait_for_release(held.queue)
            try:
                committed = await self._progress.load(held.queue)
            except ClientError:
                committed = None  # the offset read before is good enough: no message is lost
            if committed is not None and held.fetch_offset == held.committed:
                held.fetch_offset = held.committed = committed
        await self._fetcher.run(held)

    def _stop_fetching(self, queue: MessageQueue) -> None:
        task = self._fetching.pop(queue, None)
        if task is not None:
            end_task(task)

    async def _release(self, held: ProcessQueue) -> None:
        try:
            # Lock before anything else: the new owner checks the lock after hand_over_s.
            needs_lock = held.in_flight and not self._settings.orderly  # orderly has it already
            is_locked = bool(needs_lock) and await self._lock(held.queue)
            await self._commit_or_remember(held)
            await self._finish(held, is_locked)
            held.is_lost = True
            if held.position > held.committed:
                await self._commit_or_remember(held)
        finally:
            if self._locks is not None:
                await self._locks.unlock([held.queue])

    async def _lock(self, queue: MessageQueue) -> bool:
        if self._locks is None:
            return False
        await self._locks.lock([queue])
        return self._locks.holds(queue)

    async def _finish(self, held: ProcessQueue, is_locked: bool) -> None:
        """Wait for handlers to finish in-flight messages while the lock holds off the new owner.

        In orderly mode, wait without a limit.
        """
        settings = self._settings
        if settings.orderly:
            if held.in_flight:
                await asyncio.wait([held.drained()])
            return
        patience_s = settings.hand_over_s * _FINISH_SHARE
        if is_locked:
            patience_s = max(patience_s, settings.close_timeout_s)
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + patience_s
        while held.in_flight and (left_s := deadline_s - now_s()) > 0:
            await asyncio.wait([held.drained()], timeout=min(left_s, _RENEW_S))
            if held.in_flight and is_locked:
                await self._lock(held.queue)
        if held.in_flight:
            log.warning(
                "%s is given up with %d messages in progress, which another member starts again: "
                "their handlers took longer than %g s%s",
                held.queue,
                held.in_flight,
                patience_s,
                " (close_timeout_s)" if is_locked else "",
            )

    async def _wait_for_release(self, queue: MessageQueue) -> None:
        """Return when no other member is finishing messages of a queue, or after `close_timeout_s`.

        Other client implementations lock queues only in orderly mode, so their members are not
        waited for.
        """
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        while not await asyncio.shield(
            run_in_background(self._is_free(queue), f"looking for the lock of {queue}")
        ):
            if now_s() - began_s >= self._settings.close_timeout_s:
                log.warning(
                    "%s is read while another member still has messages of it in progress: it "
                    "has not released it within %g s (close_timeout_s)",
                    queue,
                    self._settings.close_timeout_s,
                )
                return
            log.debug("%s is still in progress at another member", queue)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _is_free(self, queue: MessageQueue) -> bool:
        if self._locks is None:
            return True
        refused, _ = await self._locks.lock([queue])
        await self._locks.unlock([queue])
        return queue not in refused

    def _released(self, queue: MessageQueue) -> None:
        self._releasing.pop(queue, None)
        self._owner.released()

    async def _commit_or_remember(self, held: ProcessQueue) -> None:
        try:
            await self._commit(held)
        except ClientError as error:
            log.debug("%s could not be committed when it was given up: %s", held.queue, error)
            self._progress.remember(held.queue, held.position)

    async def _commit(self, held: ProcessQueue) -> None:
        if held.position == held.committed:
            return
        # Do not send the same offset again while a slow broker has not answered.
        async with self._committing.setdefault(held.queue, asyncio.Lock()):
            offset = held.position
            if offset != held.committed:
                await self._progress.store(held.queue, offset)
                held.committed = offset

    def _commit_idle(self) -> None:
        self._idle_commit = None
        self.commit_all_soon()

    def _spawn(self, commit: Coroutine[Any, Any, None]) -> None:
        task = run_in_background(_commit_quietly(commit), "a commit")
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def _resolve(self, queue: MessageQueue, start: StartFrom) -> int:
        if start == "earliest":
            return await self._offsets.min_offset(queue)
        if start == "latest":
            return await self._offsets.max_offset(queue)
        time_ms = round(start.timestamp() * 1000) if isinstance(start, datetime) else start
        assert isinstance(time_ms, int)
        return await self._offsets.offset_at(queue, time_ms)


async def _commit_quietly(commit: Coroutine[Any, Any, None]) -> None:
    try:
        await commit
    except (ClientError, OSError) as error:
        log.debug("offsets could not be committed, will retry: %s", error)
