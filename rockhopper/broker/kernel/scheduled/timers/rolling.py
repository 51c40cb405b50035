"""Rolling: a message that waits longer than the commit log is kept is appended again in time.

The new record says in TIMER_ORIGIN which one it replaces, and counts in TIMER_ROLL_TIMES. It is
due when the old one was. Ages are parts of fileReservedTime:

    4/6     what has more than 1/6 to wait is appended again
    5/6     everything is, unless it goes in the next minutes
"""

from collections.abc import Callable, Iterator

import structlog

from rockhopper.broker.kernel.scheduled.timers.copies import TIMER_ORIGIN
from rockhopper.broker.kernel.scheduled.timers.entries import Entry
from rockhopper.broker.kernel.scheduled.timers.following import (
    TIMER_QUEUE_ID,
    TimerQueue,
    origin_text,
)
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Copy
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TIMER_TOPIC
from rockhopper.protocol.properties import PROPERTY_TIMER_ROLL_TIMES

log = structlog.get_logger("broker.timers")

PASS_COUNT_MAX = 64
# As often as that by the wall clock, and when it was set back.
INTERVAL_MS = 60_000


class Rolling:
    """Appends old messages again."""

    def __init__(
        self,
        store: MessageStore,
        index: TimerIndex,
        queue: TimerQueue,
        reserved_ms: Callable[[], int],
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._index = index
        self._queue = queue
        self._reserved_ms = reserved_ms
        self._now_ms = now_ms
        self._checked_ms = 0
        self._walk: Iterator[Entry | None] | None = None
        self._walk_began_ms = 0
        self._has_found = False
        self.rolled_count = 0

    def roll(self) -> bool:
        """Look for some, a step further if it is time to, and append them again.

        Returns whether there may be more.

        Raises:
            StoreError, OSError: not now.
        """
        if self._walk is None:
            now_ms = self._now_ms()
            is_early = self._checked_ms <= now_ms < self._checked_ms + INTERVAL_MS
            if is_early or not self._index.waiting:
                return False
            self._walk, self._walk_began_ms, self._has_found = self._old(now_ms), now_ms, False
        try:
            entries = self._step()
            if entries:
                self._has_found = True
                self._append(entries)
        except BaseException:
            self._walk = None
            raise
        if self._walk is None and not self._has_found:
            self._checked_ms = self._walk_began_ms
            return False
        return True

    def _old(self, now_ms: int) -> Iterator[Entry | None]:
        """What is to be appended again; None where others should be served first."""
        sixth_ms = max(self._reserved_ms() // 6, INTERVAL_MS)
        for sixths, spare_ms in ((5, 0), (4, sixth_ms)):
            offset = self._store.offset_by_time(
                TIMER_TOPIC, TIMER_QUEUE_ID, now_ms - sixths * sixth_ms, upper=False
            )
            yield from self._index.older_than(offset, now_ms + spare_ms)

    def _step(self) -> list[Entry]:
        assert self._walk is not None
        found: list[Entry] = []
        for entry in self._walk:
            if entry is None:
                return found
            found.append(entry)
            if len(found) >= PASS_COUNT_MAX:
                return found
        self._walk = None
        return found

    def has_rolled_since(self, time_ms: int) -> bool:
        """Whether all that was too old was appended after *time_ms*, by what is reserved now."""
        return not self._index.waiting or self._checked_ms > time_ms

    def _append(self, entries: list[Entry]) -> None:
        store, index = self._store, self._index
        store.check_writable()
        store.begin()
        staged: list[tuple[Entry, int]] = []
        try:
            for entry in entries:
                message = self._queue.message_at(entry.log_offset, entry.queue_offset)
                if message is None:
                    self._give_up(entry)
                else:
                    staged.append((entry, self._stage(entry, message)))
        finally:
            try:
                store.commit()
            finally:
                end = store.max_commit_log_offset
                for entry, log_offset in staged:
                    if log_offset < end:
                        index.hide(entry.queue_offset)
                        self.rolled_count += 1

    def _give_up(self, entry: Entry) -> None:
        log.error(
            "a timer message is missing or damaged and cannot be delivered",
            queue_offset=entry.queue_offset,
            commit_log_offset=entry.log_offset,
            due_ms=entry.due_ms,
        )
        self._index.withdraw(entry)

    def _stage(self, entry: Entry, message: StoredMessage) -> int:
        times = message.properties.get(PROPERTY_TIMER_ROLL_TIMES, "0")
        properties = message.properties | {
            PROPERTY_TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1),
            TIMER_ORIGIN: origin_text(entry.queue_offset, entry.due_ms),
        }
        prepared = message.prepared_transaction_offset
        return self._store.stage_again(
            Copy(TIMER_TOPIC, TIMER_QUEUE_ID, message, properties, prepared_offset=prepared)
        )
