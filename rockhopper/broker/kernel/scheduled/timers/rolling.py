"""Rolling: appends a message again before retention deletes it, if it waits longer than that.

The new record names the one that it replaces in TIMER_ORIGIN, and counts in TIMER_ROLL_TIMES. It
has the same due time. Ages are fractions of fileReservedTime:

    4/6     messages that wait for more than another 1/6 are appended again
    5/6     all others are too, unless they are due within minutes
"""

from collections.abc import Callable, Iterator

import structlog

from rockhopper.broker.kernel.scheduled.timers.copies import TIMER_ORIGIN
from rockhopper.broker.kernel.scheduled.timers.entries import TimerEntry
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
from rockhopper.protocol.properties import (
    PROPERTY_TIMER_ROLL_TIMES,
    TIMER_OPTIONAL_PROPERTIES,
    fit_properties,
)

log = structlog.get_logger("broker.timers")

PASS_COUNT_MAX = 64
# Rolling runs at this interval of the wall clock, and after the clock was set back.
INTERVAL_MS = 60_000
# Without TIMER_ORIGIN, a restart may find both records: better delivered twice than lost.
_OPTIONAL_PROPERTIES = (*TIMER_OPTIONAL_PROPERTIES, TIMER_ORIGIN)


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
        self._walk: Iterator[TimerEntry | None] | None = None
        self._walk_began_ms = 0
        self._has_found = False
        self.rolled_count = 0

    def roll(self) -> bool:
        """Search one step further if it is time, and append the found messages again.

        Return whether there may be more.

        Raises:
            StoreError, OSError: not possible now.
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

    def _old(self, now_ms: int) -> Iterator[TimerEntry | None]:
        """Yield the entries to append again; None where other work should continue."""
        sixth_ms = max(self._reserved_ms() // 6, INTERVAL_MS)
        for sixths, spare_ms in ((5, 0), (4, sixth_ms)):
            offset = self._store.reading.offset_by_time(
                TIMER_TOPIC, TIMER_QUEUE_ID, now_ms - sixths * sixth_ms, upper=False
            )
            yield from self._index.older_than(offset, now_ms + spare_ms)

    def _step(self) -> list[TimerEntry]:
        assert self._walk is not None
        found: list[TimerEntry] = []
        for entry in self._walk:
            if entry is None:
                return found
            found.append(entry)
            if len(found) >= PASS_COUNT_MAX:
                return found
        self._walk = None
        return found

    def has_rolled_since(self, time_ms: int) -> bool:
        """Return whether all messages that are too old have been appended after *time_ms*.

        The present retention time counts.
        """
        return not self._index.waiting or self._checked_ms > time_ms

    def _append(self, entries: list[TimerEntry]) -> None:
        store, index = self._store, self._index
        store.check_writable()
        store.staging.read_clock()
        staged: list[tuple[TimerEntry, int]] = []
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
                end = store.log.written_offset
                for entry, log_offset in staged:
                    if log_offset < end:
                        index.hide(entry.queue_offset)
                        self.rolled_count += 1

    def _give_up(self, entry: TimerEntry) -> None:
        log.error(
            "a timer message is missing or damaged and cannot be delivered",
            queue_offset=entry.queue_offset,
            commit_log_offset=entry.log_offset,
            due_ms=entry.due_ms,
        )
        self._index.withdraw(entry)

    def _stage(self, entry: TimerEntry, message: StoredMessage) -> int:
        times = message.properties.get(PROPERTY_TIMER_ROLL_TIMES, "0")
        properties = message.properties | {
            PROPERTY_TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1),
            TIMER_ORIGIN: origin_text(entry.queue_offset, entry.due_ms),
        }
        properties = fit_properties(properties, _OPTIONAL_PROPERTIES)
        prepared = message.prepared_transaction_offset
        return self._store.staging.stage_again(
            Copy(TIMER_TOPIC, TIMER_QUEUE_ID, message, properties, prepared_offset=prepared)
        )
