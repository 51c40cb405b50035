"""Delivery: brings due messages to their topics, in passes of limited size, each message once."""

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Collection

import structlog

from rockhopper.broker.kernel.scheduled.timers.copies import (
    TIMER_ORIGIN,
    find_written_copies,
    stage_copy,
)
from rockhopper.broker.kernel.scheduled.timers.due import DueMessage
from rockhopper.broker.kernel.scheduled.timers.entries import SLOT_MS
from rockhopper.broker.kernel.scheduled.timers.following import TimerQueue
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.kernel.scheduled.timers.slot_files import Note
from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.kernel.state_records import StateKind, encode_slots
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
)

log = structlog.get_logger("broker.timers")

PASS_COUNT_MAX = 64
PASS_SIZE_BYTES_MAX = 1 << 20
LATE_MS = 1000
_NEVER = 1 << 63


class TimerDelivery:
    """Delivers the messages that are due by the index.

    ``delivered`` counts messages since the start by topic; ``late_count`` counts those that were
    more than one second late.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        index: TimerIndex,
        queue: TimerQueue,
        channels: StateChannels,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._stats = stats
        self._index = index
        self._queue = queue
        self._now_ms = now_ms
        # Passes that may not be on disk: their end, and the end of the log before them.
        self._unsettled: deque[tuple[int, int]] = deque()
        self._slot_ends: dict[int, int] = {}
        self.delivered: Counter[str] = Counter()
        self.late_count = 0
        self._passes = channels.channel(StateKind.TIMERS, Channel.STAGED)
        self._undone = channels.channel(StateKind.TIMERS_UNDONE)

    def deliver(self) -> bool:
        """Execute one pass; return whether anything was due.

        Raises:
            StoreError, OSError: not possible now. Undelivered messages stay due.
        """
        index, store = self._index, self._store
        # Before the store takes its own time, so that no due message has an earlier store time.
        now_ms = self._now_ms()
        if index.due.next_ms is None or index.due.next_ms > now_ms:
            return False
        store.check_writable()
        store.staging.read_clock()
        taken = index.take(now_ms, PASS_COUNT_MAX, PASS_SIZE_BYTES_MAX)
        if not taken:
            return True
        log_end = store.log.written_offset
        try:
            index.note(taken, log_end)
        except OSError:
            index.due.put_back(taken)
            raise
        log_offsets: list[int | None] = []
        messages: list[StoredMessage | None] = []
        try:
            if self._passes.is_replicated:
                self._passes.note(_slots_of(taken))
            for due in taken:
                message = self._message(due)
                messages.append(message)
                log_offsets.append(self._stage(message, now_ms) if message is not None else None)
            end = store.commit()
        except StoreError:
            # End the pass with everything that can be written.
            with contextlib.suppress(StoreError):
                store.commit()
            self._undo(taken, log_offsets, log_end)
            raise
        self._note_written(taken, log_end, end)
        self._count(taken, messages, log_offsets, now_ms)
        return True

    def _message(self, due: DueMessage) -> StoredMessage | None:
        queue = self._queue
        message = queue.message_at(due.log_offset, due.queue_offset)
        if message is None:
            message = queue.message(due.queue_offset)
        if message is None:
            log.error(
                "a due timer message is missing or damaged",
                queue_offset=due.queue_offset,
                commit_log_offset=due.log_offset,
            )
        return message

    def _stage(self, message: StoredMessage, now_ms: int) -> int | None:
        properties = dict(message.properties)
        properties.pop(TIMER_ORIGIN, None)
        more = {
            PROPERTY_TIMER_ENQUEUE_MS: str(message.store_time_ms),
            PROPERTY_TIMER_DEQUEUE_MS: str(now_ms),
        }
        return stage_copy(self._store, self._topics, message, properties, more)

    def _undo(self, taken: list[DueMessage], log_offsets: list[int | None], log_end: int) -> None:
        """Record the messages of a failed pass that are in the log; the others stay due."""
        end = self._store.log.written_offset
        written = [
            due
            for due, log_offset in zip(taken, log_offsets, strict=False)
            if log_offset is not None and log_offset < end
        ]
        self._index.take_back_note()
        if written:
            self._index.note(written, log_end)
            self._note_written(written, log_end, end)
        kept = set(written)
        undone = [due for due in taken if due not in kept]
        self._index.due.put_back(undone)
        if self._passes.is_replicated:
            self._undone.note(_slots_of(undone))

    def _note_written(self, written: list[DueMessage], log_end: int, end: int) -> None:
        self._index.delivered(written)
        self._unsettled.append((end, log_end))
        for due in written:
            self._slot_ends[due.due_ms // SLOT_MS] = end

    def _count(
        self,
        taken: list[DueMessage],
        messages: list[StoredMessage | None],
        log_offsets: list[int | None],
        now_ms: int,
    ) -> None:
        for due, message, log_offset in zip(taken, messages, log_offsets, strict=True):
            if message is None or log_offset is None:
                continue
            topic = message.properties[PROPERTY_REAL_TOPIC]
            self.delivered[topic] += 1
            self.late_count += now_ms - due.due_ms > LATE_MS
            self._stats.get_send_traffic(topic).count_request(1, message.size_bytes)

    @property
    def behind_ms(self) -> int:
        """How long the first due message has been due; 0 if none is."""
        due_ms = self._index.due.next_ms
        return 0 if due_ms is None else max(self._now_ms() - due_ms, 0)

    def forget_all(self) -> None:
        """Forget all passes that are not on disk."""
        self._unsettled.clear()
        self._slot_ends.clear()

    def passed_elsewhere(self, log_end: int) -> None:
        """Record that another replica started a pass at *log_end*.

        Its earlier passes are in the log.
        """
        self._unsettled.clear()
        self._unsettled.append((_NEVER, log_end))

    def compute_settled_offset(self) -> int:
        """Return the log offset before which every pass is on disk."""
        flushed_offset = self._store.log.flushed_offset
        while self._unsettled and self._unsettled[0][0] <= flushed_offset:
            self._unsettled.popleft()
        return self._unsettled[0][1] if self._unsettled else flushed_offset

    @property
    def last_end(self) -> int:
        """The end of the newest pass that may not be on disk; 0 if there is none."""
        return self._unsettled[-1][0] if self._unsettled else 0

    def is_settled(self, slot: int) -> bool:
        """Return whether all deliveries of a finished slot are on disk."""
        if self._slot_ends.get(slot, 0) > self._store.log.flushed_offset:
            return False
        self._slot_ends.pop(slot, None)
        return True

    def find_written(self, notes: list[Note], settled_log_offset: int) -> set[Note]:
        """Return which of the recorded deliveries took place, according to the log."""
        took_place = {note for note in notes if note[1] < settled_log_offset}
        passes: dict[int, list[int]] = {}
        for queue_offset, log_end in notes:
            if log_end >= settled_log_offset:
                passes.setdefault(log_end, []).append(queue_offset)
        for log_end, queue_offsets in passes.items():
            found = [self._queue.message(offset) for offset in queue_offsets]
            messages = [message for message in found if message is not None]
            for message in find_written_copies(self._store, log_end, messages):
                took_place.add((message.queue_offset, log_end))
        return took_place


def _slots_of(due: Collection[DueMessage]) -> bytes:
    return encode_slots((message.due_ms // SLOT_MS, message.queue_offset) for message in due)
